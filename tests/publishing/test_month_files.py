"""Files of estimates: rows, months, and which publication stays."""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication, Span
from ldpstream.publishing.history.month_files import SCHEMA, MonthFileError, MonthFiles, merged, month_of, rows_of
from tests.small_survey import small_survey

SURVEY = small_survey(
    {"name": "a", "values": ["x", 'quote", comma', "=1+1"], "level": [{"name": "l", "mechanism": "GRR", "eps": 1.0}]},
    name="months", start=datetime(2026, 1, 31, 22, tzinfo=UTC), step_seconds=3600, lateness_steps=1,
)  # fmt: skip
M = SURVEY.mechanisms[0][0]


def publication(step: int, counts: list[int], complete: bool = True, span: Span = "step") -> Publication:
    table = M.table(sum(counts), np.array(counts))
    return conclude(SURVEY, 0, step, span, [[table]], complete)


def test_a_file_has_every_number_of_the_publications(tmp_path: Path) -> None:
    published = [publication(0, [50, 30, 20]), publication(1, [0, 0, 0]), publication(1, [70, 20, 10], span="window")]
    files = MonthFiles(tmp_path)
    files.add(month_of(SURVEY, published[0]), rows_of(SURVEY, published))
    rows = files.read(("a", "2026-01"))
    assert rows.schema == SCHEMA
    assert rows.height == sum(len(p.estimators) for p in published) * 3
    assert rows["start"].unique().sort().to_list() == [datetime(2026, 1, 31, hour, tzinfo=UTC) for hour in (22, 23)]
    for p in published:
        for name, found in p.estimators.items():
            own = rows.filter(step=p.step, span=p.span, estimator=name)
            assert own["label"].to_list() == ["x", 'quote", comma', "=1+1"]
            assert own["frequency"].to_list() == found.frequencies
            assert own["standard_error"].to_list() == found.standard_errors
            low, high = found.estimate().interval()
            np.testing.assert_array_equal(own["low"].fill_null(np.nan), low)
            np.testing.assert_array_equal(own["high"].fill_null(np.nan), high)
            assert own["reports"].unique().to_list() == [p.reports]


def test_a_month_is_that_of_the_steps_start() -> None:
    assert [month_of(SURVEY, publication(step, [1, 1, 1])) for step in (0, 1, 2)] == [
        ("a", "2026-01"), ("a", "2026-01"), ("a", "2026-02"),
    ]  # fmt: skip


KINDS = st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans(), st.sampled_from(["step", "window"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS, min_size=1, max_size=12), st.integers(0, 12))
def test_the_best_publication_stays_and_a_repeated_run_changes_nothing(
    kinds: list[tuple[int, int, bool, Span]], cut: int
) -> None:
    """Compares the rows with a dictionary that keeps the last of the best publications under each key."""
    published = [publication(step, [n, 2 * n, i], complete, span) for i, (step, n, complete, span) in enumerate(kinds)]
    best: dict[str, Publication] = {}
    rows = pl.DataFrame(schema=SCHEMA)
    for p in published:
        kept = best.get(p.key)
        if kept is None or (p.complete, p.reports) >= (kept.complete, kept.reports):
            best[p.key] = p
        rows = merged(rows, rows_of(SURVEY, [p]))
    expected = merged(pl.DataFrame(schema=SCHEMA), rows_of(SURVEY, best.values()))
    assert rows.equals(expected)
    for p in published[cut:]:  # a run after a crash
        rows = merged(rows, rows_of(SURVEY, [p]))
    again = {p.key: p for p in best.values()}
    assert rows.select("step", "span", "complete").unique().height == len(again)
    assert rows.equals(expected)


def test_a_crash_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MonthFiles(tmp_path)
    files.add(("a", "2026-01"), rows_of(SURVEY, [publication(0, [1, 2, 3])]))
    before = files.read(("a", "2026-01"))

    def crash(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing, pytest.raises(KeyboardInterrupt):
        crashing.setattr(os, "fsync", crash)
        files.add(("a", "2026-01"), rows_of(SURVEY, [publication(1, [1, 2, 3])]))
    assert files.read(("a", "2026-01")).equals(before)
    files.add(("a", "2026-01"), rows_of(SURVEY, [publication(1, [1, 2, 3])]))
    assert files.read(("a", "2026-01"))["step"].unique().sort().to_list() == [0, 1]


def test_publications_of_another_survey_stay_beside_these() -> None:
    other = msgspec.structs.replace(publication(0, [1, 2, 3]), fingerprint="00" * 8)
    rows = merged(rows_of(SURVEY, [publication(0, [9, 9, 9])]), rows_of(SURVEY, [other]))
    assert set(rows["fingerprint"]) == {SURVEY.fingerprint.hex(), "00" * 8}


def test_the_folder_is_one_table_for_other_tools(tmp_path: Path) -> None:
    files = MonthFiles(tmp_path)
    for p in (publication(0, [1, 2, 3]), publication(2, [1, 2, 3])):
        files.add(month_of(SURVEY, p), rows_of(SURVEY, [p]))
    table = pl.read_parquet(tmp_path / "**/*.parquet", hive_partitioning=True)
    assert table.select("attribute", "month").unique().sort("month").rows() == [("a", "2026-01"), ("a", "2026-02")]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n", b"\xff"])
def test_a_damaged_file_is_refused_and_kept(content: bytes, tmp_path: Path) -> None:
    files, month = MonthFiles(tmp_path), ("a", "2026-01")
    files.path(month).parent.mkdir(parents=True)
    files.path(month).write_bytes(content)
    with pytest.raises(MonthFileError, match=r"estimates\.parquet: is damaged or not written by an export"):
        files.add(month, rows_of(SURVEY, [publication(0, [50, 30, 20])]))
    assert files.path(month).read_bytes() == content
