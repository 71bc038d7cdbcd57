"""The conformance check passes correct devices and fails devices with one fault each.

All seeds are fixed. With another seed, a run on a correct device would fail with probability at most 0.001.
"""

from collections.abc import Iterator
from random import Random

import pytest

from devices.conformance.calls import Call, ConformanceError
from devices.conformance.choices import MOST_TOGETHER, _twos
from devices.conformance.conformance import check_device
from devices.conformance.rules import read_key
from ldpstream.mechanisms import NAMES, Mechanism
from ldpstream.surveys import Survey
from tests.pair_survey import BOTH, MODE, ZONE
from tests.producers.samples import level, make_survey, one_question
from tests.small_survey import small_survey

from .faulty_devices import (
    BiasedFloyd,
    BiasedModulo,
    BothAttributes,
    EachAttributeTrueByItself,
    FewFunctions,
    FirstAttribute,
    FreshFunction,
    FreshKeyAtARetry,
    FreshMemo,
    FreshReportAtARetry,
    HexKey,
    KeptFunction,
    LastBitInClear,
    MemoSent,
    NoFakes,
    NoLifetime,
    OneCoinForTwoBits,
    OneDrawForAllAttributes,
    OnePhase,
    OnePhaseForAllAttributes,
    OtherCellsFromTheValue,
    Skips,
    TwoReportsInAWindow,
    WaveAroundTheValue,
    WeakKey,
    WrongHash,
    WrongOdds,
    WrongP,
    WrongStep,
)
from .foreign_device import ForeignDevice, Row, calls
from .leaking_devices import LEAKS, MemosOfValues

SPACED = {"name": "GRR", "mechanism": "GRR", "eps": 2.0, "every_steps": 3, "lifetime_reports": 2}


def survey_of(name: str, collection: str = "smp", k: int = 6) -> Survey:
    """A survey of one attribute; of two for the other ways of collecting. With these losses, few devices are enough."""
    return make_survey({f"a{i}": (k, [level(name, 3.0, 1.9)]) for i in range(1 + (collection != "smp"))}, collection)


# ---- correct devices


@pytest.mark.parametrize("name", NAMES)
def test_a_correct_device_passes(name: str) -> None:
    survey = survey_of(name)
    found = check_device(survey, calls(survey, ForeignDevice, 1300))
    assert found.failures == []
    assert all(b.bound is not None and b.bound < b.claimed for b in found.bounds)


@pytest.mark.parametrize(
    ("name", "collection", "n"),
    [
        ("L-GRR", "spl", 1500), ("L-OSUE", "spl", 1500), ("OLH", "spl", 1500),
        ("SW", "spl", 1500), ("SW", "rs+fd", 5000), ("SS", "rs+fd", 2500), ("L-OSUE", "rs+fd", 4000), ("L-OLH", "rs+fd", 4000),
    ],
)  # fmt: skip
def test_a_correct_device_passes_under_every_way_of_collecting(name: str, collection: str, n: int) -> None:
    survey = survey_of(name, collection)
    assert check_device(survey, calls(survey, ForeignDevice, n, 2 if collection == "rs+fd" else 4, seed=2)).failures == []


def test_a_correct_device_with_phases_levels_and_several_attributes_passes() -> None:
    survey = make_survey({"a": (4, [SPACED, level("L-GRR", 3.0, 1.9)]), "b": (4, [SPACED])}, "smp")
    found = check_device(survey, calls(survey, ForeignDevice, 3000, steps=8))
    assert found.failures == []
    assert {"phase", "sampled attribute"} <= {one.check for one in found.tested}


@pytest.mark.parametrize("collection", ["smp", "rs+fd"])
def test_a_correct_device_passes_with_values_that_often_share_a_memo(collection: str) -> None:
    """A device reports two values here, and three reports come from one memo only if both values have one hash."""
    survey = survey_of("L-BLH", collection, k=2)
    found = check_device(survey, calls(survey, ForeignDevice, 3000, steps=3, seed=2))
    assert found.failures == []


PAIR_LEVEL = {"name": "standard", "mechanism": "L-GRR", "eps_inf": 10.5, "eps_1": 8.1}
PAIRED = small_survey(*({**asked, "level": [PAIR_LEVEL]} for asked in (MODE, ZONE, BOTH)), collection="spl")


def answered(n: int, turned: bool) -> Iterator[Call]:
    """The calls of n devices of a survey with a pair, two runs of each identity. With `turned` they exchange its two values."""
    random = Random(5)
    for number in range(n):
        identity, run = divmod(number, 2)
        device = ForeignDevice(PAIRED, random, identity=identity)
        for step in range(3):
            one, other = (identity + step // 2) % 3, (identity // 3 + step // 2) % 3
            told = one, other, one + 3 * other if turned else 3 * one + other
            for a, value in enumerate((one, other, 3 * one + other)):
                envelope, key = device.report(a, told[a], step) or (None, None)
                yield Call(f"device {number}", str(identity), a, value, step, envelope, key, run=run)


@pytest.mark.parametrize("turned", [False, True])
def test_a_device_with_a_pair_is_checked_and_audited(turned: bool) -> None:
    found = check_device(PAIRED, answered(3000, turned))
    audited = {bound.place for bound in found.bounds if bound.bound is not None}
    assert audited == {f"{name}, standard" for name in ("mode", "zone", "mode_by_zone")}
    assert bool(found.failures) is turned, found.failures
    assert all("mode_by_zone" in failure for failure in found.failures)


@pytest.mark.parametrize(("levels", "compared"), [(1, 0), (2, 1), (MOST_TOGETHER, 435), (MOST_TOGETHER + 1, 30)])
def test_many_levels_are_compared_with_their_neighbours_alone(levels: int, compared: int) -> None:
    assert len(list(_twos(list(range(levels))))) == compared


def test_p_values_of_correct_devices_are_not_too_small() -> None:
    """A wrong formula with a small error would pass one run: of 68 checks, few may have a p-value below 0.01."""
    worst = []
    for seed in range(5):
        survey = survey_of("L-OSUE" if seed % 2 else "L-GRR")
        found = check_device(survey, calls(survey, ForeignDevice, 700, seed=10 + seed))
        worst += [one.p_value for one in found.tested if one.tests == 1]
    assert len(worst) > 30
    assert sum(p < 0.01 for p in worst) <= 4  # binomial(68, 0.01) is above 4 with probability 0.0006


# ---- devices with a fault


L_GRR, L_OSUE, L_OLH, OLH, SS = (survey_of(name) for name in ("L-GRR", "L-OSUE", "L-OLH", "OLH", "SS"))
OUE, GRR = survey_of("OUE"), survey_of("GRR")
EVEN, WAVE, FAKE_WAVE = survey_of("GRR", k=12), survey_of("SW", k=24), survey_of("SW", "rs+fd")
PHASES = make_survey({"a": (4, [SPACED])})
TWO_PHASES = make_survey({f"a{i}": (4, [SPACED]) for i in range(2)}, "spl")
TWO = make_survey({"a": (4, [level("GRR")]), "b": (4, [level("GRR")])})
FAKES, FAKE_GRR, SPLIT = survey_of("L-OSUE", "rs+fd"), survey_of("GRR", "rs+fd", k=3), survey_of("L-GRR", "spl")

TWO_SIZES = make_survey({"a": (14, [{**level("L-SS", 3.2, 1.2), "memo_size": 2}])})  # reports of three values

FAULTS: list[tuple[type[ForeignDevice], Survey, str]] = [
    (WrongP, L_GRR, "support the device's value"),
    (WrongP, L_OSUE, "support the device's value"),
    (WrongP, L_OLH, "support the device's value"),
    (WrongP, SS, "support the device's value"),
    (FreshMemo, L_GRR, "first two reports of a value"),
    (FreshMemo, L_OSUE, "first two reports of a value: other bits set in both"),
    (FreshMemo, L_OLH, "first two reports of a value"),
    (MemoSent, L_GRR, "equal reports"),
    (MemoSent, OUE, "first two reports of a value: both support the value"),
    (FreshFunction, L_OLH, "must keep its hash function"),
    (FewFunctions, L_OLH, "number of the hash function"),
    (KeptFunction, OLH, "two reports with one hash function"),
    (OneCoinForTwoBits, L_OSUE, "both set"),
    (WrongHash, L_OLH, "support"),
    (BiasedModulo, EVEN, "which other symbol"),
    (BiasedModulo, L_GRR, "which other symbol"),
    (LastBitInClear, OUE, "for each value"),
    (FreshMemo, TWO_SIZES, "first and last reports of a value: both support the value"),
    (WrongOdds, TWO_SIZES, "support the device's value"),
    (BiasedFloyd, TWO_SIZES, "support another value, for each value"),
    (WrongP, WAVE, "support the device's value"),
    (MemoSent, WAVE, "equal reports"),
    (BiasedModulo, WAVE, "which cell near the value"),
    (WaveAroundTheValue, WAVE, "for each value"),
    (OtherCellsFromTheValue, WAVE, "which other cell, from the value"),
    (NoFakes, FAKE_WAVE, "support the device's value"),
    (TwoReportsInAWindow, PHASES, "multiples of every_steps = 3"),
    (OnePhase, PHASES, "phase"),
    (NoLifetime, PHASES, "at most 2 reports (lifetime_reports)"),
    (Skips, L_GRR, "made no report at a step at which it reports"),
    (FirstAttribute, TWO, "sampled attribute"),
    (BothAttributes, TWO, "only one attribute"),
    (NoFakes, FAKES, "support the device's value"),
    (EachAttributeTrueByItself, FAKE_GRR, "both attributes"),
    (OneDrawForAllAttributes, SPLIT, "both attributes"),
    (OnePhaseForAllAttributes, TWO_PHASES, "a0 and a1: equal phases"),
    (WrongStep, GRR, "another attribute or step than the call"),
    (HexKey, GRR, "22 letters"),
    (WeakKey, GRR, "bits of keys"),
]


@pytest.mark.parametrize(("kind", "survey", "finding"), FAULTS, ids=lambda x: x.__name__ if isinstance(x, type) else None)
def test_every_fault_is_found(kind: type[ForeignDevice], survey: Survey, finding: str) -> None:
    n, steps = {"smp": (800, 4), "spl": (1500, 4), "rs+fd": (2500, 2)}[survey.collection]
    n = 2500 if survey is TWO_SIZES else n
    found = check_device(survey, calls(survey, kind, n, 9 if survey is PHASES else steps))
    assert any(finding in failure for failure in found.failures), found.failures
    assert not found.passed


@pytest.mark.parametrize(("kind", "survey", "finding"), LEAKS, ids=lambda x: x.__name__ if isinstance(x, type) else None)
def test_every_leak_is_found(kind: type[ForeignDevice], survey: Survey, finding: str) -> None:
    n = {"BiasedCoins": 5000, "CoinsBiasedByTenPercent": 2000, "MemosOfValues": 4000}.get(kind.__name__, 800)
    failures = check_device(survey, calls(survey, kind, n, 4 if kind is MemosOfValues else 8)).failures
    assert any(finding in failure for failure in failures), failures


@pytest.mark.parametrize("kind", [FreshKeyAtARetry, FreshReportAtARetry])
def test_a_retry_must_repeat_the_envelope_and_its_key(kind: type[ForeignDevice]) -> None:
    def twice(device: type[ForeignDevice]) -> Iterator[Call]:
        made = device(GRR, Random(1))
        for _ in range(2):
            envelope, key = made.report(0, 3, 0) or (None, None)
            yield Call("call", "d", 0, 3, 0, envelope, key)

    rule = "a repeated call for a step must return the same envelope and key"
    assert check_device(GRR, twice(kind)).failures == [f"call: {rule}"]
    with pytest.raises(ConformanceError, match="too few independent reports"):
        check_device(GRR, twice(ForeignDevice))


def test_the_audit_finds_a_loss_above_the_claim() -> None:
    """A device with eight times the stated ε: the lower bound of the loss is above the claim, whatever other checks find."""
    stated, real = (one_question("GRR", k=4, eps_1=eps) for eps in (0.5, 4.0))

    class Louder(ForeignDevice):
        def once(self, m: Mechanism, value: int) -> Row:
            return super().once(real.mechanisms[0][0], value)

    found = check_device(stated, calls(stated, Louder, 2000))
    assert [bound.kept for bound in found.bounds] == [False, False]
    assert "claimed 0.500" in found.failures[-2]


def test_a_refused_envelope_is_a_fault() -> None:
    other = one_question("GRR", k=5)
    made = list(calls(other, ForeignDevice, 3, steps=1))
    failures = check_device(GRR, made).failures
    assert failures == ["device 0 step 0: the service would reject the envelope: wrong survey (and 2 more)"]


# ---- no verdict


def test_too_few_reports_give_no_verdict() -> None:
    with pytest.raises(ConformanceError, match=r"too few independent reports of a0, L-GRR for a verdict: 40, needs about \d+"):
        check_device(L_GRR, calls(L_GRR, ForeignDevice, 20))
    with pytest.raises(ConformanceError, match="too few repeated reports of one value by one device of a0, L-GRR"):
        check_device(L_GRR, calls(L_GRR, ForeignDevice, 2000, steps=1))
    with pytest.raises(ConformanceError, match="no calls"):
        check_device(L_GRR, [])


@pytest.mark.parametrize("key", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "+" * 22, "é" * 22, "A" * 22 + "=="])
def test_a_key_has_one_spelling(key: str) -> None:
    assert read_key(key) is None
    assert read_key("A" * 22) == bytes(16)
