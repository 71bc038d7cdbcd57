"""Tests whether counts come from honest devices with the stated mechanism, and computes the drift between two estimates.

Honest reports have properties that do not depend on the values. Forged reports that distort a histogram violate these
properties. Each property has its own test. The fit's p-value is the smallest p-value times the number of tests.

    ones        unary encodings: the number of ones per report has the mean p + (k-1) q. The mean and the variance do not depend
                on the values. The test is two-sided: too many ones (forged to raise many values at once) or too few (empty
                reports)
    floor       every pure mechanism: apart from random error, each value is supported by at least a share q of the reports.
                Reports forged for some values lower all other counts. The test sums the squares of standardised support counts
                below q
    least       the floor test for only the value with the least support
    functions   local hashing: devices draw hash functions uniformly. The test counts pairs of reports with the same function
    symbols     local hashing: for a uniformly drawn function, all symbols except 0 are equally likely. (Every linear form
                hashes the value 0 to 0, so the share of symbol 0 depends on the values.)
    classes     Square Wave with L > 1: the L cells near a value have the L remainders modulo L. So the share of the reports
                whose cell has a given remainder does not depend on the values
    counts      other mechanisms with a channel: the test compares the counts with the distribution that fits the counts best

The tests use these null distributions:

    ones        exact, or an upper bound; normal if the variance is above 10 000
    floor       at most the mixture of χ² with 0 … k degrees of freedom and binomial weights (all values at the floor, counts
                normal and not positively correlated; Shapiro 1988)
    least       normal
    functions   a gamma distribution with the exact mean, variance and third moment
    symbols     χ²
    classes     a gamma distribution with the exact mean and variance
    counts      at most the null distribution of the deviance of the true distribution of values

In a window, the tests assume that the same people report at every step, from kept memos. If different people report at each
step, all tests raise fewer alarms than stated. A kept memo keeps its hash function. If the numbers of devices per function are
uneven by chance, the numbers therefore stay uneven in later steps.

The number of ones of a subset (SS) needs no test: `Mechanism.table` rejects a table with a wrong number of ones. A forger may
choose values and send exactly the reports of honest devices with these values. No test of counts can detect this.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

from ldpstream.estimators.estimate import Estimate, groups_of
from ldpstream.estimators.likelihood import mle
from ldpstream.mechanisms import ChannelMechanism, CountTable, Longitudinal, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.square_wave import SquareWave
from ldpstream.mechanisms.unary import LongitudinalUnary, UnaryEncoding

MAX_Z = 1e6
ENOUGH_PAIRS = 50.0  # pairs of reports with multiples of one function; if fewer, a single pair shifts the floor test too much
FEW = 5.0  # reports per symbol; with fewer reports, the χ² distribution is inaccurate

NORMAL_VARIANCE = 10_000.0  # above this variance of the number of ones, the normal tail is accurate to six standard deviations
RAREST = 1e-11  # smallest probability that the Fourier transform resolves

LogP = tuple[float, int]  # ln p of one test, and the sign of the deviation: +1 above the mean, -1 below the mean


@dataclass(frozen=True, slots=True)
class Fit:
    """Agreement of counts with the mechanism.

    Attributes:
        z: the p-value as a two-sided normal score: positive for too many, negative for too few, 0 without a deviation. Beyond
            ±6 (p < 2e-9) the reports are forged or the survey is wrong.
        p: upper bound on the probability of a deviation this strong by chance (Bonferroni over the tests).
        sign: name of the test with the smallest p-value.
        tests: p-value of each test.

    Without reports z and p are NaN, `sign` is None and `tests` is empty.
    """

    z: float
    p: float
    sign: str | None
    tests: dict[str, float]


def fit(m: Mechanism, table: CountTable, steps: int = 1) -> Fit:
    """Tests counts against the mechanism, as the module's docstring describes.

    Args:
        m: the mechanism.
        table: the mechanism's counts.
        steps: as in `matrix_inversion`.

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
    if isinstance(m, SquareWave) and m.width > 1:
        return {"classes": _classes(m, table)}
    if isinstance(m, ChannelMechanism):
        return {"counts": _counts(m, table, steps)}
    below = _below_the_floor(m, table, steps)
    tests: dict[str, LogP | None] = {"floor": _floor(below), "least": _least(below)}
    device = m.device
    if isinstance(device, (UnaryEncoding, LongitudinalUnary)):
        tests["ones"] = _ones(device, table, steps)
    if isinstance(device, (LocalHashing, LongitudinalHashing)):
        repeats = steps if isinstance(device, Longitudinal) else 1
        tests["functions"] = _functions(table, device.pool.size, repeats)
        tests["symbols"] = _symbols(table, repeats)
        if (table.n / steps) ** 2 * (device.g - 1) / (2 * device.pool.size) < ENOUGH_PAIRS:
            tests["floor"] = None
    return tests


def _ones(m: UnaryEncoding | LongitudinalUnary, table: CountTable, steps: int) -> LogP | None:
    """Tests the number of ones in all reports. Neither real nor fake values affect the number's mean and variance."""
    own, other = m.support_covariance(np.array([1.0, 0.0]), steps)[0]
    variance = table.n / steps * (own + (m.k - 1) * other)
    ones = int(table.counts.sum(dtype=object))
    excess = float(ones) - table.n * (m.p + (m.k - 1) * m.q)
    if not variance:
        return None
    if variance < NORMAL_VARIANCE:
        span = 2 ** math.ceil(math.log2(80 * math.sqrt(variance) + 64))  # 40 standard deviations on either side of the mean
        log_p = _log_tail_of_ones(m, table.n, steps, ones, excess > 0, span)
    else:
        log_p = float(norm.logsf(abs(excess) / math.sqrt(variance)))
    return math.log(2) + log_p, 1 if excess > 0 else -1


def _log_tail_of_ones(m: UnaryEncoding | LongitudinalUnary, n: int, steps: int, ones: int, above: bool, span: int) -> float:
    """Returns ln of the probability of at least (at most) this many ones in n reports, computed from the generating function G.

    `span` is a power of two. Only `span` numbers of ones, around the mean, have a noticeable probability.

    A device draws the ones of a memo once and reports them `steps` times: G(1 + w) = U(p1)^u U(q1)^(u(k-1)) for u people, with
    U(a) = a (1 + p2 w)^steps + (1 - a) (1 + q2 w)^steps. If n is not a multiple of `steps`, one more person has the remaining
    reports. On the unit circle G is the Fourier transform of the probabilities. If a probability is too small for the
    transform, the result is Chernoff's bound, the minimum of G(e^t) e^(-t ones) over t.
    """
    p1, q1, p2, q2 = m.rounds()
    groups = [(n // steps, steps), (1, n % steps)]

    def log_g(w: Any) -> Any:
        total = 0.0
        for people, each in groups:
            if people and each:
                high, low = (np.expm1(each * np.log1p(chance * w)) for chance in (p2, q2))
                own, other = (np.log1p(a * high + (1 - a) * low) for a in (p1, q1))
                total = total + people * (own + (m.k - 1) * other)
        return total

    sign = 1 if above else -1
    centre = round(n * (m.p + (m.k - 1) * m.q))
    if abs(ones - centre) < span // 2:
        angle = 2j * math.pi * np.arange(span // 2 + 1) / span  # the other half is complex conjugate
        chances = np.fft.hfft(np.exp(log_g(np.expm1(angle)) - angle * centre), span) / span  # of centre, centre + 1, …
        offsets = np.fft.fftfreq(span, 1 / span)
        chance = float(chances[sign * offsets >= sign * (ones - centre)].sum())
        if chance > RAREST:
            return math.log(min(chance, 1.0))

    def log_bound(t: float) -> float:
        return float(log_g(math.expm1(sign * t)) - sign * t * ones)

    found = minimize_scalar(log_bound, bounds=(0, min(60.0, 600 / steps)), method="bounded")
    return min(float(found.fun), math.log(RAREST))


def _below_the_floor(m: Mechanism, table: CountTable, steps: int) -> FloatArray:
    """Returns the standardised support counts, (k,), below the mean count of a value that nobody has; other counts become 0."""
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
    log_p = binom.logpmf(degrees, k, 0.5) + _log_gamma_tail(float((below**2).sum()) / 2, degrees / 2)
    return float(special.logsumexp(log_p)), -1


def _least(below: FloatArray) -> LogP | None:
    """Tests the smallest of k counts, with Bonferroni's bound."""
    return (math.log(below.size) + float(norm.logcdf(below.min())), -1) if below.size else None


def _functions(table: CountTable, size: int, repeats: int) -> LogP | None:
    """Tests the number of pairs of reports with equal functions. A pair is equal with probability 1/size.

    Pairs are uncorrelated. The three pairs among three reports are dependent; this dependence gives the third moment. The test
    is one-sided: if different people report at each step, dividing by `repeats` makes the counts too even.
    """
    n, chance = table.n / repeats, 1 / size
    if n < 2:
        return None
    reports = table.counts.sum(axis=1) / repeats
    pairs = n * (n - 1) / 2
    variance = pairs * chance * (1 - chance)
    third = variance * (1 - 2 * chance) + n * (n - 1) * (n - 2) * chance**2 * (1 - chance)
    if third <= 0:  # one pair, and two functions
        return None
    shape, scale = 4 * variance**3 / third**2, third / (2 * variance)
    found = float((reports * (reports - 1)).sum()) / 2 - (0.5 if repeats == 1 else 0)  # continuity correction
    return float(_log_gamma_tail((found - pairs * chance) / scale + shape, np.array([shape]))[0]), 1


def _symbols(table: CountTable, repeats: int) -> LogP | None:
    """Tests Pearson's χ² of all symbols except 0, divided by `repeats`: a device sends at most `repeats` reports of a memo."""
    reports = table.counts.sum(axis=0)[1:].astype(np.float64)
    if reports.size < 2 or reports.mean() < FEW:
        return None
    chi_squared = float(((reports - reports.mean()) ** 2).sum() / reports.mean()) / repeats
    return float(_log_gamma_tail(chi_squared / 2, np.array([(reports.size - 1) / 2]))[0]), 1


def _classes(m: SquareWave, table: CountTable) -> LogP | None:
    """Tests Pearson's χ² of the reports by the remainder of their cell. A person's reports have independent remainders."""
    remainders = np.arange(m.cells) % m.width
    reports = np.bincount(remainders, weights=table.counts, minlength=m.width)
    chance = m.far * np.bincount(remainders) + m.near - m.far
    mean = m.width - 1
    variance = 2 * mean + (float((1 / chance).sum()) - m.width**2 - 2 * mean) / table.n
    if variance < 1e-9:  # one report, and equal chances: χ² is a constant
        return None
    chi_squared = float(((reports - table.n * chance) ** 2 / (table.n * chance)).sum())
    return float(_log_gamma_tail(chi_squared * mean / variance, np.array([mean**2 / variance]))[0]), 1


def _counts(m: ChannelMechanism, table: CountTable, steps: int) -> LogP | None:
    """Tests the deviance of the best-fitting distribution, which is at most the deviance of the true distribution.

    The deviance of the true distribution has the mean and variance of k Poisson counts with a given sum, at the fitted means.
    If people report `steps` times, the variance of the counts grows at most `steps`-fold. Division by `steps` corrects this.
    """
    counts = table.counts.astype(np.float64)
    best = mle(m, table)
    deviance = 2 * (float(special.xlogy(counts, counts / table.n).sum()) - best.log_likelihood - best.gap * table.n)
    if not math.isfinite(deviance):
        return -math.inf, 1
    mean, variance = _deviance_moments(table.n * (best.frequencies @ m.channel()))
    if mean <= 0 or variance <= 0:
        return None
    return float(_log_gamma_tail(max(deviance, 0) / steps * mean / variance, np.array([mean**2 / variance]))[0]), 1


def _deviance_moments(means: FloatArray) -> tuple[float, float]:
    """Mean and variance of the deviance Σ 2 c ln(c/μ) of multinomial counts c with means μ.

    The calculation starts from independent Poisson counts: from the definition for μ < 30, otherwise from χ² with the mean 1 +
    1/(6μ). A fixed sum of the counts reduces the mean by 1. It also reduces the variance by one k-th, and by the part that
    varies with the sum.
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


def _log_gamma_tail(x: float, shapes: FloatArray) -> FloatArray:
    """ln Pr[Gamma(a) >= x] for every shape a; if Pr underflows, ln of the bound x^(a-1) e^-x / (Γ(a) (1 - (a-1)/x))."""
    if x <= 0:
        return np.zeros(shapes.size)
    with np.errstate(divide="ignore"):
        log_p = np.log(special.gammaincc(shapes, x))
    far = np.isneginf(log_p)
    a = shapes[far]
    log_p[far] = (a - 1) * math.log(x) - x - special.gammaln(a) - np.log1p(-np.minimum((a - 1) / x, 0.999))
    return np.asarray(log_p)


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
    """Returns the largest change of a frequency; None if one of the two estimates has no reports.

    `drift` treats the errors of the two estimates as independent. If the same people report from kept memos, the two errors
    have a common part, which cancels. `sigma` is then conservative: without drift, `sigma` is far below a standard normal
    variable. A `sigma` above 5 is rarely due to chance, even for k = 10 000 (p = 0.6 %).
    """
    spread = np.hypot(before.standard_errors, after.standard_errors)
    moved = np.abs(after.frequencies - before.frequencies)
    if np.isnan(spread).any() or np.isnan(moved).any():
        return None
    scores = np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)
    sigma = float(scores.max())
    return Drift(sigma, int(scores.argmax()), min(1.0, scores.size * 2 * float(norm.sf(sigma))))


def mass_below_zero(estimate: Estimate) -> float:
    """Returns minus the sum of the negative frequencies, which noise causes; NaN without reports."""
    return float(-np.minimum(estimate.frequencies, 0).sum())
