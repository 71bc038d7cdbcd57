"""Tests whether counts come from honest devices with the stated mechanism, and computes the drift between two estimates.

Honest reports have properties that do not depend on the values. Each property has its own test. The fit's p-value is the
smallest p-value times the number of tests, at most 1.

    ones        unary encodings: the number of ones per report has the mean p + (k-1) q. The mean and the variance do not depend
                on the values. The test is two-sided: too many ones (forged to raise many values at once) or too few (empty
                reports)
    floor       every pure mechanism, but not local hashing with too few reports: apart from random error, each value is
                supported by at least a share q of the reports. Forged reports that support only a few values lower the counts
                of all others. The test sums the squares of standardised support counts below q
    least       the floor test for only the value with the least support
    functions   local hashing: devices draw hash functions uniformly. The test counts pairs of reports with the same function
    symbols     local hashing: for a uniformly drawn function, all symbols except 0 are equally likely. (Every linear form
                hashes the value 0 to 0, so the share of symbol 0 depends on the values.)
    classes     Square Wave with L > 1: the L cells near a value have the L remainders modulo L. So the share of the reports
                whose cell has a given remainder does not depend on the values
    counts      Square Wave with L = 1 and location mechanisms: compares the counts with the best-fitting distribution

The tests use these null distributions:

    ones        exact, or an upper bound; normal if the variance is at least 10 000
    floor       at most the mixture of χ² with 0 … k degrees of freedom and binomial weights (all values at the floor, counts
                normal and not positively correlated; Shapiro 1988)
    least       normal
    functions   a gamma distribution with the exact mean, variance and third moment
    symbols     χ²
    classes     a gamma distribution with the exact mean and variance
    counts      a gamma distribution for the deviance of the true distribution of values, which is at least the tested deviance

In a window, the tests assume that the same people report at every step, from kept memos. If different people report at each
step, no test raises more alarms than stated.
The number of ones of a subset (SS) needs no test: `Mechanism.table` rejects a table with a wrong number of ones. A forger may
choose values and send exactly the reports of honest devices with these values. No test of counts can detect this.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from ldpstream.estimators.estimate import Estimate, groups_of
from ldpstream.estimators.likelihood import mle
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.fit_tests import LogP, log_gamma_tail

MAX_Z = 1e6


@dataclass(frozen=True, slots=True)
class Fit:
    """Agreement of counts with the mechanism.

    Attributes:
        z: the p-value `p` as a two-sided normal score, within ±1e6; 0 without a deviation. It is negative if `sign` is "floor"
            or "least", or if there are too few ones; otherwise positive. Beyond ±6 (p < 2e-9) the reports are forged or the
            survey is wrong.
        p: upper bound on the probability of a deviation this strong by chance (Bonferroni over the tests).
        sign: name of the test with the smallest p-value.
        tests: p-value of each test alone.

    Without reports, or if the counts allow no test, z and p are NaN, `sign` is None and `tests` is empty.
    """

    z: float
    p: float
    sign: str | None
    tests: dict[str, float]


def fit(m: Mechanism, table: CountTable, steps: int = 1) -> Fit:
    """Tests counts against the mechanism, as the module's docstring describes.

    Args:
        m: the mechanism.
        table: the mechanism's count table.
        steps: one number, as in `matrix_inversion`.

    Raises:
        ValueError: if the table belongs to another mechanism or has invalid counts, or if steps < 1.
    """
    groups_of(m, table, steps)
    found = {name: log_p for name, log_p in _tests(m, table, steps).items() if log_p is not None} if table.n else {}
    if not found:
        return Fit(math.nan, math.nan, None, {})
    worst = min(found, key=lambda name: found[name][0])
    log_p, side = min(0.0, found[worst][0] + math.log(len(found))), found[worst][1]
    z = side * min(-float(special.ndtri_exp(log_p - math.log(2))), MAX_Z)
    return Fit(z + 0.0, math.exp(log_p), worst, {name: math.exp(min(0.0, value)) for name, (value, _) in found.items()})


def _tests(m: Mechanism, table: CountTable, steps: int) -> dict[str, LogP | None]:
    own = m.device.fit_tests(table, steps)
    if not m.pure:
        return own or {"counts": _counts(m, table, steps)}
    below = _below_the_floor(m, table, steps)
    return {"floor": _floor(below), "least": _least(below)} | own


def _below_the_floor(m: Mechanism, table: CountTable, steps: int) -> FloatArray:
    """Returns the standardised support counts, (k,), at most 0; empty if the count of a value that nobody has is certain."""
    variance = float(m.support_covariance(np.zeros(1), steps)[0][0]) * table.n / steps
    if not variance:
        return np.zeros(0)
    return np.asarray(np.minimum((m.support(table) - table.n * m.q) / math.sqrt(variance), 0))


def _floor(below: FloatArray) -> LogP | None:
    """Tests Σ z², with p = Σ_j Binomial(k, 1/2)(j) Pr[χ²_j >= Σ z²]; the sum omits terms of negligible weight."""
    if not below.size:
        return None
    k, reach = below.size, 8 * math.ceil(math.sqrt(below.size))
    degrees = np.arange(max(1, k // 2 - reach), min(k, k // 2 + reach) + 1)
    log_binomial = special.gammaln(k + 1) - special.gammaln(degrees + 1) - special.gammaln(k - degrees + 1) - k * math.log(2)
    log_p = log_binomial + log_gamma_tail(float((below**2).sum()) / 2, degrees / 2)
    return float(special.logsumexp(log_p)), -1


def _least(below: FloatArray) -> LogP | None:
    """Tests the smallest of k counts, with Bonferroni's bound."""
    return (math.log(below.size) + float(special.log_ndtr(below.min())), -1) if below.size else None


def _counts(m: Mechanism, table: CountTable, steps: int) -> LogP | None:
    """Tests the deviance of the best-fitting distribution, which is at most the deviance of the true distribution.

    The deviance of the true distribution has the mean and variance of Poisson counts with a given sum, at the fitted means. If
    people report `steps` times, the variance of the counts grows by a factor of at most `steps`: the division corrects for it.
    """
    counts = table.counts.astype(np.float64)
    best = mle(m, table)
    deviance = 2 * (float(special.xlogy(counts, counts / table.n).sum()) - best.log_likelihood - best.gap * table.n)
    if not math.isfinite(deviance):
        return -math.inf, 1
    mean, variance = _deviance_moments(table.n * (best.frequencies @ m.channel()))
    if mean <= 0 or variance <= 0:
        return None
    return float(log_gamma_tail(max(deviance, 0) / steps * mean / variance, np.array([mean**2 / variance]))[0]), 1


def _deviance_moments(means: FloatArray) -> tuple[float, float]:
    """Approximate mean and variance of the deviance Σ 2 c ln(c/μ) of k multinomial counts c with means μ.

    The calculation starts from independent Poisson counts: from the definition for μ < 30, otherwise from χ² with the mean 1 +
    1/(6μ). The fixed sum of the counts reduces the mean by 1. It also multiplies the variance by 1 - 1/k, and removes the
    part that varies with the sum.
    """
    small = means[means < 30]
    values = np.arange(100.0)[:, None]
    mu = np.maximum(small, 1e-300)
    deviance = 2 * (special.xlogy(values, values / mu) - values + mu)
    weights = np.exp(special.xlogy(values, mu) - mu - special.gammaln(values + 1))
    first, second = (weights * deviance).sum(axis=0), (weights * deviance**2).sum(axis=0)
    along = float((weights * deviance * (values - mu)).sum())
    large = means[means >= 30]
    variance = float((second - first**2).sum()) + 2 * large.size
    return (
        float(first.sum() + (1 + 1 / (6 * large)).sum()) - 1,
        variance * (1 - 1 / means.size) - along**2 / float(means.sum()),
    )


@dataclass(frozen=True, slots=True)
class Drift:
    """The largest change of a frequency between two estimates.

    Attributes:
        sigma: the change, in standard errors of the difference.
        value: index of the value whose frequency changed.
        p: upper bound on the probability that some value changes this much without drift (Bonferroni over all values).
    """

    sigma: float
    value: int
    p: float


def drift(before: Estimate, after: Estimate) -> Drift | None:
    """Returns the largest change of a frequency; None if an estimate has NaN, for example without reports.

    `drift` treats the errors of the two estimates as independent. If the same people report from kept memos, the two errors
    have a common part, which cancels. `sigma` is then conservative.
    """
    spread = np.hypot(before.standard_errors, after.standard_errors)
    moved = np.abs(after.frequencies - before.frequencies)
    if np.isnan(spread).any() or np.isnan(moved).any():
        return None
    scores = np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)
    sigma = float(scores.max())
    return Drift(sigma, int(scores.argmax()), min(1.0, scores.size * 2 * float(special.ndtr(-sigma))))


def mass_below_zero(estimate: Estimate) -> float:
    """Returns minus the sum of the negative frequencies, which noise causes; NaN without reports."""
    return float(-np.minimum(estimate.frequencies, 0).sum())
