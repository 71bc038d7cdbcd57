"""The fold of one partition: a pure state machine between the log and the count store.

The fold counts a record once even if the log delivers it twice, and detects missing records. A record that was sent several
times is also counted once, while its report key is remembered (`agents.remembered_keys`). A driver feeds records, writes the
fold's changes to a store, and confirms the writes.

The fold keeps the range of append times of the records that can never be counted (`Missing`).

Append times in the fold never decrease: if a broker's clock steps back, a record gets the newest append time of the earlier
records. A step that is closed for one record is therefore closed for all later records.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ldpstream.agents.remembered_keys import RememberedKeys, tally_once
from ldpstream.agents.tally import Record, Records
from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import MAX_MS, Checkpoint, Missing, first_open_step
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Reason, Survey

STEP_BACK_MS = 5_000
"""Largest step back of a broker's clock, in ms, that the fold allows for while records are lost: the append time of the next
record may be this much before that of the newest lost record. The fold does not notice a larger step back."""


@dataclass(frozen=True, slots=True)
class FoldResult:
    """The result of feeding records.

    Attributes:
        records: number of new records: counted, rejected, duplicates and markers.
        rejected: the rejected records with their reasons, in the order of the log; one entry for a refused batch.
        gap: the expected offset and the higher offset found; None if no record is missing. Records after a gap are ignored.
        duplicates: number of records not counted, because a record with the same report key was counted before.
        not_remembered: number of records counted whose report key is not remembered.
    """

    records: int
    reports: int
    redelivered: int
    rejected: tuple[tuple[Record, Reason], ...] = ()
    gap: tuple[int, int] | None = None
    duplicates: int = 0
    not_remembered: int = 0


class PartitionFold:
    """Counts the records of one partition.

    Args:
        checkpoint: the partition's checkpoint from the store; None if there is none.
        begin: the partition's first offset; counting starts here if there is no checkpoint.
        writer: a name that no other fold has; "" is allowed if the store never loses data.

    Attributes:
        next_offset: the first offset that is not counted.
        stored: the checkpoint as last loaded or written, without panes and keys; None if nothing is stored.
    """

    def __init__(
        self,
        survey: Survey,
        checkpoint: Checkpoint | None,
        begin: int = 0,
        log_id: str = "",
        writer: str = "",
    ) -> None:
        start = Checkpoint(begin, log_id=log_id) if checkpoint is None else checkpoint
        self._survey, self._writer = survey, writer
        self.stored = None if checkpoint is None else replace(checkpoint, panes={}, keys={})
        self.next_offset, self._newest_ms, self._log_id = start.next_offset, start.newest_ms, start.log_id or log_id
        self._missing = start.missing
        self._panes = dict(start.panes)
        self._dirty: set[PaneKey] = set()
        self._dirty_bytes = 0
        self._rejected: Counter[Reason] = Counter(start.rejected)
        self._keys = RememberedKeys(survey, start.keys)
        if checkpoint is None and begin:
            self.lose(begin)

    def of_another_log(self, log_id: str) -> bool:
        """True if `log_id` is known and differs from the id of the log that the fold counts."""
        return log_id not in ("", self._log_id)

    @property
    def stored_position(self) -> tuple[int, str] | None:
        """The next offset and the log's id, as last loaded or written; None if nothing is stored."""
        return None if self.stored is None else self.stored.position

    @property
    def first_open_step(self) -> int:
        return first_open_step(self._survey, self._newest_ms)

    @property
    def loss_is_open(self) -> bool:
        """True if the fold has noted missing records, but has neither written the note nor read a later record."""
        missing, stored = self._missing, self.stored or Checkpoint(0)
        if missing is None or missing == stored.missing:
            return False
        return missing.until_ms == MAX_MS and missing.after_ms <= stored.newest_ms

    def agrees(self, head: Checkpoint | None) -> bool:
        """True if the store still holds the checkpoint that we last loaded or wrote."""
        if head is None or self.stored is None:
            return head is self.stored
        return (head.position, head.writer) == (self.stored.position, self.stored.writer)

    @property
    def dirty_bytes(self) -> int:
        return self._dirty_bytes + self._keys.unwritten_bytes

    def feed(self, records: Sequence[Record]) -> FoldResult:
        """Counts the next records. Skips records that were counted before, and stops at a missing record."""
        batch = Records.of(records)
        redelivered = bisect_left(batch.offsets, self.next_offset)
        batch = batch[redelivered:] if redelivered else batch
        length = _consecutive(batch.offsets, self.next_offset)
        gap = None if length == len(batch) else (self.next_offset + length, batch.offsets[length])
        batch = batch[:length] if gap else batch
        times = list(accumulate(batch.appended_ms, max, initial=self._newest_ms))[1:]
        new = Records(batch.offsets, times, batch.values, batch.keys)
        added, first = tally_once(self._survey, new, self._keys), self.next_offset
        for key, table in added.counts.items():
            self._panes[key] = self._panes[key] + table if key in self._panes else table
            self._mark_dirty(key)
        self._rejected.update(reason for _, reason in added.rejected)
        if new:
            self._advance(times)
        rejected = tuple((new[offset - first], reason) for offset, reason in added.rejected)
        return FoldResult(length, added.reports, redelivered, rejected, gap, added.duplicates, added.not_remembered)

    def pass_over(self, record: Record, n: int, reason: Reason) -> FoldResult:
        """Counts the refused rest of a batch as rejected records.

        Args:
            record: has the first of these records' offsets, and the append time.
            n: number of the records.
        """
        if record.offset > self.next_offset:
            return FoldResult(0, 0, 0, gap=(self.next_offset, record.offset))
        left = max(0, record.offset + n - self.next_offset)
        if not left:
            return FoldResult(0, 0, n)
        self._advance([max(self._newest_ms, record.appended_ms)] * left)
        self._rejected[reason] += left
        return FoldResult(left, 0, n - left, ((record, reason),))

    def _advance(self, times: Sequence[int]) -> None:
        if self._missing is not None and 0 <= (place := self._missing.below_offset - self.next_offset) < len(times):
            self._missing = self._missing._replace(until_ms=min(self._missing.until_ms, not_after(times[place])))
        self.next_offset, self._newest_ms = self.next_offset + len(times), times[-1]

    def lose(self, offset: int) -> None:
        """Continues at another offset, because the log lacks the next offset, and notes the missing records."""
        after_ms = self._newest_ms if self._missing is None else min(self._newest_ms, self._missing.after_ms)
        self._missing = Missing(after_ms, MAX_MS, offset)
        self.next_offset = offset

    def switch_log(self, log_id: str, begin: int) -> None:
        """Starts to count another log from its beginning, after the topic was deleted and recreated.

        Drops the tables of open steps and all report keys, and notes missing records for these steps. Closed steps keep their
        stored counts.

        Args:
            begin: the new log's first offset.
        """
        first = self.first_open_step
        mechanisms, kept = self._survey.mechanisms, [key for key in self._panes if key.step >= first]
        self._panes = {key: mechanisms[key.attribute][key.level].empty_table() for key in kept}
        self._dirty, self._dirty_bytes = set(), 0
        for key in self._panes:
            self._mark_dirty(key)
        self._keys.clear()
        self._log_id = log_id
        self.lose(begin)

    def _mark_dirty(self, key: PaneKey) -> None:
        if key not in self._dirty:
            self._dirty.add(key)
            self._dirty_bytes += self._panes[key].counts.nbytes

    def changes(self) -> Checkpoint | None:
        """Returns the changes to write to the store, starting from `stored_position`; None if nothing has changed.

        Later records do not alter the returned checkpoint.
        """
        if (self.next_offset, self._log_id) == self.stored_position:
            return None
        dirty: dict[PaneKey, CountTable] = {key: self._panes[key] for key in self._dirty}
        n_keys, keys = self._keys.changes(self._newest_ms)
        return Checkpoint(
            self.next_offset, self._newest_ms, dirty, dict(self._rejected), self._log_id, self._missing, self._writer,
            n_keys=n_keys, keys=keys, base_writer="" if self.stored is None else self.stored.writer,
        )  # fmt: skip

    def committed(self, change: Checkpoint) -> None:
        """Marks a change as written to the store, and drops written panes that can no longer change or are empty."""
        self.stored = replace(change, panes={}, keys={})
        for key, table in change.panes.items():
            if self._panes[key] is table:  # otherwise the table has changed since the write began
                self._dirty.discard(key)
                self._dirty_bytes -= table.counts.nbytes
        self._keys.committed(change)
        first = self.first_open_step
        for key in [key for key in self._panes if key not in self._dirty and (key.step < first or not self._panes[key].n)]:
            del self._panes[key]


def not_after(appended_ms: int) -> int:
    """Returns `Missing.until_ms` for lost records that precede a record with this append time, in Unix ms."""
    return appended_ms + STEP_BACK_MS + 1


def _consecutive(offsets: Sequence[int], first: int) -> int:
    n = len(offsets)
    if not n or offsets[-1] == first + n - 1:
        return n
    return bisect_left(range(n), True, key=lambda i: offsets[i] != first + i)
