"""Counting by cohort: the cohorts' tables add up to the tables of a survey without cohorts."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldpstream.agents import Record, Tally, tally
from ldpstream.engines.checkpoint import sum_cohorts
from ldpstream.surveys import Survey

from .samples import PANES, during, make_survey, sound

N_COHORTS = 5
SURVEY, PLAIN = make_survey(cohorts=N_COHORTS), make_survey()


def cohort_of(record: Record) -> int:
    return int(msgspec.msgpack.decode(record.value)[6])


def without_cohort(record: Record) -> Record:
    """The same envelope for the survey without cohorts."""
    fields = msgspec.msgpack.decode(record.value)
    fields[1] = PLAIN.fingerprint
    del fields[6]
    return record._replace(value=msgspec.msgpack.encode(fields))


@st.composite
def mixed(draw: st.DrawFn) -> list[Record]:
    """Valid records of many cohorts, some with equal headers, in any order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = [
        sound(SURVEY, rng, draw(st.integers(0, 2)), draw(st.integers(0, len(PANES) - 1)), draw(st.sampled_from([1, 1, 1, 4])))
        for _ in range(draw(st.integers(0, 60)))
    ]
    return [Record(offset, during(SURVEY, 1), value) for offset, value in enumerate(values)]


@given(mixed())
def test_a_mixed_tally_is_the_tallies_of_the_cohorts(records: list[Record]) -> None:
    apart = [tally(SURVEY, [record for record in records if cohort_of(record) == cohort]) for cohort in range(N_COHORTS)]
    assert tally(SURVEY, records) == sum(apart, Tally())
    assert all({key.cohort for key in one.counts} <= {cohort} for cohort, one in enumerate(apart))


@given(mixed())
def test_the_sum_of_the_cohorts_is_the_tally_without_cohorts(records: list[Record]) -> None:
    assert sum_cohorts(tally(SURVEY, records).counts) == tally(PLAIN, list(map(without_cohort, records))).counts


def test_many_devices_with_few_cohorts_are_counted_together() -> None:
    """More envelopes have equal headers than the tally opens one by one. Every cohort gets its own reports."""
    rng = np.random.default_rng(5)
    records = [Record(offset, during(SURVEY, 0), sound(SURVEY, rng, 0, 0)) for offset in range(500)]
    counts = tally(SURVEY, records).counts
    assert {key.cohort: table.n for key, table in counts.items()} == {
        cohort: sum(cohort_of(record) == cohort for record in records) for cohort in range(N_COHORTS)
    }


@pytest.mark.parametrize("survey", [SURVEY, PLAIN], ids=["a missing cohort", "an unexpected cohort"])
def test_an_envelope_of_the_other_form_is_rejected_and_the_others_count(survey: Survey) -> None:
    rng = np.random.default_rng(7)
    good = [Record(offset, during(survey, 0), sound(survey, rng, 0, 1)) for offset in range(20)]
    fields = msgspec.msgpack.decode(good[3].value)
    fields = [*fields[:6], fields[7]] if survey is SURVEY else [*fields[:6], 0, fields[6]]
    records = [*good[:3], good[3]._replace(value=msgspec.msgpack.encode(fields)), *good[4:]]
    found = tally(survey, records)
    assert (found.reports, found.rejected) == (19, [(3, "unknown cohort")])
