"""Whether the counting goes on: partitions without progress are placed again, and given up if that does not help.

Waiting is no stall: for records, for the count store, for a broker that is away. But a consumer that gets no answer from a
broker that serves others is one, so before an outage is waited out the broker is asked past the consumer (`Log.witness`). So is
one that its group does not take.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from agents import metrics
from agents.fold import PartitionFold
from agents.log import DeadLetter, Log, LogUnavailable

log = structlog.get_logger("ldpstream.agent")

REPLACE_AFTER_S = 10.0  # without progress although there are records: place the partition again
STALLED_AFTER_S = 60.0  # and then: nothing helps but a new process


@dataclass(slots=True, eq=False)
class Partition:
    """A partition that is assigned to this process."""

    number: int
    fold: PartitionFold | None = None
    placement: int | None = None  # None: chunks are not taken, and the partition waits to be placed
    placed_at: int = 0  # offset
    letters: list[DeadLetter] = field(default_factory=list)
    moved_s: float = 0.0  # when records were last folded, or there were none
    tried_s: float = 0.0  # when it was last placed, or looked after


class Progress:
    """The progress of the partitions.

    Args:
        partitions: those that are assigned, by number; the dictionary is shared with whoever counts them.
        source: the log.
        displace: told of partitions that have to be placed again.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        source: Log,
        displace: Callable[[Iterable[int]], None],
        clock: Callable[[], float],
    ) -> None:
        self._partitions, self._log, self._displace, self._clock = partitions, source, displace, clock
        self._answered_s = clock()  # when the log last answered, by way of the consumer
        self._asked_s = -math.inf  # when the broker was last asked about a group that shuts us out

    async def going_on(self, waiting: bool) -> bool:
        """Whether nothing has been stalled for a minute: no partition, and not the consumer itself.

        Args:
            waiting: whether no records are taken now, so that no partition can be expected to move.
        """
        now = self._clock()
        if waiting:
            for partition in self._partitions.values():
                partition.moved_s = now
        still = [p for p in self._partitions.values() if now - max(p.moved_s, p.tried_s) >= REPLACE_AFTER_S]
        if reason := self._log.shut_out():
            if now - self._asked_s >= REPLACE_AFTER_S:
                self._asked_s = now
                await self._forgive_if_the_broker_is_away(still, reason)
        elif still or now - self._answered_s >= REPLACE_AFTER_S:
            try:
                bounds = await self._log.bounds([p.number for p in still])
                log_id = await self._log.identity()
                for partition in still:
                    await self._look_after(partition, bounds[partition.number][1], log_id)
                self._answered_s = now
            except LogUnavailable as error:
                await self._forgive_if_the_broker_is_away(still, str(error))
        return all(
            now - since < STALLED_AFTER_S for since in (self._answered_s, *(p.moved_s for p in self._partitions.values()))
        )

    async def _look_after(self, partition: Partition, end: int, log_id: str) -> None:
        """A partition has not moved for a while: there is nothing to read, or it has to be placed again."""
        fold, partition.tried_s = partition.fold, self._clock()
        if fold is not None and fold.of_another_log(log_id):
            self._displace([partition.number])
            return
        if fold is not None and partition.placement is not None and fold.next_offset == partition.placed_at < end:
            reached = await self._log.read_in_vain(partition.number)
            if reached is not None and fold.next_offset == partition.placed_at < reached:
                log.warning("offsets without records", partition=partition.number, expected=fold.next_offset, found=reached)
                metrics.missing_offsets.inc(reached - fold.next_offset)
                fold.jump(reached)
        if fold is not None and fold.next_offset >= end:
            partition.moved_s = self._clock()
        else:
            log.warning("no progress although there are records", partition=partition.number, end=end)
            self._displace([partition.number])

    async def _forgive_if_the_broker_is_away(self, still: list[Partition], reason: str) -> None:
        """The consumer gets no answer: while the broker serves nobody else either, that counts as progress."""
        numbers = [partition.number for partition in still]
        try:
            await self._log.witness(numbers)
        except LogUnavailable:
            self._answered_s = now = self._clock()
            for partition in still:
                partition.moved_s = now
        else:
            log.warning("the broker serves others, and not our consumer", partitions=numbers, error=reason)
