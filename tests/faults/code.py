"""The code under test in a run: the service's own modules, or a mutant of them."""

import importlib.util
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import ldpstream.agents.counting
import ldpstream.agents.fold
import ldpstream.agents.stall_detector
import ldpstream.publishing.copies
import ldpstream.publishing.schedule

from .memory_store import MemoryCountStore
from .memory_topic import TopicClient

MARGIN_MS = 500  # of a run, in place of the constant of `publishing.schedule`


class _Silence:
    """A logger that writes nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@dataclass
class Code:
    """The modules and classes that a run uses.

    Attributes:
        counting, schedule: fresh copies of the modules. A change to a copy affects no other run. `schedule` uses a
            fresh copy of `publishing.copies`.
        fold, store, topic: the classes that these modules use.
    """

    counting: Any
    schedule: Any
    fold: Any
    store: Any
    topic: Any

    @classmethod
    def real(cls) -> "Code":
        """Returns the service's own code."""
        counting, stall_detector = _copy(ldpstream.agents.counting), _copy(ldpstream.agents.stall_detector)
        schedule = _copy(ldpstream.publishing.schedule)
        counting.log = stall_detector.log = _Silence()
        schedule.MARGIN_MS = MARGIN_MS
        schedule.copies = _copy(ldpstream.publishing.copies)
        schedule.Copies = schedule.copies.Copies
        counting.StallDetector = stall_detector.StallDetector
        return cls(
            counting,
            schedule,
            ldpstream.agents.fold.PartitionFold,
            MemoryCountStore,
            TopicClient,
        )


def _copy(module: ModuleType) -> Any:
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    return copied
