"""Runs of Arcolezi, Cerna and Palamidessi 2023: both estimators on the same reports, as in the paper and its package.

Log-normal incomes replace the paper's incomes, and linear forms replace random hash functions.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from lab.drawn_tables import tabulate
from lab.error_measures import mae, mse
from ldpstream.estimators import matrix_inversion, post_process
from ldpstream.estimators.maximum.likelihood import em
from ldpstream.mechanisms import LONGITUDINAL, CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.counts.terms import SupportTerm
from ldpstream.mechanisms.families.grr import LongitudinalGRR
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing

EPSILONS = (1.0, 2.0, 4.0)
LOLOHA_G = {1.0: 3, 2.0: 7, 4.0: 53}  # §3.2's formula, rounded as in the paper's package; the paper prints floors
MEDIAN_INCOME, INCOME_SPREAD, TOP_INCOME = 36_000, 0.9, 720_000
SHAPES: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "gaussian": lambda rng, n: rng.normal(1000, 10, n),
    "exponential": lambda rng, n: rng.exponential(1, n),
    "uniform": lambda rng, n: rng.uniform(100, 10_000, n),
    "poisson": lambda rng, n: rng.poisson(5, n).astype(float),
    "triangular": lambda rng, n: rng.triangular(100, 4500, 10_000, n),
}  # of §4.1


def population(shape: str, k: int, n: int, rng: np.random.Generator) -> IntArray:
    if shape == "real":
        samples = np.minimum(rng.lognormal(np.log(MEDIAN_INCOME), INCOME_SPREAD, n), TOP_INCOME)
    else:
        samples = SHAPES[shape](rng, n)
    edges = np.linspace(samples.min(), samples.max(), k + 2)
    return np.asarray(np.minimum(np.searchsorted(edges, samples, side="right") - 1, k - 1).astype(np.int64))


def build(name: str, k: int, eps: float, calibration: str) -> Mechanism:
    if name in LONGITUDINAL:
        g = LOLOHA_G[eps] if (name, calibration) == ("L-OLH", "paper") else None
        return mechanism(name, k, eps_inf=2 * eps, eps_1=eps, calibration=calibration, g=g)
    return mechanism(name, k, eps=eps)


def papers_ibu(m: Mechanism, table: CountTable, slip: bool = True) -> FloatArray:
    """IBU on support counts, at most 10 000 iterations, until no frequency changes by more than 1e-12.

    With `slip`, the channel is the paper's: p on its diagonal and q elsewhere, with q = p₁q₂ + q₁p₂ for the chains of GRR. For
    more than two symbols this q lacks (k-2) q₁q₂; for hashing the right q is 1/g.
    """
    p, q = m.p, m.q
    if slip and isinstance(m, LongitudinalGRR):
        q = m.p1 * m.q2 + m.q1 * m.p2
    elif slip and isinstance(m, LongitudinalHashing):
        q = m.p1 * m.q2 + m.p2 / m.g
    term = SupportTerm(m.support(table), table.n, p, q)
    return em([term], np.full(m.k, 1 / m.k), max_iter=10_000, tol=1e-12)[0]


def estimates(name: str, k: int, eps: float, values: IntArray, best: bool, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Frequencies by estimator.

    `mi`, clipped and normalised, and `ibu` are as in the paper. `chain` is IBU with the mechanism's own channel, if the paper's
    channel differs. `best` is PowerNS of the inversion of reports in the exact calibration.
    """
    m = build(name, k, eps, "paper")
    table = tabulate(m, values, rng)
    inverted = matrix_inversion(m, table)
    found = {"mi": post_process(inverted.frequencies, "norm-mul"), "ibu": papers_ibu(m, table)}
    if isinstance(m, LongitudinalGRR | LongitudinalHashing):
        found["chain"] = papers_ibu(m, table, slip=False)
    if best:
        if name in LONGITUDINAL:
            m = build(name, k, eps, "exact")
            inverted = matrix_inversion(m, tabulate(m, values, rng))
        found["best"] = post_process(inverted.frequencies, "power-ns", variance=inverted.standard_errors**2)
    return found


def errors(name: str, shape: str, k: int, n: int, runs: int, best: bool, seed: int) -> list[dict[str, Any]]:
    """For each of `EPSILONS`, the estimators' (2, runs) errors by name: mean squared errors, then mean absolute errors."""
    rngs = [np.random.default_rng([seed, *_digest(shape, n, run)]) for run in range(runs)]
    populations = [population(shape, k, n, rng) for rng in rngs]
    rng = np.random.default_rng([seed, *_digest(name, shape, k, n)])
    results = []
    for eps in EPSILONS:
        found: dict[str, list[list[float]]] = {}
        for values in populations:
            truth = np.bincount(values, minlength=k) / n
            for estimator, f in estimates(name, k, eps, values, best, rng).items():
                kept = found.setdefault(estimator, [[], []])
                kept[0].append(mse(truth, f))
                kept[1].append(mae(truth, f))
        results.append(found)
    return results


def _digest(*what: object) -> bytes:
    return hashlib.sha256(json.dumps(what).encode()).digest()[:8]
