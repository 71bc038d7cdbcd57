"""The log of a run: three partitions in memory. Every request can fail, before or after it takes effect."""

import asyncio
import random
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from itertools import takewhile
from typing import Any

import numpy as np

from agents.tally import Record
from runtime.errors import LogUnavailable
from surveys import REASONS
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


class MemoryLog:
    """Records with append times, dead letters and the group's offsets.

    Args:
        loop: the event loop, whose time is the log's time.
        source: the random source of the delays.

    Attributes:
        records: by partition and offset; None where an offset has no record.
        begins: for each partition, the first offset that has not expired.
        letters: the partition, offset and reason of every dead letter.
        group: the offsets that the group has committed.
        ahead_ms: how far the wall clock is ahead of the loop's time.
        behind_ms: how far the broker's clock is behind the wall clock.
        away_until: no broker answers before this time, in seconds.
        errors: for each request, the number of failures left, and True if the request takes effect before it fails.
        moved: called when the log may have something to read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, source: random.Random) -> None:
        self._loop, self._random = loop, source
        self.records: list[list[Record | None]] = [[] for _ in range(PARTITIONS)]
        self.begins = [0] * PARTITIONS
        self._keys = 0
        self.letters: set[tuple[int, int, str]] = set()
        self.group: dict[int, int] = {}
        self.ahead_ms, self.behind_ms = 0, 0
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

    def append(self, partition: int, value: bytes | None, key: bytes = b"") -> None:
        """Appends a record, or an offset without a record. An unreachable broker neither accepts nor acknowledges anything."""
        if not self.away:
            log = self.records[partition % PARTITIONS]
            log.append(None if value is None else Record(len(log), self.now_ms() - self.behind_ms, value, key))
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
        """Appends n records once more, without the last `back` records."""
        log = self.records[partition % PARTITIONS]
        for record in log[max(0, len(log) - back - n) : max(0, len(log) - back)]:
            if record is not None:
                self.append(partition, record.value, record.key)

    def expire(self, partition: int, n: int, counted: int | None) -> None:
        """Removes the oldest n records. If `counted` is given, keeps all records from the offset `counted` on."""
        begin = self.begins[partition]
        end = len(self.records[partition]) if counted is None else counted
        self.begins[partition] = max(begin, min(begin + n, end))

    def go_away(self, seconds: float) -> None:
        """Makes all brokers unreachable for a while."""
        self.away_until = max(self.away_until, self._loop.time() + seconds)
        self._loop.call_at(self.away_until, lambda: self.moved())

    # ---- requests of agents

    def read(self, partition: int, position: int, length: int) -> tuple[list[Record], int]:
        """Returns (records from the position on, 0). For a transaction marker, returns (one record, 1)."""
        log = self.records[partition][position : position + length]
        if log and log[0] is None:
            return [Record(position, 0, b"")], 1
        return [record for record in takewhile(bool, log) if record is not None], 0

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

    # ---- requests of the schedule (estimators.publishing.schedule.LogPosition)

    def log_id(self) -> str:
        return "the one"

    def beginnings(self) -> dict[int, int]:
        self._check_reachable()
        return dict(enumerate(self.begins))

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        self._check_reachable()
        return {p: self._first(p, lambda record: record.appended_ms >= time_ms) for p in range(PARTITIONS)}

    def earliest_ms(self) -> int | None:
        self._check_reachable()
        kept = [record for begin, log in zip(self.begins, self.records) for record in log[begin:] if record is not None]
        return min((record.appended_ms for record in kept), default=None)

    def _first(self, partition: int, holds: Callable[[Record], bool]) -> int:
        log = self.records[partition]
        found = (i for i in range(self.begins[partition], len(log)) if (record := log[i]) is not None and holds(record))
        return next(found, len(log))

    def _check_reachable(self) -> None:
        if self.away:
            raise LogUnavailable("gone")
