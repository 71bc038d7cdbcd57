"""The driver of the folds: between the log, the count store and the chunks that arrive. Knows asyncio, but not Faust.

A partition's life: it is *assigned*; its checkpoint is loaded and the log is *placed* at its offset; chunks are folded and
the changes committed at intervals; it is *revoked*: committed a last time and forgotten. Whatever goes wrong in between ends
in the same two steps, load and place, which cannot lose or double anything:

    the store refuses a commit (another agent has written)  forget, load, place
    a record is missing from what was delivered             place
    the log no longer has the offset                        go to where the log begins, and say how much is lost
    the store does not answer                               take no more chunks, try again, ever slower up to 5 s

Rejected envelopes go to the dead-letter topic before the commit that covers them: at least once, after a crash maybe twice.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import structlog

from agents import metrics
from agents.fold import FoldResult, PartitionFold
from agents.log import Chunk, DeadLetter, Log, LogUnavailable
from agents.store import Checkpoint, CountStore, StoreUnavailable
from agents.tally import Record
from surveys import Survey

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("ldpstream.agent")

MAX_WAITING_BYTES = 2**23  # of dead letters, before no more chunks are taken
LETTER_BYTES = 400  # about what a letter takes in memory besides its value
LETTERS_AT_ONCE = 2_000  # few enough to be acknowledged in time
SLOWEST_RETRY_S = 5.0
REPLACE_AFTER_S = 10.0  # without progress although there are records: place the partition again
STALLED_AFTER_S = 60.0  # and then: nothing helps but a new process
CLOSE_S = 6.0


@dataclass(slots=True, eq=False)
class _Partition:
    number: int
    fold: PartitionFold | None = None
    placement: int | None = None  # None: chunks are not taken, and the partition waits to be placed
    placed_at: int = 0  # offset
    letters: list[DeadLetter] = field(default_factory=list)
    moved_s: float = 0.0  # when records were last folded, or there were none
    tried_s: float = 0.0  # when it was last placed, or looked after


class Counting:
    """Counts the partitions that are assigned to this process.

    Args:
        survey: the survey that is being counted.
        store: where count tables and offsets are kept; its methods run in threads.
        source: the log.
        commit_interval_s: time between commits, in seconds.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        survey: Survey,
        store: CountStore,
        source: Log,
        commit_interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._survey, self._store, self._log = survey, store, source
        self._interval_s, self._clock = commit_interval_s, clock
        self._partitions: dict[int, _Partition] = {}
        self._assignments = 0
        self._joined = False
        self._group_offsets: dict[int, int] = {}
        self._waiting_bytes = 0
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._flowing = asyncio.Event()
        self._store_answers = True
        self._closed = False
        self._set_flow()

    # ---- what the outside tells

    @property
    def ready(self) -> bool:
        """Whether we belong to the group, the store answers, and all our partitions are being read."""
        return self._joined and self._store_answers and all(p.placement is not None for p in list(self._partitions.values()))

    def assign(self, partitions: Iterable[int]) -> None:
        """These are our partitions now, and none of them is placed any more."""
        wanted = set(partitions)
        self._assignments += 1
        self._joined = True
        for gone in self._partitions.keys() - wanted:
            self._forget(gone)
        for number in wanted:
            self._partitions.setdefault(number, _Partition(number, moved_s=self._clock())).placement = None
        metrics.partitions.set(len(self._partitions))
        self._wake.set()

    def displace(self, partitions: Iterable[int]) -> None:
        """The log cannot be read on from where it is: these partitions have to be placed again."""
        for number in partitions:
            if number in self._partitions:
                self._partitions[number].placement = None
        self._wake.set()

    async def revoke(self, partitions: Iterable[int]) -> None:
        """These partitions go to another agent: commit them a last time, if that is possible, and forget them."""
        going = [self._partitions[number] for number in partitions if number in self._partitions]
        for partition in going:
            partition.placement = None
        async with self._lock:
            try:
                await self._commit(going)
            except (StoreUnavailable, LogUnavailable) as error:
                log.warning("not committed before revocation; the next owner counts it again", error=str(error))
            await self._commit_group()
            for partition in going:
                self._forget(partition.number)
            metrics.partitions.set(len(self._partitions))

    async def close(self) -> None:
        """Commit everything a last time and stop, within a few seconds."""
        self._closed = True
        self._wake.set()
        try:
            await asyncio.wait_for(self.revoke(list(self._partitions)), CLOSE_S)
        except TimeoutError:
            log.warning("not committed before the end; the next owner counts it again")

    # ---- chunks

    async def take(self, chunk: Chunk) -> None:
        """Fold a chunk. Waits while the store does not answer, so that no more are fetched meanwhile."""
        await self._flowing.wait()
        partition = self._partitions.get(chunk.partition)
        if partition is None or partition.fold is None or partition.placement != chunk.placement:
            return  # read before the last placement, or for an owner that we no longer are
        result = self._feed(partition, partition.fold, chunk.records)
        if result.gap is None:
            return
        expected, found = result.gap
        if chunk.sequence == 0 and result.records == 0 and expected == partition.placed_at:
            # the broker itself, asked for `expected`, began with `found`: there is no record in between
            metrics.missing_offsets.inc(found - expected)
            log.warning("offsets without records", partition=chunk.partition, expected=expected, found=found)
            partition.fold.jump(found)
            result = self._feed(partition, partition.fold, chunk.records)
        if result.gap is not None:
            metrics.gaps.inc()
            expected, found = result.gap
            log.warning("records missing from a delivery", partition=chunk.partition, expected=expected, found=found)
            self.displace([chunk.partition])

    def _feed(self, partition: _Partition, fold: PartitionFold, records: Sequence[Record]) -> FoldResult:
        result = fold.feed(records)
        if result.records:
            partition.moved_s = self._clock()
        metrics.records.inc(result.records)
        metrics.reports.inc(result.reports)
        metrics.redelivered.inc(result.redelivered)
        for record, reason in result.rejected:
            metrics.rejected.labels(reason).inc()
            partition.letters.append(DeadLetter(partition.number, record, reason))
            self._waiting_bytes += len(record.value) + LETTER_BYTES
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._wake.set()
            self._set_flow()
        return result

    def _weigh_letters(self) -> None:
        self._waiting_bytes = sum(
            len(letter.record.value) + LETTER_BYTES for p in self._partitions.values() for letter in p.letters
        )
        self._set_flow()

    def _set_flow(self) -> None:
        metrics.store_available.set(self._store_answers)
        if self._store_answers and self._waiting_bytes <= MAX_WAITING_BYTES:
            self._flowing.set()
        else:
            self._flowing.clear()

    # ---- the loop

    async def run(self) -> None:
        """Commit at intervals and place what is not placed, until closed. To be begun once we belong to the group."""
        self._joined = True
        delay = self._interval_s
        while not self._closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), delay)
            self._wake.clear()
            try:
                await self.step()
            except (StoreUnavailable, LogUnavailable) as error:
                if delay <= self._interval_s:
                    log.warning("trying again", error=str(error))
                delay = min(max(2 * delay, 0.2), SLOWEST_RETRY_S)
            else:
                delay = self._interval_s

    async def step(self) -> None:
        """One round: commit all changes, then load and place the partitions that wait for it.

        Raises:
            StoreUnavailable, LogUnavailable: if that could not be finished; nothing is lost, another round goes on.
        """
        async with self._lock:
            if not self._store_answers:  # there may be nothing to write or to load, and chunks wait
                await self._ask_store(self._store.positions)
            await self._commit(list(self._partitions.values()))
            if waiting := [p for p in self._partitions.values() if p.placement is None]:
                await self._place(waiting)
            await self._commit_group()

    async def _commit(self, partitions: list[_Partition]) -> None:
        """Dead letters first, then the store. Chunks may be folded meanwhile: what is written stays as it is."""
        changed: list[tuple[_Partition, PartitionFold, Checkpoint]] = []
        due: list[tuple[list[DeadLetter], int]] = []
        for partition in partitions:
            if partition.fold is not None and (change := partition.fold.changes()) is not None:
                changed.append((partition, partition.fold, change))
                due.append((partition.letters, len(partition.letters)))
        for letters, n_due in due:
            for first in range(0, n_due, LETTERS_AT_ONCE):
                batch = letters[: min(LETTERS_AT_ONCE, n_due - first)]
                await self._log.send_dead_letters(batch)
                del letters[: len(batch)]  # what the broker has is not sent again, whatever happens next
                self._weigh_letters()
        for partition, fold, change in changed:
            expected = fold.stored_offset
            started = time.perf_counter()
            written = await self._ask_store(self._store.commit, partition.number, expected, change)
            metrics.commit_seconds.observe(time.perf_counter() - started)
            if written:
                fold.committed(change)
                self._group_offsets[partition.number] = change.next_offset
            else:
                metrics.refused_commits.inc()
                log.warning("commit refused: another agent has written", partition=partition.number, expected=expected)
                partition.fold, partition.placement, partition.letters = None, None, []
                self._weigh_letters()

    async def _place(self, partitions: list[_Partition]) -> None:
        """Load the checkpoints that we do not have, see what the log still has, and read on from there."""
        assignments = self._assignments
        checkpoints = {p.number: await self._ask_store(self._store.load, p.number) for p in partitions if p.fold is None}
        bounds = await self._log.bounds([p.number for p in partitions])
        for partition in partitions:
            begin, end = bounds[partition.number]
            if partition.fold is None:
                partition.fold = PartitionFold(self._survey, checkpoints[partition.number], begin)
            await self._go_where_the_log_is(partition, partition.fold, begin, end)
            if partition.fold is None:
                self._wake.set()  # refused: load it again
                continue
            offset = partition.fold.next_offset
            placement = await self._log.place(partition.number, offset)
            if assignments != self._assignments:
                self._wake.set()  # assigned anew meanwhile, so all placements are void
                return
            partition.placement, partition.placed_at, partition.tried_s = placement, offset, self._clock()
            if partition.fold.stored_offset is not None:
                self._group_offsets[partition.number] = partition.fold.stored_offset
            log.info("counting", partition=partition.number, offset=offset)

    async def _go_where_the_log_is(self, partition: _Partition, fold: PartitionFold, begin: int, end: int) -> None:
        """Leave an offset that the log does not have, and write that down before anything else is counted."""
        if fold.next_offset < begin:
            metrics.missing_offsets.inc(begin - fold.next_offset)
            log.error(
                "records expired before they were counted", partition=partition.number, first=fold.next_offset, next=begin
            )
            fold.jump(begin)
        elif fold.next_offset > end:
            log.error("the log has lost records that were counted", partition=partition.number, next=fold.next_offset, end=end)
            fold.jump(end)
        else:
            return
        await self._commit([partition])

    async def _ask_store(self, question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        try:
            answer = await asyncio.to_thread(question, *arguments, **named)
        except StoreUnavailable:
            self._store_answers = False
            self._set_flow()
            raise
        if not self._store_answers:
            self._store_answers = True
            self._set_flow()
            log.info("the count store answers again")
        return answer

    async def _commit_group(self) -> None:
        """Advisory, so a failure is not worth more than a line: the next commit carries it along."""
        if self._group_offsets:
            try:
                await self._log.commit_group(dict(self._group_offsets))
            except LogUnavailable as error:
                log.info("group offsets not committed", error=str(error))
            else:
                self._group_offsets.clear()

    async def watch(self, alive: Callable[[], None]) -> None:
        """Look after the progress until closed, and call `alive` every second while there is some or none is due.

        A partition that makes none although the log has records and the store answers is placed again; if that does not help
        for a minute `alive` is called no more.
        """
        while not self._closed:
            await asyncio.sleep(1)
            if await self.progressing():
                alive()

    async def progressing(self) -> bool:
        """Whether no partition has been stalled for a minute; see `watch`."""
        now = self._clock()
        if not self._flowing.is_set():
            for partition in self._partitions.values():
                partition.moved_s = now
        still = [p for p in self._partitions.values() if now - max(p.moved_s, p.tried_s) >= REPLACE_AFTER_S]
        if still:
            try:
                bounds = await self._log.bounds([p.number for p in still])
                for partition in still:
                    await self._look_after(partition, bounds[partition.number][1])
            except LogUnavailable:
                for partition in still:
                    partition.moved_s = now
        return all(now - p.moved_s < STALLED_AFTER_S for p in self._partitions.values())

    async def _look_after(self, partition: _Partition, end: int) -> None:
        """A partition has not moved for a while: there is nothing to read, or it has to be placed again."""
        fold, partition.tried_s = partition.fold, self._clock()
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
            self.displace([partition.number])

    def _forget(self, number: int) -> None:
        self._partitions.pop(number, None)
        self._group_offsets.pop(number, None)
        self._weigh_letters()
