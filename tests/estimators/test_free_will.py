"""Compares our implementations of the free-will paper's alternatives to GIBU with the paper's formulas and examples."""

import math

import numpy as np
import pytest

from lab.papers.free_will_estimators import PROJECTIONS, Projection, combine_mechanisms, combine_results
from lab.papers.location import LOCATION
from lab.papers.location.base import StoredChannel
from ldpstream.estimators import ibu
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.post_processing import norm_sub, post_process
from ldpstream.mechanisms import Mechanism, mechanism

K = 6
F = np.array([0.35, 0.25, 0.2, 0.1, 0.07, 0.03])


def groups_of(*mechanisms: Mechanism, n: int = 4000, seed: int = 1) -> list[Group]:
    rng = np.random.default_rng(seed)
    return [
        (m, m.tabulate(m.simulate(rng.choice(m.k, n * (i + 1), p=F[: m.k] / F[: m.k].sum()), rng)))
        for i, m in enumerate(mechanisms)
    ]


def grr(*eps: float) -> list[Group]:
    return groups_of(*(mechanism("GRR", k=K, eps=e) for e in eps))


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_the_average_of_grrs_is_a_grr(projection: Projection) -> None:
    """Eqs. 8 and 9: (e^ε[n]+k-1)/(e^ε[n]-1) q[n] - 1/(e^ε[n]-1); 1/(k-1+e^ε[n]) is the mean of 1/(k-1+e^ε_i)."""
    groups = grr(0.5, 1.0, 3.0)
    n = sum(t.n for _, t in groups)
    power = 1 / sum(t.n / n / (K - 1 + math.exp(m.eps_1)) for m, t in groups) - (K - 1)
    observed = np.sum([t.counts for _, t in groups], axis=0) / n
    expected = np.asarray((power + K - 1) / (power - 1) * observed - 1 / (power - 1))
    found = combine_mechanisms(groups, "INV", projection)
    np.testing.assert_allclose(found, post_process(expected, projection), atol=1e-12)


def test_the_average_of_rappors_is_a_rappor() -> None:
    """Eqs. 13 and 14: (r+1)/(r-1) s[n] - 1/(r-1) with r = e^{ε[n]/2}; 1/(1+r) is the mean of 1/(1+e^{ε_i/2})."""
    groups = groups_of(*(mechanism("SUE", k=K, eps=e) for e in (0.5, 1.0, 4.0)))
    n = sum(t.n for _, t in groups)
    r = 1 / sum(t.n / n / (1 + math.exp(m.eps_1 / 2)) for m, t in groups) - 1
    ones = np.sum([t.counts for _, t in groups], axis=0) / n
    expected = np.asarray((r + 1) / (r - 1) * ones - 1 / (r - 1))
    np.testing.assert_allclose(combine_mechanisms(groups, "RAP"), norm_sub(expected), atol=1e-12)


def report_by_report(groups: list[Group], iterations: int) -> np.ndarray:
    """Returns GIBU's estimate by the original definition (Eq. 15), computed separately for each report and each value."""
    likelihoods = [m.channel()[:, z] for m, t in groups for z in np.repeat(np.arange(K), t.counts)]
    theta = np.full(K, 1 / K)
    for _ in range(iterations):
        theta = sum(theta * g / sum(theta[u] * g[u] for u in range(K)) for g in likelihoods) / len(likelihoods)
    return theta


@pytest.mark.parametrize("iterations", [1, 5, 25])
def test_all_alternatives_equal_the_papers_sums(iterations: int) -> None:
    """Uses 90 reports of GRR at two levels and of a geometric mechanism. Compares GIBU with Eq. 15 computed report by report.
    Compares [IBU]_M (Eq. 10) and [INV]_M (Eq. 7) with sums on the average channel. GIBU differs from all alternatives."""
    line = LOCATION["truncated-geometric"](k=K, eps=0.7)
    groups = groups_of(mechanism("GRR", k=K, eps=0.5), line, mechanism("GRR", k=K, eps=3.0), n=15)
    found = ibu(groups, max_iter=iterations, tol=0.0).frequencies
    np.testing.assert_allclose(found, report_by_report(groups, iterations), atol=1e-12)
    n = sum(t.n for _, t in groups)
    average = np.sum([t.n / n * m.channel() for m, t in groups], axis=0)
    observed = np.sum([t.counts for _, t in groups], axis=0) / n
    compound = np.full(K, 1 / K)
    for _ in range(10_000):
        compound = compound * (average @ (observed / (compound @ average)))
    np.testing.assert_allclose(combine_mechanisms(groups, "IBU"), compound, atol=1e-9)
    inverted = np.linalg.lstsq(average.T, observed)[0]
    np.testing.assert_allclose(combine_mechanisms(groups, "INV", "norm-mul"), post_process(inverted, "norm-mul"), atol=1e-10)
    best = ibu(groups).frequencies
    for other in (combine(groups, e) for combine in (combine_results, combine_mechanisms) for e in ("INV", "IBU")):
        assert np.abs(other - best).max() > 1e-3


def test_the_average_of_cancelling_mechanisms_is_nan() -> None:
    """The average of two informative channels can be uninformative (Eq. 11). GIBU still estimates the frequencies."""
    line = np.array([[0.0, 1.0], [1.0, 0.0]])

    class Given(StoredChannel):
        name = "given"

        def __init__(self, channel: list[list[float]]) -> None:
            self._set_domain(2)
            self._set_channel(np.array(channel))
            self.signature = f"given {channel}"

        def distances(self) -> np.ndarray:
            return line

    kinds = Given([[0.75, 0.25], [0.25, 0.75]]), Given([[0.25, 0.75], [0.75, 0.25]])
    rng = np.random.default_rng(2)
    groups: list[Group] = [(m, m.tabulate(m.report((rng.random(20_000) < 0.9).astype(int), rng))) for m in kinds]
    assert np.isnan(combine_mechanisms(groups, "INV")).all()
    np.testing.assert_allclose(combine_mechanisms(groups, "IBU"), 0.5, atol=1e-6)
    np.testing.assert_allclose(ibu(groups).frequencies, [0.1, 0.9], atol=0.02)
    np.testing.assert_allclose(combine_results(groups, "INV"), [0.1, 0.9], atol=0.02)
