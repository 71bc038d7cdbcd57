"""The topic of estimates of a run.

The topic keeps all publications and accepts new publications only from its present owner.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ldpstream.runtime.errors import LogUnavailable


@dataclass
class MemoryTopic:
    """The topic, shared by all estimators.

    Attributes:
        records: the publications in order, each with its time in Unix milliseconds.
        owner: the estimator that last took over the topic.
    """

    now_ms: Callable[[], int]
    records: list[tuple[int, Any]] = field(default_factory=list)
    owner: object = None

    @property
    def last(self) -> dict[str, Any]:
        """The last publication of each key, which compaction keeps."""
        return {p.key: p for _, p in self.records}


class TopicClient:
    """The topic as one estimator sees it (`publishing.progress.EstimatesTopic`)."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._told: dict[str, Any] = {}

    def take_over(self, since: int, still: Callable[[], bool]) -> dict[str, Any]:
        if not still():
            raise LogUnavailable("another estimator leads")
        self._topic.owner = self
        self._told = {p.key: p for _, p in self._topic.records[since:]}
        return dict(self._told)

    def end(self) -> int:
        return len(self._topic.records)

    def read(self, keys: Sequence[str]) -> list[Any]:
        return [self._told[key] for key in keys]

    def publish(self, publications: list[Any]) -> int:
        if self._topic.owner is not self:
            raise LogUnavailable("another estimator has taken over")
        now_ms = self._topic.now_ms()
        self._topic.records += [(now_ms, p) for p in publications]
        return len(self._topic.records)

    def close(self) -> None:
        """Has no effect."""
