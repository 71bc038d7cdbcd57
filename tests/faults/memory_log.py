"""The log of a run, in memory. Every request can fail, before or after it takes effect.

The broker can lose records: by retention, by a hole in the middle, at the end, or with the whole topic.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from ldpstream.agents.log import Found
from ldpstream.agents.tally import Record
from ldpstream.engines.checkpoint import MAX_MS
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import REASONS
from tests.agents.samples import PANES, make_survey, sound, spoilt

SURVEY = make_survey(cohorts=2)
PARTITIONS = 3
ANSWER_S = 5.0  # a client's timeout for an answer of the broker


@cache
def sound_value(step: int, pane: int, n: int, seed: int) -> bytes:
    """Makes a sound envelope for the step."""
    return sound(SURVEY, np.random.default_rng((step, pane, n, seed)), step, pane, n)


@cache
def spoilt_value(step: int, reason: int) -> bytes:
    """Makes an envelope that must be rejected, for the reason with this index."""
    return spoilt(SURVEY, np.random.default_rng((step, reason)), step, REASONS[reason])


Entry = Record | None  # None: somebody has removed the record at this offset


class MemoryLog:
    """Records with append times, and the group's offsets.

    Args:
        loop: the event loop, whose time is the log's time.
        source: the random source of the delays.

    Attributes:
        records: by partition and offset.
        history: by partition, all records that were ever appended, in order.
        lost: true if the broker ever lost a record, other than by retention.
        shortest: for each partition, the first offset whose record the broker ever lost at the end of the log.
        begins: for each partition, the first offset that has not expired.
        group: the offsets that the group has committed.
        ahead_ms: how far the wall clock is ahead of the loop's time.
        agents_behind_ms: how far the agents' clocks are behind the wall clock.
        estimators_ahead_ms: how far the estimators' clocks are ahead of the wall clock.
        behind_ms: how far the broker's clock is behind the wall clock.
        away_until: no broker answers before this time, in seconds.
        errors: for each request, the number of failures left, and True if the request takes effect before it fails.
        moved: called when the log may have something to read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, source: random.Random) -> None:
        self._loop, self._random = loop, source
        self.records: list[list[Entry]] = [[] for _ in range(PARTITIONS)]
        self.history: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self.lost = False
        self.shortest = [MAX_MS] * PARTITIONS
        self._remade = 0
        self.begins = [0] * PARTITIONS
        self._keys = 0
        self.group: dict[int, int] = {}
        self.ahead_ms, self.behind_ms, self.agents_behind_ms, self.estimators_ahead_ms = 0, 0, 0, 0
        self.away_until = -1.0
        self.errors: dict[str, tuple[int, bool]] = {}
        self.moved: Callable[[], None] = lambda: None

    @property
    def away(self) -> bool:
        """True if no broker answers."""
        return self._loop.time() < self.away_until

    def now_ms(self) -> int:
        """Returns the wall clock's Unix time in milliseconds."""
        return SURVEY.start_ms + int(self._loop.time() * 1000) + self.ahead_ms

    def step(self) -> int:
        """Returns the present step."""
        return SURVEY.step_at(self.now_ms())

    # ---- events and faults

    def append(self, partition: int, value: bytes, key: bytes = b"") -> None:
        """Appends a record. An unreachable broker neither accepts nor acknowledges anything."""
        if not self.away:
            partition %= PARTITIONS
            offset, appended_ms = len(self.records[partition]), self.now_ms() - self.behind_ms
            self.records[partition].append(record := Record(offset, appended_ms, value, key))
            self.history[partition].append(record)
            self.moved()

    def produce(self, partition: int, n: int, seed: int) -> None:
        """Appends n sound envelopes, most of them with a report key. Envelopes for a step too early or too late will be
        rejected. If an envelope that was too early is appended again later, it is accepted."""
        source = random.Random(seed)
        for _ in range(n):
            step = max(0, self.step() + source.choice((-2, -1, -1, 0, 0, 0, 1, 2)))
            value = sound_value(step, source.randrange(len(PANES)), source.randint(1, 3), source.randrange(4))
            self.append(partition, value, self._new_key() if source.random() < 0.7 else b"")

    def poison(self, partition: int, reason: int) -> None:
        """Appends an envelope that must be rejected, a record with a malformed report key, or a marker."""
        reason %= len(REASONS) + 2
        if reason < len(REASONS):
            self.append(partition, spoilt_value(self.step(), reason), self._new_key())
        elif reason == len(REASONS):
            self.append(partition, sound_value(self.step(), 0, 1, 0), b"no key")
        else:
            self.append(partition, b"", self._new_key())

    def _new_key(self) -> bytes:
        self._keys += 1
        return blake2b(b"%d" % self._keys, digest_size=16).digest()

    def repeat(self, partition: int, n: int, back: int) -> None:
        """Appends n earlier records again: those before the last `back` records."""
        log = self.records[partition % PARTITIONS]
        for record in log[max(0, len(log) - back - n) : max(0, len(log) - back)]:
            if record is not None:
                self.append(partition, record.value, record.key)

    def expire(self, partition: int, n: int, counted: int | None) -> None:
        """Removes the oldest n records. If `counted` is given, keeps all records from the offset `counted` on.

        Keeps new records that have taken the offsets of lost ones. If they also expired, nobody could notice the loss.
        """
        begin, end = self.begins[partition], min(len(self.records[partition]), self.shortest[partition])
        self.begins[partition] = max(begin, min(begin + n, end if counted is None else min(end, counted)))

    def remove(self, partition: int, n: int, back: int) -> None:
        """Removes the n records before the last `back` records. The offsets of the removed records stay empty."""
        log = self.records[partition]
        for i in range(max(0, len(log) - back - n), max(0, len(log) - back)):
            log[i], self.lost = None, True

    def lose_end(self, partition: int, kept: int) -> None:
        """Elects a leader without the records from offset `kept` on. The election takes longer than the brokers' clocks
        differ."""
        del self.records[partition][kept:]
        self.shortest[partition] = min(self.shortest[partition], kept)
        self.lost = True
        self.ahead_ms += 1000

    def replaced(self, partition: int, counted: int) -> bool:
        """True if the log has ever lost records below this offset and may have others in their place."""
        return counted > self.shortest[partition]

    def make_anew(self) -> None:
        """Deletes the topic and creates it again."""
        self.records, self.begins, self.shortest = [[] for _ in range(PARTITIONS)], [0] * PARTITIONS, [MAX_MS] * PARTITIONS
        self._remade += 1
        self.lost = True
        self.ahead_ms += 1000

    def go_away(self, seconds: float) -> None:
        """Makes all brokers unreachable for a while."""
        self.away_until = max(self.away_until, self._loop.time() + seconds)
        self._loop.call_at(self.away_until, lambda: self.moved())

    # ---- requests of agents

    def read(self, partition: int, position: int, length: int) -> list[Record]:
        return [entry for entry in self.records[partition][position:] if entry is not None][:length]

    def later(self, times_ms: Mapping[int, int]) -> dict[int, Found | None]:
        """See `agents.log.CountedLog`."""
        return {partition: self._first(partition, time_ms) for partition, time_ms in times_ms.items()}

    async def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        """Answers a request like a broker, after a delay or never."""
        await asyncio.sleep(self._random.choice((0.0, 0.003, 0.1)))
        if self.away:
            await asyncio.sleep(min(ANSWER_S, self.away_until - self._loop.time()))
            if self.away:
                raise LogUnavailable("gone")
        n, after = self.errors.get(question, (0, False))
        if n:
            self.errors[question] = (n - 1, after)
            if after:
                answer()
            raise LogUnavailable("broken off")
        answered = answer()
        await asyncio.sleep(self._random.choice((0.0, 0.0, 0.02)))
        return answered

    # ---- requests of the schedule (publishing.schedule.LogPosition)

    def log_id(self) -> str:
        return f"log {self._remade}"

    def described(self) -> tuple[str, range]:
        self._check_reachable()
        return self.log_id(), range(len(self.records))

    def ends(self) -> dict[int, int]:
        self._check_reachable()
        return {partition: len(log) for partition, log in enumerate(self.records)}

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        self._check_reachable()
        for partition in partitions:
            self.append(partition, b"")
        return dict.fromkeys(partitions, self.now_ms() - self.behind_ms)

    def earliest_ms(self) -> int | None:
        self._check_reachable()
        firsts = [self._first(partition, 0) for partition in range(PARTITIONS)]
        return min((first.appended_ms for first in firsts if first is not None), default=None)

    def _first(self, partition: int, time_ms: int) -> Found | None:
        log = self.records[partition][self.begins[partition] :]
        found = (Found(entry.offset, entry.appended_ms) for entry in log if entry is not None and entry.appended_ms >= time_ms)
        return next(found, None)

    def _check_reachable(self) -> None:
        if self.away:
            raise LogUnavailable("gone")
