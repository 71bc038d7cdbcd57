"""Compares the fold of a partition, under every kind of fault, with a direct tally of the partition's log."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream.agents import PartitionFold, Record, tally
from ldpstream.engines import Checkpoint, PaneKey
from ldpstream.surveys import REASONS
from tests.faults.memory_store import MemoryCountStore

from .samples import during, make_log, make_survey, sound

SURVEY = make_survey()
LOG = make_log(SURVEY, np.random.default_rng(7), length=60, steps=8)


def steadied(records: list[Record]) -> list[Record]:
    """Returns the records, each with the latest append time up to that record."""
    times = np.maximum.accumulate([record.appended_ms for record in records])
    return [record._replace(appended_ms=int(time)) for record, time in zip(records, times)]


def expected(records: list[Record]) -> Checkpoint:
    """Returns the checkpoint that the store must hold in the end."""
    direct = tally(SURVEY, steadied(records))
    reasons = [reason for _, reason in direct.rejected]
    times = [record.appended_ms for record in records]
    totals = {reason: reasons.count(reason) for reason in REASONS if reason in reasons}
    return Checkpoint(len(records), max(times), direct.counts, totals)


class Owner:
    """An agent reduced to the fold of one partition, without log or clock."""

    def __init__(self, store: MemoryCountStore) -> None:
        self.store = store
        self.restart()

    def restart(self) -> None:
        self.fold = PartitionFold(SURVEY, self.store.load(0))

    def deliver(self, log: list[Record], first: int, last: int) -> None:
        result = self.fold.feed(log[first:last])
        if result.gap is not None:
            before = self.fold.next_offset
            assert result.gap == (before, max(first, before + 1))
            again = self.fold.feed(log[before:last])
            assert again.gap is None

    def commit(self) -> None:
        change = self.fold.changes()
        if change is None:
            return
        if self.store.commit(0, self.fold.stored_position, change):
            self.fold.committed(change)
        else:
            self.restart()

    def commit_unanswered(self) -> None:
        """The store writes the change, but the store's answer is lost."""
        if (change := self.fold.changes()) is not None:
            self.store.commit(0, self.fold.stored_position, change)

    def commit_late(self, log: list[Record], first: int, last: int) -> None:
        """The fold counts more records while the store writes."""
        change, stored = self.fold.changes(), self.fold.stored_position
        self.deliver(log, first, last)
        if change is not None and self.store.commit(0, stored, change):
            self.fold.committed(change)


OPERATIONS = st.tuples(
    st.sampled_from(["deliver", "commit", "commit_unanswered", "commit_late", "restart"]),
    st.integers(0, 1),  # one of two agents, which both believe that they own the partition
    st.integers(0, len(LOG)),
    st.integers(0, 20),
)


@given(st.lists(OPERATIONS, max_size=40), st.lists(st.integers(-15_000, 15_000), min_size=len(LOG), max_size=len(LOG)))
@settings(max_examples=200)
def test_random_faults_never_change_the_counts(operations: list[tuple[str, int, int, int]], jitter: list[int]) -> None:
    """The faults: redeliveries, gaps, crashes, lost answers, two owners, and a broker's clock that steps back."""
    log = [record._replace(appended_ms=record.appended_ms + ms) for record, ms in zip(LOG, jitter)]
    store = MemoryCountStore(SURVEY)
    owners = [Owner(store), Owner(store)]
    for name, who, first, length in operations:
        owner = owners[who]
        if name in ("deliver", "commit_late"):
            getattr(owner, name)(log, first, first + length)
        else:
            getattr(owner, name)()
    last = Owner(store)
    last.deliver(log, 0, len(log))
    last.commit()
    assert store.snapshot()[0] == expected(log)


def test_results_report_each_outcome() -> None:
    fold = PartitionFold(SURVEY, None)
    whole = tally(SURVEY, LOG[:10])
    result = fold.feed(LOG[:10])
    assert (result.records, result.reports, result.redelivered, result.gap) == (10, whole.reports, 0, None)
    assert [(record.offset, reason) for record, reason in result.rejected] == whole.rejected
    assert all(record.value == LOG[record.offset].value for record, _ in result.rejected)
    assert fold.feed(LOG[5:12]).redelivered == 5
    assert fold.feed(LOG[14:16]).gap == (12, 14)
    assert fold.next_offset == 12
    fold.lose(14)
    assert fold.feed(LOG[14:16]).records == 2


@pytest.mark.parametrize(
    ("offset", "n", "then", "gap"),
    [(3, 1, 4, None), (3, 5, 8, None), (1, 3, 4, None), (0, 3, 3, None), (0, 1, 3, None), (5, 1, 3, (3, 5))],
)
def test_markers_are_skipped(offset: int, n: int, then: int, gap: tuple[int, int] | None) -> None:
    """Markers advance the position and change nothing else. Markers beyond the expected offset are a gap."""
    fold, other = PartitionFold(SURVEY, None), PartitionFold(SURVEY, None)
    fold.feed(LOG[:3])
    other.feed(LOG[:3])
    other._next = then
    result = fold.skip(Record(offset, 0, b""), n)
    assert (result.records, result.reports, result.redelivered, result.rejected, result.gap) == (0, 0, 0, (), gap)
    assert (fold.next_offset, fold.changes()) == (then, other.changes())


def test_a_gap_in_a_delivery_ends_it() -> None:
    fold = PartitionFold(SURVEY, None)
    result = fold.feed(LOG[:3] + LOG[5:8])
    assert (result.records, result.gap, fold.next_offset) == (3, (3, 5), 3)


@pytest.mark.parametrize("first", [0, 10, 12, 19, 20, 30])
def test_all_records_of_an_unreadable_batch_are_rejected(first: int) -> None:
    """Counting may start at any record of the batch. A batch beyond the expected offset is a gap."""
    fold = PartitionFold(SURVEY, Checkpoint(first, 5) if first else None)
    fold.feed(LOG[first:10])
    stand_in = Record(10, LOG[12].appended_ms, b"the batch")
    result = fold.refuse(stand_in, 10, "too large")
    left = 20 - max(first, 10)
    if left <= 0:
        assert (result.records, result.redelivered, result.rejected, result.gap) == (0, 10, (), None)
        assert fold.changes() is None
        return
    assert (result.records, result.redelivered, result.gap) == (left, 10 - left, None)
    assert result.rejected == ((stand_in, "too large"),)
    whole, expect = fold.changes(), tally(SURVEY, steadied(LOG[first:10]))
    assert whole is not None
    assert (whole.next_offset, whole.newest_ms, whole.panes) == (20, stand_in.appended_ms, expect.counts)
    assert whole.rejected["too large"] == left + [reason for _, reason in expect.rejected].count("too large")
    assert fold.refuse(Record(22, 0, b""), 3, "too large").gap == (20, 22)
    assert fold.feed(LOG[20:25]).records == 5


def test_a_log_is_counted_from_its_first_offset() -> None:
    fold = PartitionFold(SURVEY, None, begin=20)
    assert fold.feed(LOG[20:30]).records == 10
    store = MemoryCountStore(SURVEY)
    change = fold.changes()
    assert change is not None
    assert store.commit(0, fold.stored_position, change)
    assert store.positions() == {0: 30}


def test_a_fold_without_new_records_has_no_changes() -> None:
    fold = PartitionFold(SURVEY, Checkpoint(4))
    assert fold.changes() is None
    fold.feed(LOG[:4])
    assert fold.changes() is None
    fold.feed(LOG[:5])
    change = fold.changes()
    assert change is not None
    fold.committed(change)
    assert fold.changes() is None


def test_changes_hold_only_changed_panes_and_stay_fixed() -> None:
    rng = np.random.default_rng(11)
    records = [Record(i, during(SURVEY, 0), sound(SURVEY, rng, 0, pane)) for i, pane in enumerate([0, 1, 0])]
    fold = PartitionFold(SURVEY, None)
    fold.feed(records[:2])
    first = fold.changes()
    assert first is not None
    fold.feed(records[2:])  # while the first change is being written
    assert first.panes == tally(SURVEY, records[:2]).counts
    fold.committed(first)
    second = fold.changes()
    assert second is not None
    assert set(second.panes) == {PaneKey(0, 0, 0)}
    assert second.panes[PaneKey(0, 0, 0)].n == 2


@pytest.mark.parametrize("commit_every", [1, 7])
def test_memory_holds_only_open_panes(commit_every: int) -> None:
    rng = np.random.default_rng(13)
    fold, steps = PartitionFold(SURVEY, None), 50
    largest = 0
    for step in range(steps):
        fold.feed([Record(3 * step + pane, during(SURVEY, step), sound(SURVEY, rng, step, pane)) for pane in range(3)])
        if step % commit_every == 0:
            change = fold.changes()
            assert change is not None
            fold.committed(change)
            largest = max(largest, len(fold._panes))
    assert largest <= 3 * (SURVEY.lateness_steps + 1)
