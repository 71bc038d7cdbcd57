"""Compares what docs/explained/privacy.md says about the second promise with the code and its tests."""

import pytest

from lab.bench.shuffled_attack import DELTA as ATTACKED
from lab.bench.shuffled_attack import SETTINGS
from ldpstream.mechanisms.claims.guessing import Chance, percent, percent_up
from ldpstream.mechanisms.wording import up
from ldpstream.promises.crowds import DELTA
from ldpstream.promises.second_promise import loss_up, second_promise
from tests.docs.test_privacy import COMMUTE, DISTANCE, MODE, PLAIN, TEXT, cells

SECTION = TEXT[TEXT.index("\n## The second promise\n") :]


@pytest.mark.parametrize(
    ("label", "honest"),
    [
        ("20,000 people", 20_000), ("20,000 people, 10,000 of them collude", 10_000), ("100,000 people", 100_000),
        ("1,000,000 people", 1_000_000),
    ],
)  # fmt: skip
def test_both_promises_of_the_commute_survey(label: str, honest: int) -> None:
    rows = [row for row in second_promise(COMMUTE, honest) if row.span != "window"]
    first, second = list[str](), list[str]()
    for row in rows:
        first += [f"{row.eps_everybody:.4g}", str(Chance(row.guess_everybody, exact=row.guess_everybody_exact))]
        second += [f"≤ {loss_up(row.eps_in_crowd)}", f"≤ {percent_up(row.guess_in_crowd)}"]
    assert cells(SECTION, "first: against everybody") == first
    assert cells(SECTION, f"second: {label}") == second
    assert cells(SECTION, "without a report") == [x for m in (DISTANCE, DISTANCE, MODE, MODE) for x in ("0", percent(1 / m.k))]
    assert f"plus δ = {DELTA:.9f}" in SECTION
    if honest == 20_000:
        distance, mode = rows[0].crowd, rows[-1].crowd
        assert (
            f"at least {mode:,} hide one another at a step of `mode`, and at least {distance:,} at a step of `distance_km`"
            in PLAIN
        )


def test_small_crowds() -> None:
    crowds = [
        int(cell.replace(",", "")) for cell in cells(SECTION.replace("\n  |", "\n|"), "honest reports of `mode` at each step")
    ]
    found = [MODE.claims.shuffled(8, n, DELTA) for n in crowds]
    assert cells(SECTION.replace("\n  |", "\n|"), "loss, at most") == [loss_up(loss.eps(DELTA)) for loss in found]
    chances = [percent_up(min(loss.guess(MODE.k), MODE.guess(8))) for loss in found]
    assert cells(SECTION.replace("\n  |", "\n|"), "right guess, at most") == chances


def test_the_attacks_stay_below_the_bounds() -> None:
    """The losses that attacks reach are those of one run; the bounds are the code's."""
    for name, m, n, steps in SETTINGS:
        shown, reached, bound, distance = cells(SECTION, name)
        eps = m.claims.shuffled(steps, n, ATTACKED).eps(ATTACKED)
        assert (shown, bound) == (f"{n:,}", up(eps))
        assert float(reached) < eps
        assert float(distance.removesuffix(" %")) == pytest.approx(100 * (eps / float(reached) - 1), abs=0.15)
