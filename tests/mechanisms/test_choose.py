"""The automatic choice takes the most accurate candidate for what a survey publishes, and keeps to `guess_at_most`."""

import math
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.families.memoized_subset import LongitudinalSubset
from ldpstream.mechanisms.registry import AUTO_CANDIDATES, LIKE_VARIANCE, ONCE_CANDIDATES, choose
from ldpstream.promises.promise import promise
from ldpstream.surveys import Survey, SurveyError
from tests.small_survey import small_survey

from .reference import most_values

PAIRS = ((0.5, 0.25), (1.0, 0.5), (2.0, 1.0), (4.0, 2.0), (4.0, 1.0), (3.0, 2.4))


@pytest.mark.parametrize("steps", [1, 8, 24])
def test_auto_takes_the_most_accurate_window_to_one_per_cent(steps: int) -> None:
    """Control: the choice for one step is not the choice for a window in some cases."""
    differ = 0
    for k, (eps_inf, eps_1) in product((2, 3, 5, 7, 10, 20, 31, 50, 100, 200), PAIRS):
        chosen, reason = choose(k, eps_inf=eps_inf, eps_1=eps_1, steps=steps)
        every = [mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1) for name in AUTO_CANDIDATES]
        for sizes in product(range(1, min(k // 2, 3) + 1), range(1, min(k // 2, 14) + 1)):  # all that are near the best
            with suppress(ValueError):
                every.append(LongitudinalSubset(k, eps_inf, eps_1, *sizes))
        assert chosen.variance(steps=steps) <= LIKE_VARIANCE * min(m.variance(steps=steps) for m in every)
        assert reason.startswith(
            f"{chosen.name}: smallest variance of a {'step' if steps == 1 else f'window of {steps} steps'}"
        )
        differ += chosen.name != choose(k, eps_inf=eps_inf, eps_1=eps_1)[0].name
    assert (differ > 0) == (steps > 1)


def test_auto_with_eps_takes_the_most_accurate_report_to_one_per_cent() -> None:
    taken = set()
    for k, eps in product((2, 4, 5, 10, 30, 200, 5000), (0.25, 1.0, 2.0)):
        chosen, _ = choose(k, eps=eps)
        every = [mechanism(name, k, eps=eps) for name in ("GRR", "OLH", "SS", "OUE")]
        assert chosen.variance() <= LIKE_VARIANCE * min(m.variance() for m in every)
        assert mechanism("auto", k, eps=eps).signature == chosen.signature
        taken.add(chosen.name)
    assert taken == set(ONCE_CANDIDATES)
    assert mechanism("auto", 5, eps=1.0, choices=2).name == "PS-GRR"


@pytest.mark.parametrize("losses", [{"eps": 0.4}, {"eps_inf": 2.0, "eps_1": 1.0, "steps": 1000}], ids=str)
def test_auto_takes_no_report_of_more_than_a_kibibyte_if_it_can(losses: dict[str, Any]) -> None:
    """Of the shorter ones, the most accurate. Control: a long report would be more accurate by more than 1 %."""
    names = AUTO_CANDIDATES if "eps_inf" in losses else ONCE_CANDIDATES
    for k in (1024, 8192, 8193, 10**5):
        every = [mechanism(name, min(k, most_values(name, k)), **losses) for name in names]
        short = [m for m in every if m.k == k and m.report_dtype.itemsize <= 1024]
        steps = losses.get("steps", 1)
        found = choose(k, **losses)[0]
        assert found.report_dtype.itemsize <= 1024
        assert found.variance(steps=steps) <= LIKE_VARIANCE * min(m.variance(steps=steps) for m in short)
    assert found.variance(steps=steps) > LIKE_VARIANCE * min(m.variance(steps=steps) for m in every if m.k == k)


def test_the_chance_of_a_guess_is_at_most_the_given_one() -> None:
    """At the least possible chance, memos of half of the values are needed; just below it there is one error."""
    free = choose(20, eps_inf=2.0, eps_1=1.0, steps=24)[0]
    assert free.guess(math.inf) > 0.2
    for limit in (0.2, 0.15, 0.1, 0.0881):
        bound = choose(20, eps_inf=2.0, eps_1=1.0, steps=24, guess_at_most=limit)[0]
        assert bound.guess(math.inf) <= limit
    with pytest.raises(ValueError, match=r"guess_at_most must be at least 0.0881 for auto with k=20 and eps_inf=2, got 0.088$"):
        choose(20, eps_inf=2.0, eps_1=1.0, guess_at_most=0.088)


def test_with_eps_the_sets_are_as_large_as_the_chance_needs() -> None:
    """One report of SS with ω values is right with the chance p/ω. All reports together reveal the value without a limit."""
    free, bound = choose(20, eps=2.0)[0], choose(20, eps=2.0, reports=1, guess_at_most=0.15)[0]
    assert free.guess(1) > 0.15 >= bound.guess(1)
    assert bound.name == "SS"
    less = bound.parameters().omega
    assert less is not None
    assert mechanism("SS", 20, eps=2.0, omega=less - 1).guess(1) > 0.15
    assert choose(20, eps=1.0, reports=3, guess_at_most=0.3)[0].guess(3) <= 0.3
    for reports, least in ((math.inf, "1.0000"), (1, "0.0881")):
        with pytest.raises(ValueError, match=rf"guess_at_most must be at least {least} for auto with k=20 and eps=2, got 0.05"):
            choose(20, eps=2.0, reports=reports, guess_at_most=0.05)


@pytest.mark.parametrize(
    "losses", [{}, {"eps": 1.0, "eps_1": 1.0}, {"eps_inf": 2.0}, {"eps": 1.0, "calibration": "exact"}], ids=str
)
def test_auto_needs_one_kind_of_loss(losses: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="auto needs either eps alone, or eps_inf and eps_1"):
        mechanism("auto", 5, **losses)


# ---- in a survey


def level(**keys: object) -> dict[str, object]:
    return {"name": "standard", **keys}


def test_a_survey_chooses_for_its_window_and_keeps_to_the_chance() -> None:
    def asked(**keys: object) -> Survey:
        losses = {"mechanism": "auto", "eps_inf": 2.0, "eps_1": 1.0}
        return small_survey({"name": "a", "size": 10, "level": [level(**losses, **keys)]}, window_steps=24)

    survey, bounded = asked(), asked(guess_at_most=0.3)
    [[free]], [[bound]] = survey.mechanisms, bounded.mechanisms
    assert free.signature == choose(10, eps_inf=2.0, eps_1=1.0, steps=24)[0].signature
    assert any("Chosen for you: L-SS: smallest variance of a window of 24 steps" in line for line in promise(survey))
    assert any("If values change, name L-OLH in its place." in line for line in promise(survey))
    assert bound.guess(math.inf) <= 0.3 < free.guess(math.inf)
    assert "guess_at_most" not in bounded.canonical
    with pytest.raises(SurveyError, match=r"guess_at_most must be at least 0.1762 for auto with k=10 and eps_inf=2, got 0.1"):
        asked(guess_at_most=0.1)


@pytest.mark.parametrize(("keys", "least"), [
    ({"mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0, "guess_at_most": 0.2}, "0.2615 for L-OLH"),
    ({"mechanism": "GRR", "eps": 1.0, "lifetime_reports": 3, "guess_at_most": 0.2}, "for GRR"),
    ({"mechanism": "GRR", "eps": 1.0, "guess_at_most": 0.9}, "1.0000 for GRR"),
])  # fmt: skip
def test_a_named_mechanism_with_a_larger_chance_is_refused(keys: dict[str, object], least: str) -> None:
    with pytest.raises(SurveyError, match=rf"\(a, standard\): guess_at_most must be at least .*{least}"):
        small_survey({"name": "a", "size": 10, "level": [level(**keys)]})
