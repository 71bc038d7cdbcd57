"""The code that a run drives: the service's own modules, or a mutant of them."""

import importlib.util
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import agents.counting
import agents.fold
import agents.progress
import estimators.publishing.schedule
import stores.count_store

from .memory_topic import TopicClient


class _Silence:
    """A log that says nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@dataclass
class Code:
    """What a run is made of.

    Attributes:
        counting, schedule: copies of the modules, loaded anew, so that what a run puts into them changes nothing for others.
        fold, store, topic: the classes that they work with.
    """

    counting: Any
    schedule: Any
    fold: Any
    store: Any
    topic: Any

    @classmethod
    def real(cls) -> "Code":
        """The service's own."""
        counting, progress, schedule = _copy(agents.counting), _copy(agents.progress), _copy(estimators.publishing.schedule)
        counting.log = progress.log = _Silence()
        counting.Progress = progress.Progress
        return cls(counting, schedule, agents.fold.PartitionFold, stores.count_store.MemoryCountStore, TopicClient)


def _copy(module: ModuleType) -> Any:
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    return copied
