"""Compares the fold of a partition, under every kind of fault, with a direct tally of the partition's log."""

import numpy as np
import pytest

from ldpstream.agents import PartitionFold, Record, tally
from ldpstream.engines import Checkpoint

from .samples import during, make_log, make_survey, sound

SURVEY = make_survey()
LOG = make_log(SURVEY, np.random.default_rng(7), length=60, steps=8)


def steadied(records: list[Record]) -> list[Record]:
    """Returns the records, each with the latest append time up to that record."""
    times = np.maximum.accumulate([record.appended_ms for record in records])
    return [record._replace(appended_ms=int(time)) for record, time in zip(records, times)]


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
    result = fold.pass_over(stand_in, 10, "too large")
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
    assert fold.pass_over(Record(22, 0, b""), 3, "too large").gap == (20, 22)
    assert fold.feed(LOG[20:25]).records == 5


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
