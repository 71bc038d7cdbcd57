"""Tests that the service and the slow reference agree on any input: same counts, or refusal for the same reason."""

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.fuzz.verdict as verdict
from ldpstream.agents.tally import Record, Tally, tally
from ldpstream.surveys import REASONS, Survey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES

from .inputs import MUTATIONS, NOW_MS, STEP, SURVEY, Input, sound
from .run import share
from .verdict import Disagreement, verdicts

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9) | st.binary(max_size=30),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn) -> Input:
    """Generates a sound envelope after up to 4 mutations, each with a seed that hypothesis can shrink."""
    raw = draw(st.sampled_from(sound()))
    for mutate, seed in draw(st.lists(st.tuples(st.sampled_from(MUTATIONS), st.integers(0, 999)), max_size=4)):
        raw = mutate(raw, random.Random(seed))
    return Input(raw, NOW_MS + draw(st.integers(-3, 3)) * SURVEY.step_ms)


@given(damaged())
@settings(max_examples=600)
def test_the_tally_agrees_on_damaged_envelopes(one: Input) -> None:
    verdicts([one])


@given(st.lists(damaged(), max_size=12))
@settings(max_examples=150)
def test_a_batch_counts_the_sum_of_its_envelopes(inputs: list[Input]) -> None:
    verdicts(inputs)
    records = [Record(offset, one.appended_ms, one.value) for offset, one in enumerate(inputs)]
    alone = sum((tally(SURVEY, [record]) for record in records), Tally())
    assert tally(SURVEY, records) == alone
    refused = {offset for offset, _ in alone.rejected}
    assert tally(SURVEY, [record for record in records if record.offset not in refused]).counts == alone.counts


@given(st.binary(max_size=80))
@settings(max_examples=1000)
def test_the_tally_agrees_on_any_bytes(raw: bytes) -> None:
    verdicts([Input(raw, NOW_MS)])


@given(st.lists(VALUES, max_size=9), st.booleans())
@settings(max_examples=300)
def test_the_tally_agrees_on_any_msgpack(values: list[object], begins_well: bool) -> None:
    """Some of the random arrays have the beginning and length of an envelope."""
    if begins_well:
        values = [1, SURVEY.fingerprint, 0, 0, STEP, 1, b"\x01"][: 7 - len(values)] + values
    verdicts([Input(msgspec.msgpack.encode(values), NOW_MS)])


def test_the_runner_reaches_every_reason_and_acceptance() -> None:
    told = share(1, 20_000)
    assert told.total() == 20_000
    assert set(told) == {*REASONS, "accepted", "marker"} - {"too large"}
    assert verdicts([Input(bytes(MAX_ENVELOPE_BYTES + 1), NOW_MS)]) == Counter({"too large": 1})


@pytest.mark.parametrize("fault", ["counts padding", "forgets a report", "another reason", "raises"])
def test_a_fault_in_the_service_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the fuzzer must find faulty tallies that only a few inputs reveal."""

    def faulty(survey: Survey, records: list[Record]) -> Tally:
        found = tally(survey, records)
        reasons = [reason for _, reason in found.rejected]
        if fault == "raises" and "wrong length" in reasons:
            raise ValueError("cannot reshape")
        if fault == "another reason":
            return Tally(found.counts, [(o, "undecodable" if r == "unknown version" else r) for o, r in found.rejected])
        if fault == "counts padding" and "padding bits set" in reasons:
            return Tally(found.counts, [(o, r) for o, r in found.rejected if r != "padding bits set"])
        if fault == "forgets a report" and len(found.counts) > 1:
            return Tally(dict(list(found.counts.items())[1:]), found.rejected)
        return found

    monkeypatch.setattr(verdict, "tally", faulty)
    with pytest.raises(Disagreement):
        share(2, 5_000)
