"""The fold of one partition: a pure state machine between the log and the count store.

It knows which offset comes next, so a record that is delivered twice counts once, and a record that is missing is noticed.
It holds the panes that may still change; the others leave memory as soon as they are written. It does no input or output:
whoever drives it feeds records, writes its changes to a store, and tells it when they are written.

Records that nobody can count any more, because they expired before they were counted or went with a topic that was deleted,
are written down too (`Missing`): by their append times, so that an estimator knows which steps they may have belonged to.

Append times are taken as never falling within a partition: should a broker's clock step back, a record counts as appended
when the newest record before it was. So a step that is closed for one record is closed for all that follow, which is what
makes "every partition has passed the close" the moment after which nothing is missing.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from agents.tally import Record, Records, tally
from mechanisms import CountTable
from stores import PaneKey
from stores.count_store import MAX_MS, Checkpoint, Missing, first_open_step
from surveys import Reason, Survey


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What feeding records did.

    Attributes:
        records: number of records folded.
        reports: number of reports counted.
        redelivered: number of records skipped, because they had been folded before.
        rejected: the records refused, with their reasons, in order.
        gap: the offset expected and the higher one found in its place, if any. The records from there on were not folded.
    """

    records: int
    reports: int
    redelivered: int
    rejected: tuple[tuple[Record, Reason], ...] = ()
    gap: tuple[int, int] | None = None


class PartitionFold:
    """Folds the records of one partition, each exactly once.

    Args:
        survey: the survey that is being counted.
        checkpoint: what the store holds for the partition; None if nothing.
        begin: the offset to start at if the store holds nothing: the partition's first.
        log_id: which log the partition belongs to, if the store does not know.
        now_ms: the time, for when the partition's first offset is not 0: what is missing was appended before.
        writer: a name that no other fold has; "" where a store is never lost.
    """

    def __init__(
        self,
        survey: Survey,
        checkpoint: Checkpoint | None,
        begin: int = 0,
        log_id: str = "",
        now_ms: int = MAX_MS,
        writer: str = "",
    ) -> None:
        start = Checkpoint(begin, log_id=log_id) if checkpoint is None else checkpoint
        self._survey = survey
        self._stored = None if checkpoint is None else checkpoint.position
        self._stored_by, self._writer = None if checkpoint is None else checkpoint.writer, writer
        self._next, self._newest_ms, self._log_id = start.next_offset, start.newest_ms, start.log_id or log_id
        self._missing = start.missing
        self._panes = dict(start.panes)
        self._dirty: set[PaneKey] = set()
        self._dirty_bytes = 0
        self._rejected: Counter[Reason] = Counter(start.rejected)
        if checkpoint is None and begin:
            self.lose(begin, now_ms)

    @property
    def next_offset(self) -> int:
        """The offset of the next record to fold."""
        return self._next

    @property
    def log_id(self) -> str:
        """The log that is folded."""
        return self._log_id

    def of_another_log(self, log_id: str) -> bool:
        """Whether that is another log than the one that is folded, as far as its broker tells logs apart."""
        return log_id not in ("", self._log_id)

    @property
    def stored_offset(self) -> int | None:
        """The next offset as last written to the store; None if nothing is."""
        return None if self._stored is None else self._stored[0]

    @property
    def stored_log(self) -> str | None:
        """The log as last written to the store; None if nothing is."""
        return None if self._stored is None else self._stored[1]

    def agrees(self, head: Checkpoint | None) -> bool:
        """Whether the store still holds what was last loaded or written; not if it has lost or got other writes."""
        if head is None:
            return self._stored is None
        return (head.position, head.writer) == (self._stored, self._stored_by)

    @property
    def dirty_bytes(self) -> int:
        """Bytes of the count tables that are not written yet."""
        return self._dirty_bytes

    @property
    def open_panes(self) -> int:
        """Number of count tables in memory."""
        return len(self._panes)

    def feed(self, records: Sequence[Record]) -> FoldResult:
        """Fold the records that come next; skip those folded before; stop where one is missing.

        Args:
            records: records of the partition, offsets ascending.
        """
        batch = Records.of(records)
        redelivered = bisect_left(batch.offsets, self._next)
        batch = batch[redelivered:] if redelivered else batch
        length = _consecutive(batch.offsets, self._next)
        gap = None if length == len(batch) else (self._next + length, batch.offsets[length])
        batch = batch[:length] if gap else batch
        times = list(accumulate(batch.appended_ms, max, initial=self._newest_ms))[1:]
        accepted = Records(batch.offsets, times, batch.values)
        added = tally(self._survey, accepted)
        first = self._next
        for key, table in added.counts.items():
            self._panes[key] = self._panes[key] + table if key in self._panes else table
            self._soil(key)
        self._rejected.update(reason for _, reason in added.rejected)
        if accepted:
            self._go_on(length, times[0], times[-1])
        rejected = tuple((accepted[offset - first], reason) for offset, reason in added.rejected)
        return FoldResult(length, added.reports, redelivered, rejected, gap)

    def refuse(self, record: Record, n: int, reason: Reason) -> FoldResult:
        """Fold a batch of records that cannot be read: they count as rejected, like records that can.

        Args:
            record: stands for the batch: its first offset and when the log took it.
            n: number of its records, at least 1.
            reason: why it cannot be read.
        """
        left = record.offset + n - self._next
        if left <= 0:
            return FoldResult(0, 0, n)
        if record.offset > self._next:
            return FoldResult(0, 0, 0, gap=(self._next, record.offset))
        appended_ms = max(self._newest_ms, record.appended_ms)
        self._rejected[reason] += left
        self._go_on(left, appended_ms, appended_ms)
        return FoldResult(left, 0, n - left, ((record, reason),))

    def skip(self, offset: int, n: int) -> FoldResult:
        """Pass over transaction markers: n offsets from that one on never had a record to count."""
        if offset > self._next:
            return FoldResult(0, 0, 0, gap=(self._next, offset))
        self._next = max(self._next, offset + n)
        return FoldResult(0, 0, 0)

    def _go_on(self, length: int, first_ms: int, last_ms: int) -> None:
        """So many records have been folded; the first and the last were appended then."""
        if self._missing is not None and self._missing.below_offset == self._next:
            self._missing = self._missing._replace(until_ms=min(self._missing.until_ms, first_ms + 1))
        self._next, self._newest_ms = self._next + length, last_ms

    def jump(self, offset: int) -> None:
        """Go on at a later offset, because the broker has confirmed that there never was a record in between to count."""
        self._next = offset

    def lose(self, offset: int, now_ms: int) -> None:
        """Go on at another offset, because the log does not have the next one any more: records are missing.

        Forwards when they have expired; backwards when the log's end lies below, since the broker has lost its end.

        Args:
            offset: where the log can be read on.
            now_ms: the time; whatever is missing was appended before. The first record read from there says it better.
        """
        after_ms = self._newest_ms if self._missing is None else min(self._newest_ms, self._missing.after_ms)
        self._missing = Missing(after_ms, now_ms, offset)
        self._next = offset

    def begin_anew(self, log_id: str, begin: int, now_ms: int) -> None:
        """Fold another log from its beginning: the topic has been deleted and made again.

        The tables of the steps that were still open are dropped, since the log that they were folded from is gone; records of
        those steps are missing. Steps that had closed stay as they are, closed and counted.

        Args:
            log_id: the new log.
            begin: its first offset.
            now_ms: the time.
        """
        first = first_open_step(self._survey, self._newest_ms)
        self._panes = {key: self._empty(key) for key in self._panes if key.step >= first}
        self._dirty, self._dirty_bytes = set(), 0
        for key in self._panes:
            self._soil(key)
        self._log_id = log_id
        self.lose(begin, now_ms)

    def _soil(self, key: PaneKey) -> None:
        if key not in self._dirty:
            self._dirty.add(key)
            self._dirty_bytes += self._panes[key].counts.nbytes

    def _empty(self, key: PaneKey) -> CountTable:
        return self._survey.mechanisms[key.attribute][key.level].empty_table()

    def changes(self) -> Checkpoint | None:
        """What has to be written to the store, starting from `stored_offset`; None if nothing.

        The checkpoint stays as it is while the fold goes on.
        """
        if (self._next, self._log_id) == (self._stored or (0, self._log_id)):
            return None
        dirty: dict[PaneKey, CountTable] = {key: self._panes[key] for key in self._dirty}
        rejected = dict(self._rejected)
        return Checkpoint(self._next, self._newest_ms, dirty, rejected, self._log_id, self._missing, self._writer)

    def committed(self, change: Checkpoint) -> None:
        """The store has written that change. Panes that can change no more leave memory."""
        self._stored, self._stored_by = change.position, change.writer
        for key, table in change.panes.items():
            if self._panes[key] is table:  # else it has changed since
                self._dirty.discard(key)
                self._dirty_bytes -= table.counts.nbytes
        first = first_open_step(self._survey, self._newest_ms)
        for key in [key for key in self._panes if key not in self._dirty and (key.step < first or not self._panes[key].n)]:
            del self._panes[key]


def _consecutive(offsets: Sequence[int], first: int) -> int:
    """How many of the ascending offsets run on from `first` without a hole."""
    n = len(offsets)
    if not n or offsets[-1] == first + n - 1:
        return n
    return bisect_left(range(n), True, key=lambda i: offsets[i] != first + i)
