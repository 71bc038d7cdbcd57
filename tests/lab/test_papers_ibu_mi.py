"""IBU against MI: the transcribed tables, the paper's population, and the effect of the paper's channels for memoized
mechanisms.
"""

import math

import numpy as np
import pytest

from lab.papers import ibu_mi
from lab.papers.ibu_mi import CHAINS, ONE_TIME, TABLES, chance, mean_gain, read
from lab.papers.ibu_runs import LOLOHA_G, build, errors
from lab.papers.reproduction import Plan, Row
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.families.grr import LongitudinalGRR
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing, papers_g


@pytest.mark.parametrize("names", [ONE_TIME, CHAINS])
def test_published_averages_match_published_cells(names: tuple[str, ...]) -> None:
    cells = np.array([TABLES[names][shape] for shape in (*ibu_mi.SHAPES, "Avg.")], float)
    assert cells.shape == (7, 16)
    assert np.abs(cells[:-1].mean(axis=0) - cells[-1]).max() <= 1
    for metric in (0, 1):
        assert np.abs(cells[:, metric:14:2].mean(axis=1) - cells[:, 14 + metric]).max() <= 1.01


def test_the_papers_g_is_rounded_where_floors_are_printed() -> None:
    for eps, g in LOLOHA_G.items():
        a, b = math.exp(2 * eps), math.exp(eps)
        root = math.sqrt(a**4 - 14 * a**2 + 12 * a * b * (1 - a * b) + 12 * a**3 * b + 1)
        quotient = (1 - a**2 + root) / (6 * (a - b))
        assert 1 + max(1, round(quotient)) == g
        assert 1 + max(1, math.floor(quotient)) < g  # the printed value
        assert papers_g(100, 2 * eps, eps) < g


def papers_channel(m: Mechanism) -> tuple[float, float]:
    """The channel's diagonal and its other entries, as the paper's package computes them."""
    if m.name == "SUE":
        return m.p, m.q
    assert isinstance(m, LongitudinalGRR | LongitudinalHashing)
    q1 = m.q1 if isinstance(m, LongitudinalGRR) else 1 / m.g
    return m.p1 * m.p2 + (1 - m.p1) * m.q2, m.p1 * m.q2 + q1 * m.p2


def test_the_papers_channel_of_l_grr_does_not_sum_to_1() -> None:
    m = build("L-GRR", 100, 1.0, "paper")
    p, q = papers_channel(m)
    assert p + 99 * q == pytest.approx(0.115, abs=0.001)
    assert m.p + 99 * m.q == pytest.approx(1)
    assert isinstance(m, LongitudinalGRR)
    printed = m.p1 * m.p2 + m.q1 * m.q2  # in §3.2 of the paper p* lacks (k-2) q₁q₂ too
    assert printed < p
    two = build("L-GRR", 2, 1.0, "paper")
    assert sum(papers_channel(two)) == pytest.approx(1)


@pytest.mark.parametrize("shape", ["Unif.", "Poiss."])
def test_l_grr_has_published_gains_only_with_papers_channel(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells have full size and 6 runs. Both published gains of a shape are compared. Each comparison allows 3 standard
    deviations: with other seeds, at most 3 of 1000 would fail."""
    monkeypatch.setattr(ibu_mi, "QUICK_RUNS", 6)
    plan = Plan(quick=True, best=False, seed=7)
    jobs = ibu_mi.jobs(plan, ["L-GRR"], [shape], ibu_mi.DOMAINS, ibu_mi.SIZES)
    found = read(jobs, [errors(**job.arguments) for job in jobs])
    ours, sd = mean_gain(found, lambda s: True).mean(axis=1), chance(found, lambda s: True)
    chain = mean_gain(found, lambda s: True, "chain").mean(axis=1)
    for i, published in enumerate(TABLES[CHAINS][shape][:2]):
        assert Row(label="", published=published, ours=ours[i], spread=sd[i], digit=0.5).within
        assert not Row(label="", published=published, ours=chain[i], spread=sd[i], digit=0.5).within  # the control
