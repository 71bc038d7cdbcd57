"""Comparisons of advice with fixed choices are complete and reproducible, and the command prints their tables."""

import pytest

from lab.bench import advice as advice_gain
from lab.bench.advice import PAPERS, Case, Compared, Setting, best_fixed, compared, gain, gains
from ldpstream.mechanisms import LONGITUDINAL, ONE_TIME

SMALL = Case(name="small", counts=[500, 200, 100], real=False)


def row(case: str, mse: dict[str, float]) -> Compared:
    return Compared(case=case, kind="one-time", eps=1.0, k=3, n=10, advice="A eb", mse=mse)


ROWS = [
    row("x", {"A eb": 1.0, "B ibu": 4.0, "C mle": 0.5}),
    row("y", {"A eb": 1.0, "B ibu": 1.0, "C mle": 9.0}),
    row("z", {"A eb": 1.0, "B ibu": 0.5, "C mle": 9.0}),
]


def test_a_gain_is_a_mean_of_ratios_and_names_the_worst() -> None:
    found = gain(ROWS, "B ibu")
    assert found.gain == pytest.approx(2 ** (1 / 3))
    assert found.better == pytest.approx(1 / 3)
    assert (found.least, found.where) == (0.5, "z, 1")
    assert best_fixed(ROWS) == "A eb"
    own = gain(ROWS, "", lambda r: min(r.mse, key=lambda name: r.mse[name]))
    assert own.gain == pytest.approx(0.25 ** (1 / 3))


@pytest.mark.parametrize("kind", advice_gain.KINDS)
def test_a_setting_is_compared_with_every_combination(kind: str) -> None:
    found = compared(Setting(case=SMALL, kind=kind, eps=1.0), 2, 4)
    names = ONE_TIME if kind == "one-time" else LONGITUDINAL
    assert len(found.mse) == len(names) * 11
    assert set(PAPERS[kind]) < set(found.mse)
    assert found.advice in ("GRR eb", "L-GRR eb")
    assert (found.n, found.case) == (800, "small (generated)")
    shown = gains([found], kind)
    assert len(shown) == len(PAPERS[kind]) + 2
    assert shown[-1].gain <= 1
    assert found == compared(Setting(case=SMALL, kind=kind, eps=1.0), 2, 4)
