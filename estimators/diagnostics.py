"""Tests whether counts come from honest devices with the stated mechanism, and computes the drift between two estimates.

The fit's p-value is the smallest p-value of these tests, times the number of tests, at most 1.

    total       pure mechanisms whose reports differ in the number of supported values: on average a report supports p + (k-1) q
                values. The test is two-sided
    ones        the same test for unary encodings, whose reports support the values of their ones
    floor       pure mechanisms, but not local hashing with few reports: the sum of the squares of the standardised support
                counts that are below n q
    least       the floor test for only the value with the least support
    functions   local hashing: number of pairs of reports with the same function
    symbols     local hashing: for a uniformly drawn function, all symbols except 0 are equally likely
    classes     Square Wave with L > 1: shares of the reports whose cell has a given remainder modulo L
    counts      Square Wave with L = 1 and location mechanisms: deviance from the best-fitting distribution

The tests use these null distributions:

    total       the bound of Hoeffding 1963, Theorem 1, for independent people and any dependence within a person's reports
    ones        Chernoff's bound
    floor       the mixture of χ² with 0 … k degrees of freedom and binomial weights (Shapiro 1988): for independent normal
                counts. Negatively correlated ones have smaller tails: they are negatively associated (Joag-Dev and Proschan
                1983; Shao 2000). If counts may be positively correlated, the bound of `_floor_together`
    least       normal; the p-value is multiplied by the number of values
    functions   a gamma distribution with the exact mean, variance and third moment
    symbols     χ²
    classes     a gamma distribution with the exact mean and variance
    counts      a gamma distribution for the deviance of the true distribution of values

These tests cannot detect a forger who chooses values and randomizes them as an honest device does.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from ldpstream.estimators.estimate import Estimate, Group, groups_of
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.maximum.likelihood import mle
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.counts.fit_tests import LogP, log_gamma_tail

MAX_Z = 1e6
ROUNDING = 1e-7  # smallest standard error that `bias` uses: an iteration ends at about this distance from its limit
CLEAR = 2.0  # a frequent value is at least this many standard errors above zero
MAX_BIAS = 0.4  # in standard errors; a 95 % normal interval with this bias still has 93 % coverage


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of `fit`.

    Attributes:
        z: the p-value `p` as a two-sided normal score, within ±1e6; 0 without a deviation. Negative for too little support or
            too few ones. Beyond ±6 (p < 2e-9), suspect forged reports or a wrong survey.
        p: the smallest p-value, times the number of tests (Bonferroni), at most 1.
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
        steps: one number, as in `matrix_inversion`.

    Raises:
        ValueError: if the table belongs to another mechanism or has invalid counts, or if `steps` is out of range.
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
    own = m.device.reading.fit_tests(table, steps)
    if not m.pure:
        return own or {"counts": _counts(m, table, steps)}
    found, (below, together) = {"total": _total(m, table, steps)}, _below_the_floor(m, table, steps)
    if below.size:
        found["floor"] = _floor_together(below, together) if together else _floor(below)
        found["least"] = math.log(below.size) + float(special.log_ndtr(below.min())), -1
    return found | own


def _total(m: Mechanism, table: CountTable, steps: int) -> LogP | None:
    least, most = m.supported
    if least == most:
        return None
    mean = (m.p + (m.k - 1) * m.q - least) / (most - least)
    found = (int(m.support(table).sum(dtype=object)) / table.n - least) / (most - least)
    distance = float(special.rel_entr(found, mean) + special.rel_entr(1 - found, 1 - mean))
    return math.log(2) - table.n / steps * distance, 1 if found > mean else -1


def _below_the_floor(m: Mechanism, table: CountTable, steps: int) -> tuple[FloatArray, float]:
    variance = float(m.reading.support_variances(np.zeros(1), steps)[0])
    if not variance:
        return np.zeros(0), 0.0
    error = math.sqrt(variance * table.n / steps)
    return np.minimum((m.support(table) - table.n * m.q) / error, 0), m.device.reading.supported_together(steps) / variance


def _floor(below: FloatArray) -> LogP:
    degrees, log_binomial = _log_binomial(below.size)
    log_p = log_binomial + log_gamma_tail(float((below**2).sum()) / 2, degrees / 2)
    return float(np.logaddexp.reduce(log_p)), -1


def _floor_together(below: FloatArray, together: float) -> LogP:
    """An upper bound of the p-value if the counts' correlation matrix has no eigenvalue above 1 + `together`.

    The root of the sum of squares is a function of independent normal numbers with the Lipschitz constant √(1 + together), and
    its mean is at most √(k/2). So it exceeds √(k/2) + t with probability at most e^(-t²/(2 (1 + together))).

    Source: Borell 1975; Sudakov and Tsirelson 1974 (concentration of Gaussian measures).
    """
    excess = max(0.0, float(np.linalg.norm(below)) - math.sqrt(below.size / 2))
    return -(excess**2) / (2 * (1 + together)), -1


@lru_cache(maxsize=128)
def _log_binomial(k: int) -> tuple[IntArray, FloatArray]:
    reach = 8 * math.ceil(math.sqrt(k))
    degrees = np.arange(max(1, k // 2 - reach), min(k, k // 2 + reach) + 1)
    chances = special.gammaln(k + 1) - special.gammaln(degrees + 1) - special.gammaln(k - degrees + 1) - k * math.log(2)
    return degrees, np.asarray(chances)


def _counts(m: Mechanism, table: CountTable, steps: int) -> LogP | None:
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
    """The largest change of a frequency between two estimates, in standard errors.

    Attributes:
        sigma: the change, in standard errors of the difference of the two frequencies.
        value: index of the value whose frequency changed.
        p: two-sided p-value of the change, times the number of values (Bonferroni), at most 1. It is a normal approximation,
            and too small with few reports.
    """

    sigma: float
    value: int
    p: float


def drift(before: Estimate, after: Estimate) -> Drift | None:
    """Returns the largest change of a frequency, in standard errors; None if an estimate has NaN, for example without reports.

    `drift` treats the errors of the two estimates as independent.
    """
    spread = np.hypot(before.standard_errors, after.standard_errors)
    moved = np.abs(after.frequencies - before.frequencies)
    if np.isnan(spread).any() or np.isnan(moved).any():
        return None
    scores = np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)
    sigma = float(scores.max())
    return Drift(sigma, int(scores.argmax()), min(1.0, scores.size * 2 * float(special.ndtr(-sigma))))


def mass_below_zero(estimate: Estimate) -> float:
    """Returns minus the sum of the negative frequencies; NaN if a frequency is NaN."""
    return float(-np.minimum(estimate.frequencies, 0).sum())


# ---- bias: matrix inversion of a pure mechanism without post-processing has none


def free_maximum(groups: list[Group], raw: Estimate) -> FloatArray:
    """First-order approximation of the frequencies that maximise the likelihood of the support counts.

    The frequencies have the sum 1. They may be negative.

    Returns:
        (k,) frequencies; NaN if the counts carry no information.
    """
    weights, weighted = np.zeros(raw.frequencies.size), np.zeros(raw.frequencies.size)
    for m, table in groups:
        if table.n and m.p != m.q:
            gamma = m.q + (m.p - m.q) * np.clip(raw.frequencies, 0, 1)
            h = table.n * (m.p - m.q) ** 2 / np.maximum(gamma, 1e-100)
            weights += h
            own = raw if len(groups) == 1 else matrix_inversion(m, table)
            weighted += h * own.frequencies
    if not weights.any():
        return raw.frequencies
    frequencies = weighted / weights
    return np.asarray(frequencies - (frequencies.sum() - 1) / weights / (1 / weights).sum())


def bias(estimate: Estimate, raw: Estimate, free: FloatArray) -> float:
    """Largest distance of an estimate's frequent values from the raw inversion or the free maximum, whichever is nearer.

    Args:
        free: (k,) the `free_maximum` of the same counts.

    Returns:
        The distance in the estimate's standard errors. Only the most frequent value and values at least 2 standard errors above
        zero count. NaN if the counts carry no information.
    """
    if np.isnan(free).any() or np.isnan(estimate.frequencies).any():
        return float("nan")
    errors = np.maximum(estimate.standard_errors, ROUNDING)
    frequent = free >= CLEAR * errors
    frequent[free.argmax()] = True
    moved = np.minimum(np.abs(estimate.frequencies - free), np.abs(estimate.frequencies - raw.frequencies))
    return float((moved / errors)[frequent].max())
