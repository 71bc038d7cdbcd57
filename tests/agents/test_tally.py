"""The tally against a direct count, one envelope at a time."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import PaneKey, Record, Tally, tally
from mechanisms import CountTable
from surveys import REASONS, Reason, Rejected, Survey, open_envelope

from .samples import PANES, during, make_survey, sound, spoilt

SURVEY = make_survey()


@cache
def pool() -> list[bytes]:
    """Envelopes of steps 0 to 2, sound ones of 1 to 4 reports and one spoilt for every reason."""
    rng = np.random.default_rng(20260105)
    envelopes = [sound(SURVEY, rng, step, pane, n) for step in range(3) for pane in range(len(PANES)) for n in (1, 4)]
    return envelopes + [spoilt(SURVEY, rng, 1, reason) for reason in REASONS]


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    chosen = draw(st.lists(st.integers(0, len(pool()) - 1), max_size=25))
    times = st.integers(during(SURVEY, 0), during(SURVEY, 3))
    return [Record(offset, draw(times), pool()[index]) for offset, index in enumerate(chosen)]


def count_one_by_one(survey: Survey, records: list[Record]) -> Tally:
    """The same by the definition: every envelope by itself, every row looked at."""
    counts: dict[PaneKey, CountTable] = {}
    rejected: list[tuple[int, Reason]] = []
    for record in records:
        try:
            envelope = open_envelope(survey, record.value, record.appended_ms)
        except Rejected as reason:
            rejected.append((record.offset, reason.reason))
            continue
        mechanism = survey.mechanisms[envelope.attribute][envelope.level]
        row = mechanism.report_dtype
        reports = np.frombuffer(envelope.payload, row.base).reshape(-1, *row.shape)
        if not mechanism.valid(reports).all():
            rejected.append((record.offset, mechanism.invalid))
            continue
        key = PaneKey(envelope.attribute, envelope.level, envelope.step)
        counts[key] = counts.get(key, mechanism.empty_table()) + mechanism.tabulate(reports)
    return Tally(counts, rejected)


@given(batches())
@settings(deadline=None)
def test_equals_a_count_one_by_one(records: list[Record]) -> None:
    assert tally(SURVEY, records) == count_one_by_one(SURVEY, records)


@given(batches(), batches())
@settings(deadline=None)
def test_is_additive(a: list[Record], b: list[Record]) -> None:
    assert tally(SURVEY, a + b) == tally(SURVEY, a) + tally(SURVEY, b)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_told_and_changes_no_count(reason: Reason) -> None:
    rng = np.random.default_rng(1)
    good = [sound(SURVEY, rng, 5, pane, n=3) for pane in range(len(PANES))]
    bad = spoilt(SURVEY, rng, 5, reason)
    with_it = [Record(offset, during(SURVEY, 5), value) for offset, value in enumerate([good[0], bad, *good[1:]])]
    without = [record for record in with_it if record.value is not bad]
    assert tally(SURVEY, with_it).rejected == [(1, reason)]
    assert tally(SURVEY, with_it).counts == tally(SURVEY, without).counts


def test_rejections_keep_the_order_of_the_records() -> None:
    """Some are found when an envelope is opened and some when the rows of a pane are counted."""
    rng = np.random.default_rng(2)
    reasons: list[Reason] = ["padding bits set", "undecodable", "symbol out of range", "padding bits set", "wrong survey"]
    records = [Record(7 + i, during(SURVEY, 2), spoilt(SURVEY, rng, 2, reason)) for i, reason in enumerate(reasons)]
    assert tally(SURVEY, records).rejected == list(enumerate(reasons, start=7))


def test_nothing_adds_nothing() -> None:
    rng = np.random.default_rng(3)
    some = tally(SURVEY, [Record(0, during(SURVEY, 0), sound(SURVEY, rng, 0, 0))])
    assert tally(SURVEY, []) == Tally()
    assert some + Tally() == some == Tally() + some
    assert some.reports == 1
