"""Stall detector: re-seeks partitions that make no progress, then reports the process unhealthy. A watchdog ends the process.

An agent that waits for records, for the count store or for an unreachable broker has not stalled. A consumer has stalled if it
gets no answer, or is shut out, while the broker answers a second client.
"""

import faulthandler
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog

from ldpstream.agents import metrics
from ldpstream.agents.fold import PartitionFold
from ldpstream.agents.log import CountedLog
from ldpstream.runtime.errors import LogUnavailable

log = structlog.get_logger("ldpstream.agent")

REPLACE_AFTER_S = 10.0  # after this time without progress, although the log has records, the detector seeks again
STALLED_AFTER_S = 60.0  # after this time without progress, the process must be restarted
WATCHDOG_S = 120.0  # a supervisor restarts the process that the watchdog has ended
STDERR = 2  # the file descriptor, because Faust's worker may replace `sys.stderr` by an object without one


@dataclass(slots=True, eq=False)
class Partition:
    """The state of a partition that is assigned to this process."""

    number: int
    fold: PartitionFold | None = None
    placement: int | None = None  # number of the last seek; with None, chunks are ignored until the next seek
    placed_at: int = 0  # offset of the last seek
    moved_s: float = 0.0  # last time when a record was counted, or none could be counted without a stall
    tried_s: float = 0.0  # last time when the partition was placed, checked by the stall detector or reported as damaged
    told_s: float = -math.inf  # last time when rejected envelopes were logged


class StallDetector:
    """Detects stalled partitions and a stalled consumer.

    Args:
        displace: called with the partitions that need a new seek.
    """

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        source: CountedLog,
        displace: Callable[[Iterable[int]], None],
        clock: Callable[[], float],
    ) -> None:
        self._partitions, self._log, self._displace, self._clock = partitions, source, displace, clock
        self._answered_s = clock()  # last time when the log answered the consumer
        self._asked_s = -math.inf  # last check with the second client while the group shut us out

    async def healthy(self, waiting: bool) -> bool:
        """Returns True unless a partition or the consumer has been stalled for a minute.

        Args:
            waiting: True if the agent accepts no records now; no partition then counts as stalled.
        """
        now = self._clock()
        if waiting:
            for partition in self._partitions.values():
                partition.moved_s = now
        idle = [p for p in self._partitions.values() if now - max(p.moved_s, p.tried_s) >= REPLACE_AFTER_S]
        if reason := self._log.shut_out():
            if now - self._asked_s >= REPLACE_AFTER_S:
                self._asked_s = now
                await self._reset_if_broker_unreachable(idle, reason)
        elif idle or now - self._answered_s >= REPLACE_AFTER_S:
            try:
                bounds = await self._log.bounds([p.number for p in idle])
                log_id, _ = await self._log.described()
                for partition in idle:
                    await self._check(partition, bounds[partition.number][1], log_id)
                self._answered_s = now
            except LogUnavailable as error:
                await self._reset_if_broker_unreachable(idle, str(error))
        return all(
            now - since < STALLED_AFTER_S for since in (self._answered_s, *(p.moved_s for p in self._partitions.values()))
        )

    async def _check(self, partition: Partition, end: int, log_id: str) -> None:
        fold, partition.tried_s = partition.fold, self._clock()
        if fold is not None and fold.of_another_log(log_id):
            self._displace([partition.number])
            return
        if fold is not None and partition.placement is not None and fold.next_offset == partition.placed_at < end:
            reached = await self._log.position_if_nothing_read(partition.number)
            if reached is not None and fold.next_offset == partition.placed_at < reached:
                log.error("the log lacks records", partition=partition.number, first=fold.next_offset, next=reached)
                metrics.missing_offsets.inc(reached - fold.next_offset)
                fold.lose(reached)
        if fold is not None and fold.next_offset == end:
            partition.moved_s = self._clock()
        else:  # the log has records, or has lost its end
            log.warning("no progress although the log has other records", partition=partition.number, end=end)
            self._displace([partition.number])

    async def _reset_if_broker_unreachable(self, idle: list[Partition], reason: str) -> None:
        numbers = {partition.number for partition in idle} or {0}
        found = set[int]()
        with suppress(LogUnavailable):
            found = set(await self._log.later(dict.fromkeys(numbers, 0)))
        if found == numbers:
            log.warning("the broker serves other clients but not our consumer", partitions=sorted(numbers), error=reason)
            return
        self._answered_s = now = self._clock()
        for partition in idle:
            partition.moved_s = now


def alive() -> None:
    """Starts or resets the watchdog: after `WATCHDOG_S` seconds without a call, it prints all stacks and ends the process."""
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True, file=STDERR)
