"""The fold of one partition: a pure state machine between the log and the count store.

It knows which offset comes next, so a record that is delivered twice counts once, and a record that is missing is noticed.
It holds the panes that may still change; the others leave memory as soon as they are written. It does no input or output:
whoever drives it feeds records, writes its changes to a store, and tells it when they are written.

Append times are taken as never falling within a partition: should a broker's clock step back, a record counts as appended
when the newest record before it was. So a step that is closed for one record is closed for all that follow, which is what
makes "every partition has passed the close" the moment after which nothing is missing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agents.store import Checkpoint, first_open_step
from agents.tally import PaneKey, Record, tally
from mechanisms import CountTable
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
    """

    def __init__(self, survey: Survey, checkpoint: Checkpoint | None, begin: int = 0) -> None:
        start = Checkpoint(begin) if checkpoint is None else checkpoint
        self._survey = survey
        self._stored: int | None = None if checkpoint is None else checkpoint.next_offset
        self._next, self._newest_ms = start.next_offset, start.newest_ms
        self._panes = dict(start.panes)
        self._dirty: set[PaneKey] = set()
        self._rejected: Counter[Reason] = Counter(start.rejected)

    @property
    def next_offset(self) -> int:
        """The offset of the next record to fold."""
        return self._next

    @property
    def stored_offset(self) -> int | None:
        """The next offset as last written to the store; None if nothing is."""
        return self._stored

    @property
    def open_panes(self) -> int:
        """Number of count tables in memory."""
        return len(self._panes)

    def feed(self, records: Sequence[Record]) -> FoldResult:
        """Fold the records that come next; skip those folded before; stop where one is missing.

        Args:
            records: records of the partition, offsets ascending.
        """
        accepted: list[Record] = []
        redelivered, gap = 0, None
        following, newest_ms = self._next, self._newest_ms
        for record in records:
            if record.offset != following:
                if record.offset < following:
                    redelivered += 1
                    continue
                gap = (following, record.offset)
                break
            if record.appended_ms >= newest_ms:
                newest_ms = record.appended_ms
            else:
                record = record._replace(appended_ms=newest_ms)
            accepted.append(record)
            following += 1
        added = tally(self._survey, accepted)
        first = self._next
        for key, table in added.counts.items():
            self._panes[key] = self._panes[key] + table if key in self._panes else table
        self._dirty.update(added.counts)
        self._rejected.update(reason for _, reason in added.rejected)
        self._next, self._newest_ms = following, newest_ms
        rejected = tuple((accepted[offset - first], reason) for offset, reason in added.rejected)
        return FoldResult(len(accepted), added.reports, redelivered, rejected, gap)

    def jump(self, offset: int) -> None:
        """Go on at another offset, because the broker has confirmed that no record lies between.

        Forwards when the records in between have expired; backwards when the log's end lies below the next offset, since
        the broker has lost records that were counted.
        """
        self._next = offset

    def changes(self) -> Checkpoint | None:
        """What has to be written to the store, starting from `stored_offset`; None if nothing.

        The checkpoint stays as it is while the fold goes on.
        """
        if self._next == (self._stored or 0):
            return None
        dirty: dict[PaneKey, CountTable] = {key: self._panes[key] for key in self._dirty}
        return Checkpoint(self._next, self._newest_ms, dirty, dict(self._rejected))

    def committed(self, change: Checkpoint) -> None:
        """The store has written that change. Panes that can change no more leave memory."""
        self._stored = change.next_offset
        for key, table in change.panes.items():
            if self._panes[key] is table:  # else it has changed since
                self._dirty.discard(key)
        first = first_open_step(self._survey, self._newest_ms)
        for key in [key for key in self._panes if key.step < first and key not in self._dirty]:
            del self._panes[key]
