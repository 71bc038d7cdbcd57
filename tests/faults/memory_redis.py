"""The Redis of a run: the count store and the results in memory. This Redis can hang, fail and lose its last writes.

This Redis also tracks which records the stored counts include: each fold notes its counted offsets (`traced`).
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ldpstream.agents.tally import Record
from ldpstream.engines.count_store import StoreUnavailable
from ldpstream.publishing.progress import Filters, Progress

from .memory_log import PARTITIONS
from .memory_store import MemoryResults

TIMEOUT_S = 3.0
READS = ("load", "positions", "heads")


class Lineage(NamedTuple):
    """The records that the counts of a partition include.

    Attributes:
        records: in the order of counting, of the present log.
        earlier: the records of earlier topics of the same name, one lineage for each.
    """

    records: tuple[Record, ...] = ()
    earlier: tuple["Lineage", ...] = ()


class MemoryRedis:
    """Redis with faults; see the module docstring.

    Args:
        store: the count store.
        loop: the event loop, whose time is the store's time.
        source: the random source of the delays.

    Attributes:
        lineage: for each partition, the records that the stored counts include.
        done: the number of events of each kind.
        lost: true if data was ever lost.
        keeps_all: true if no more data may be lost.
    """

    def __init__(self, store: Any, loop: asyncio.AbstractEventLoop, source: random.Random) -> None:
        self.store, self.results = store, MemoryResults()
        self._loop, self._random = loop, source
        self.lineage: dict[int, Lineage] = {}
        self.done: Counter[str] = Counter()
        # key: `id()` of a checkpoint, unique because we keep the checkpoint
        self._lineages: dict[int, tuple[object, Lineage]] = {}
        self._past: deque[tuple[Any, ...]] = deque(maxlen=12)
        self.paused_until = self.refusing_until = -1.0
        self.slow_s = 0.0
        self.errors, self.errors_after = 0, False
        self.lost = self.keeps_all = False

    # ---- faults

    def heal(self) -> None:
        """Ends all faults: every request gets a fast answer from now on."""
        self.paused_until = self.refusing_until = -1.0
        self.slow_s, self.errors = 0.0, 0

    def flush(self) -> None:
        """Deletes all data permanently."""
        self._restore(({}, {}, None, {}, {}))
        self._past.clear()

    def lose_writes(self, n: int) -> None:
        """Restores the state from n writes ago."""
        for _ in range(min(n, len(self._past))):
            self._restore(self._past.pop())

    def lose_shard(self, shard: int, n: int | None) -> None:
        """Restores the keys of one partition to their state n writes ago; deletes them if `n` is None.

        The number after the last partition stands for the results.
        """
        if n is not None and not self._past:
            return
        past: tuple[Any, ...] = ({}, {}, None, {}, {}) if n is None else self._past[-min(n, len(self._past))]
        now = self._state()
        if shard % (PARTITIONS + 1) == PARTITIONS:
            self._restore((now[0], past[1], past[2], now[3], past[4]))
        else:
            partition = shard % (PARTITIONS + 1)
            checkpoints, lineage = ({p: kept for p, kept in now[i].items() if p != partition} for i in (0, 3))
            if partition in past[0]:
                checkpoints[partition], lineage[partition] = past[0][partition], past[3][partition]
            self._restore((checkpoints, now[1], now[2], lineage, now[4]))

    def _state(self) -> tuple[Any, ...]:
        results = self.results
        publications, progress, filters = dict(results._publications), results._progress, results.filters()
        return dict(self.store._checkpoints), publications, progress, dict(self.lineage), filters

    def _note_write(self) -> None:
        self._past.append(self._state())

    def _restore(self, state: tuple[Any, ...]) -> None:
        checkpoints, publications, progress, lineage, filters = state
        self.store._checkpoints.clear()
        self.store._checkpoints.update(checkpoints)
        self.lineage = dict(lineage)
        self.lost = True
        self.results = MemoryResults()
        self.results._publications.update(publications)
        self.results._progress = progress
        self.results._filters.update(filters)

    # ---- requests of agents, each in a thread

    def thread(self, future: "asyncio.Future[Any]", question: Callable[..., Any]) -> None:
        """Replaces `asyncio.to_thread`: runs the request after a delay, even if the caller no longer waits."""
        delay = self.slow_s or self._random.choice((0.0003, 0.002, 0.05))
        self._loop.call_later(delay, self._arrive, future, question, self._loop.time() + TIMEOUT_S)

    def _arrive(self, future: "asyncio.Future[Any]", question: Callable[..., Any], deadline: float) -> None:
        now = self._loop.time()
        if now < self.paused_until:
            self._loop.call_at(self.paused_until, self._arrive, future, question, deadline)
            if now < deadline < self.paused_until:
                self._loop.call_at(deadline, _time_out, future)
            return
        self.done["questions that Redis answered to nobody"] += future.done()
        try:
            answer = question()
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(answer)

    def __getattr__(self, question: str) -> Callable[..., Any]:
        """Returns a method of the count store, with the faults of this run."""
        return partial(self._ask, question)

    def _ask(self, question: str, *arguments: Any) -> Any:
        if self.errors:
            self.errors -= 1
            if self.errors_after:
                self._do(question, *arguments)
            raise StoreUnavailable("broken off")
        return self._do(question, *arguments)

    def _do(self, question: str, *arguments: Any) -> Any:
        if question in READS:
            answer = getattr(self.store, question)(*arguments)
            if question == "load" and answer is not None:
                self._lineages[id(answer)] = (answer, self.lineage[arguments[0]])
            return answer
        if self._loop.time() < self.refusing_until:
            raise StoreUnavailable("disk full")
        self._note_write()
        written = getattr(self.store, question)(*arguments)
        self.done["commits"] += 1
        self.done["commits refused"] += not written
        if written:
            partition, change = arguments[0], arguments[-1]
            self.lineage[partition] = self._lineages[id(change)][1]
        return written

    def traced(self, fold: Any, now_ms: Callable[[], int]) -> Any:
        """Returns a subclass of `fold` that notes the counted offsets."""
        redis = self

        class Traced(fold):  # type: ignore[misc]  # the base class is a parameter
            def __init__(self, survey: Any, checkpoint: Any, *more: Any, **named: Any) -> None:
                self.now_ms = now_ms  # only mutants need this
                super().__init__(survey, checkpoint, *more, **named)
                self.lineage = Lineage() if checkpoint is None else redis._lineages[id(checkpoint)][1]

            def feed(self, records: Sequence[Record]) -> Any:
                before = self.next_offset
                result = super().feed(records)
                redis.done["records delivered again"] += result.redelivered
                redis.done["duplicates of report keys"] += result.duplicates
                redis.done["gaps noticed"] += result.gap is not None
                counted = tuple(record for record in records if before <= record.offset < self.next_offset)
                self.lineage = self.lineage._replace(records=self.lineage.records + counted)
                return result

            def switch_log(self, *arguments: Any) -> None:
                super().switch_log(*arguments)
                self.lineage = Lineage((), (*self.lineage.earlier, self.lineage._replace(earlier=())))

            def changes(self) -> Any:
                change = super().changes()
                if change is not None:
                    redis._lineages[id(change)] = (change, self.lineage)
                return change

        return Traced

    # ---- requests of the schedule

    def heads(self) -> Any:
        return self._ask("heads")

    def checkpoints(self, steps: range) -> Any:
        return self.store.checkpoints(steps)

    def prune(self, before_step: int, seen: Any) -> None:
        self._note_write()
        self.store.prune(before_step, seen)

    def progress(self) -> Progress | None:
        return self.results.progress()

    def get(self, keys: Sequence[str]) -> list[Any]:
        return list(self.results.get(keys))

    def lead(self, for_ms: int | None = None) -> bool:
        return True

    def filters(self) -> dict[str, bytes]:
        return self.results.filters()

    def save(
        self, publications: list[Any], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        self._note_write()
        return self.results.save(publications, before, progress, filters)


def _time_out(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_exception(StoreUnavailable("timed out"))
