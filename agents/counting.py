"""Feeds chunks to the folds, each of which counts one partition, and commits the folds' changes to the count store.

After a partition is *assigned*, the agent loads the partition's checkpoint and *places* the partition: it seeks to the
checkpoint's offset. Then the agent counts chunks and commits the changes: at intervals, and at once when a step closes or too
many bytes wait to be written. When the partition is *revoked*, the agent tries to commit the last changes, and forgets the
partition. Recovery from a fault uses the same two steps, load and place. Faults, and what the agent does:

    the store refuses a commit (another agent has written)  forget, load, place
    the store has lost our writes (see `COMPARE_S`)         forget, load, place
    a delivery lacks a record                               place
    the log has no record at an offset                      note the missing records, continue after them
    the log no longer has the offset                        seek to the log's beginning, note the missing records
    the log lost its end (`_replaced`)                      note the missing records, continue at the log's new records
    the topic was deleted and recreated                     forget, load, drop the open steps, begin the new log
    the store does not answer or refuses writes             accept no chunks, retry with pauses of up to 5 s

Before a commit, the agent asks the broker whether the topic was recreated and whether counted records were replaced.

The agent logs where it rejected envelopes, for each partition at most every `TELL_S` seconds.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import ParamSpec, TypeVar

import structlog

from ldpstream.agents import metrics
from ldpstream.agents.fold import FoldResult, PartitionFold
from ldpstream.agents.log import Chunk, CountedLog
from ldpstream.agents.stall_detector import Partition, StallDetector
from ldpstream.agents.tally import Records
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.count_store import CountStore, StoreDamaged, StoreUnavailable
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.agent")

P = ParamSpec("P")
T = TypeVar("T")

SLOWEST_RETRY_S = 5.0
TELL_S = 10.0  # time between two log lines about a damaged checkpoint, or about rejected envelopes of a partition
COMMIT_INTERVAL_S = 0.5
MAX_UNWRITTEN_BYTES = 2**26  # limit of the changed count tables and report keys of one survey that wait to be written
COMPARE_S = 2.0  # interval between comparisons of the store with our writes
CLOSE_S = 6.0
UNCOMMITTED = "could not commit the last changes; the next owner counts these records again"


class Counting:
    """Counts the partitions that are assigned to this process.

    Args:
        commit_interval_s: time between commits, in seconds, if nothing makes a commit earlier and no request fails.

    Attributes:
        store_refusal: the reason of the last failed request to the store; None after a `step` that wrote all due changes.
    """

    def __init__(
        self,
        survey: Survey,
        store: CountStore,
        source: CountedLog,
        commit_interval_s: float = COMMIT_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._survey, self._log = survey, source
        self._interval_s, self._clock = commit_interval_s, clock
        self._partitions: dict[int, Partition] = {}
        self._accepting = asyncio.Event()  # set while chunks are accepted
        self._store = store
        self.store_refusal: str | None = None
        self._update_back_pressure()
        self._stall_detector = StallDetector(self._partitions, source, self.displace, clock)
        self._assignments = 0
        self._joined = False
        self._group_offsets: dict[int, int] = {}
        self._compared_s = clock()
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._closed = False

    # ---- events from outside

    @property
    def unready(self) -> str | None:
        """None if we are a member of the group, the store answers, and all our partitions are being read; else the reason."""
        if not self._joined or self._log.shut_out():
            return "not a member of the consumer group"
        if self.store_refusal is not None:
            return self.store_refusal
        placed = all(partition.placement is not None for partition in list(self._partitions.values()))
        return None if placed else "not all partitions are being read"

    def assign(self, partitions: Iterable[int]) -> None:
        wanted = set(partitions)
        self._assignments += 1
        self._joined = True
        for gone in self._partitions.keys() - wanted:
            self._forget(gone)
        for number in wanted:
            self._partitions.setdefault(number, Partition(number, moved_s=self._clock())).placement = None
        self._wake.set()

    def displace(self, partitions: Iterable[int]) -> None:
        """Marks partitions as not placed; the next `step` seeks in them."""
        for number in partitions:
            if number in self._partitions:
                self._partitions[number].placement = None
        self._wake.set()

    async def revoke(self, partitions: Iterable[int]) -> None:
        """Tries to commit partitions a last time, then forgets them."""
        going = [self._partitions[number] for number in partitions if number in self._partitions]
        for partition in going:
            partition.placement = None
        async with self._lock:
            try:
                await self._commit(going)
            except (StoreUnavailable, LogUnavailable) as error:
                log.warning(UNCOMMITTED, error=str(error))
            await self._commit_group()
            for partition in going:
                self._forget(partition.number)

    async def close(self) -> None:
        """Tries to commit everything a last time and stops, within `CLOSE_S` seconds."""
        self._closed = True
        self._wake.set()
        try:
            await asyncio.wait_for(self.revoke(list(self._partitions)), CLOSE_S)
        except TimeoutError:
            log.warning(UNCOMMITTED)

    # ---- chunks

    async def take(self, chunk: Chunk) -> None:
        """Counts a chunk. Waits while the store does not answer, or while too many bytes wait to be written.

        Ignores a chunk that was read before the partition's last seek, or whose partition is no longer assigned to us.
        """
        for records in [chunk.records] if chunk.unread else Records.of(chunk.records).by_step(self._survey):
            await self._accepting.wait()
            partition = self._partitions.get(chunk.partition)
            if partition is None or partition.fold is None or partition.placement != chunk.placement:
                return  # the chunk was read before the last seek, or the partition is no longer ours
            self._take(partition, partition.fold, chunk._replace(records=records))

    def _take(self, partition: Partition, fold: PartitionFold, chunk: Chunk) -> None:
        result = self._feed(partition, fold, chunk)
        if result.gap is None:
            return
        expected, found = result.gap
        if chunk.sequence == 0 and result.records == 0 and expected == partition.placed_at:
            # we requested `expected` and the broker began with `found`: somebody removed the records in between
            metrics.missing_offsets.inc(found - expected)
            log.error("the log lacks records", partition=partition.number, first=expected, next=found)
            fold.lose(found)
            result = self._feed(partition, fold, chunk)
        if result.gap is not None:
            metrics.gaps.inc()
            expected, found = result.gap
            log.warning("records missing from a delivery", partition=partition.number, expected=expected, found=found)
            self.displace([partition.number])

    def _feed(self, partition: Partition, fold: PartitionFold, chunk: Chunk) -> FoldResult:
        before, open_before, each, why = fold.next_offset, fold.first_open_step, 1, ""
        if chunk.unread is None:
            result = fold.feed(chunk.records)
        else:
            n, refused, why = chunk.unread
            result = fold.pass_over(chunk.records[0], n, refused)
            each = result.records
        if fold.next_offset > before:
            partition.moved_s = self._clock()
        if fold.first_open_step > open_before:
            self._wake.set()  # an estimator waits for the commit that shows that a step is complete
        metrics.count(result, each)
        if result.rejected and self._clock() - partition.told_s >= TELL_S:
            partition.told_s, (record, reason) = self._clock(), result.rejected[0]
            where = {"partition": partition.number, "offset": record.offset}
            log.warning("envelopes rejected", reason=reason, why=why, records=each * len(result.rejected), **where)
        self._update_back_pressure()
        if not self._accepting.is_set():
            self._wake.set()
        return result

    def _update_back_pressure(self) -> None:
        unwritten = sum(p.fold.dirty_bytes for p in self._partitions.values() if p.fold is not None)
        if self.store_refusal is None and unwritten <= MAX_UNWRITTEN_BYTES:
            self._accepting.set()
        else:
            self._accepting.clear()

    # ---- the loop

    async def run(self) -> None:
        """Commits at intervals and places unplaced partitions, until closed.

        Start this loop once we are a member of the group.
        """
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
        """Runs one round: commits the changes, then loads and places the partitions without a valid seek.

        Raises:
            StoreUnavailable, LogUnavailable: if the round could not finish.
        """
        async with self._lock:
            if self.store_refusal is not None:  # chunks wait until the store answers, even with nothing to write or load
                await self._ask(self._store.check_writes)  # a Redis that refuses writes still answers reads
            await self._commit(list(self._partitions.values()))
            await self._compare_with_store()
            if self.store_refusal is not None:
                self.store_refusal = None
                self._update_back_pressure()
                log.info("the count store accepts counts again")
            if waiting := [p for p in self._partitions.values() if p.placement is None]:
                await self._place(waiting)
            await self._commit_group()

    async def _commit(self, partitions: list[Partition]) -> None:
        changed = [
            (partition, fold, change)
            for partition in partitions
            if (fold := partition.fold) is not None and (change := fold.changes()) is not None
        ]
        if not changed:
            return
        log_id, _ = await self._log.described()  # read after the records, so the records came from this log or an earlier log
        replaced = await self._replaced({p.number: fold for p, fold, _ in changed if not fold.of_another_log(log_id)})
        for partition, fold, change in changed:
            if fold.of_another_log(log_id) or replaced.get(partition.number) is not None:
                self._start_over(partition)
                continue
            if partition.number not in replaced:
                continue  # the partition's broker does not answer
            expected = fold.stored_position
            started = time.perf_counter()
            written = await self._ask(self._store.commit, partition.number, expected, change)
            metrics.commit_seconds.observe(time.perf_counter() - started)
            if written:
                fold.committed(change)
                self._group_offsets[partition.number] = change.next_offset
                self._update_back_pressure()
            else:
                metrics.refused_commits.inc()
                offset = None if expected is None else expected[0]
                log.warning("commit refused: the stored checkpoint has changed", partition=partition.number, expected=offset)
                self._start_over(partition)

    async def _replaced(self, folds: dict[int, PartitionFold]) -> dict[int, int | None]:
        """Finds partitions whose last records the broker lost, and which then got other records at the same offsets.

        The log's append times show this: below the stored offset, no record may be newer than the newest counted record.
        """
        doubtful = {n: fold.stored for n, fold in folds.items() if fold.stored is not None and not fold.loss_is_open}
        later = await self._log.later({n: stored.newest_ms + 1 for n, stored in doubtful.items()}) if doubtful else {}
        replaced: dict[int, int | None] = {number: None for number in folds if number not in doubtful}
        for number, found in later.items():
            replaced[number] = None if found is None or found.offset >= doubtful[number].next_offset else found.offset
        return replaced

    async def _compare_with_store(self) -> None:
        if self._clock() - self._compared_s < COMPARE_S:
            return
        heads = await self._heads()
        await self._ask(self._store.check_writes)  # without reports there is no other write
        self._compared_s = self._clock()
        if heads is None:
            return
        for partition in self._partitions.values():
            if partition.fold is not None and not partition.fold.agrees(heads.get(partition.number)):
                metrics.store_losses.inc()
                log.warning("the count store lost or replaced our writes", partition=partition.number)
                self._start_over(partition)

    def _start_over(self, partition: Partition) -> None:
        partition.fold = partition.placement = None
        self._update_back_pressure()
        self._wake.set()

    async def _place(self, partitions: list[Partition]) -> None:
        assignments = self._assignments
        log_id, there = await self._log.described()  # the group notices only later that a recreated topic has fewer partitions
        for partition in partitions:
            if partition.fold is not None and partition.fold.of_another_log(log_id):
                self._start_over(partition)
        partitions = [p for p in partitions if p.number in there]
        checkpoints = await self._load([p for p in partitions if p.fold is None])
        partitions = [p for p in partitions if p.fold is not None or p.number in checkpoints]
        bounds = await self._log.bounds([p.number for p in partitions])
        loaded = {
            number: PartitionFold(self._survey, checkpoint, bounds[number][0], log_id, secrets.token_hex(8))
            for number, checkpoint in checkpoints.items()
        }
        replaced = await self._replaced({n: fold for n, fold in loaded.items() if not fold.of_another_log(log_id)})
        for partition in partitions:
            number = partition.number
            if partition.fold is None:
                if number not in replaced and not loaded[number].of_another_log(log_id):
                    continue  # the partition's broker does not answer
                partition.fold = loaded[number]
            await self._move_into_log(partition, partition.fold, log_id, *bounds[number], replaced.get(number))
            if partition.fold is None:
                self._wake.set()  # the store refused the commit: load the partition again
                continue
            offset = partition.fold.next_offset
            placement = await self._log.place(partition.number, offset)
            if assignments != self._assignments:
                self._wake.set()  # a rebalance has meanwhile made all seeks invalid
                return
            partition.placement, partition.placed_at, partition.tried_s = placement, offset, self._clock()
            if (stored := partition.fold.stored) is not None:
                self._group_offsets[partition.number] = stored.next_offset
            log.info("counting", partition=partition.number, offset=offset)

    async def _load(self, partitions: list[Partition]) -> dict[int, Checkpoint | None]:
        loaded: dict[int, Checkpoint | None] = {}
        for partition in partitions:
            try:
                loaded[partition.number] = await self._ask(self._store.load, partition.number)
            except StoreDamaged as error:
                partition.moved_s = self._clock()  # not a stall: a restart of this process would not help
                if self._clock() - partition.tried_s >= TELL_S:
                    partition.tried_s = self._clock()
                    log.error("not counting", partition=partition.number, error=str(error))
        return loaded

    async def _move_into_log(
        self, partition: Partition, fold: PartitionFold, log_id: str, begin: int, end: int, replaced: int | None
    ) -> None:
        number, before = partition.number, fold.next_offset
        if fold.of_another_log(log_id):
            log.error("the topic was deleted and recreated: counting its open steps again", partition=number, offset=before)
            metrics.new_logs.inc()
            fold.switch_log(log_id, begin)
        elif before < begin:
            metrics.missing_offsets.inc(begin - before)
            log.error("records expired before they were counted", partition=number, first=before, next=begin)
            fold.lose(begin)
        elif before > end or replaced is not None:
            log.error("the log has lost records that were counted", partition=number, next=before, end=end, replaced=replaced)
            fold.lose(end if replaced is None else replaced)
        else:
            return
        await self._commit([partition])

    async def _heads(self) -> dict[int, Checkpoint] | None:
        """Returns the stored checkpoints; None while one of them is damaged, which `_load` reports."""
        try:
            return await self._ask(self._store.heads)
        except StoreDamaged:
            return None

    async def _ask(self, question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Calls a method of the count store in a thread. If the store does not answer, no chunks are accepted."""
        try:
            return await asyncio.to_thread(question, *arguments, **named)
        except StoreUnavailable as error:
            self.store_refusal = str(error)
            self._update_back_pressure()
            raise

    async def _commit_group(self) -> None:
        ours = {number: offset for number, offset in self._group_offsets.items() if number in self._partitions}
        if ours:
            try:
                await self._log.commit_group(ours)
            except LogUnavailable as error:
                log.info("group offsets not committed", error=str(error))
                return
        self._group_offsets.clear()

    async def healthy(self) -> bool:
        return await self._stall_detector.healthy(waiting=not self._accepting.is_set())

    def _forget(self, number: int) -> None:
        self._partitions.pop(number, None)
        self._group_offsets.pop(number, None)
        self._update_back_pressure()
