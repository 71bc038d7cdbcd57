"""Signs that counts are not what the mechanism makes of honest answers, and how far the estimates have moved.

What honest devices send has, whatever their values are, signs that reports made up to bend a histogram disturb. Each is tested
by itself; the smallest p-value, times their number, is the fit's.

    ones        unary encodings: ones per report are p + (k-1) q on average, with a variance that the values do not change
                either. Two-sided: too many (to push many values at once) or too few (empty reports)
    floor       every pure mechanism: no value is supported by less than q of the reports but by chance. The sum of squares of
                the standardised support counts below it; reports forged for some values thin out all the others
    least       the same for the least supported value alone
    functions   local hashing: devices draw their function uniformly. The number of pairs of reports with the same function
    symbols     local hashing: under a uniform function every symbol but 0 is equally likely. (The value 0 hashes to 0 under
                every linear form, so the share of symbol 0 depends on the values.)
    counts      location mechanisms: the counts against the distribution that fits them best

Null distributions: `ones` exact, or at most as rare as stated, and normal where its variance is above 10 000; `least` normal;
`floor` at most the mixture of χ² with 0 … k degrees of freedom and binomial weights (all values at the floor, counts normal and
not positively correlated; Shapiro 1988); `functions` a gamma distribution with the exact mean, variance and third moment;
`symbols` χ²; `counts` at most that of the true distribution's deviance. In a window the same people are supposed to report at
every step, from kept memos; if it was others, all tests err on the side of no alarm. A memo's hash function is kept, so chance
that made the functions of one step uneven does so in the next ones too.

The exact number of ones of a subset (SS) needs no test: other tables are refused (`Mechanism.table`). A forger who sends what a
device with values of his choice would send cannot be seen in counts, by these or by any other means.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

from estimators.estimate import Estimate, check_groups
from estimators.likelihood import mle
from mechanisms import ChannelMechanism, CountTable, Longitudinal, Mechanism
from mechanisms.arguments import FloatArray
from mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from mechanisms.unary import LongitudinalUnary, UnaryEncoding

MAX_Z = 1e6
ENOUGH_PAIRS = 50.0  # of reports whose functions are multiples of each other; fewer move all support counts by leaps
FEW = 5.0  # reports a symbol: below it χ² says nothing

NORMAL_VARIANCE = 10_000.0  # of the number of ones; from there on it is normal enough, six standard deviations out
RAREST = 1e-11  # chances that a Fourier transform still tells

LogP = tuple[float, int]  # ln p of one test, and on which side: +1 too much, -1 too little


@dataclass(frozen=True, slots=True)
class Fit:
    """How well counts agree with the mechanism.

    Attributes:
        z: the p-value as a two-sided normal score, positive for too much and negative for too little; 0 is no sign at all.
            Beyond ±6 (p < 2e-9) counts are not what honest devices send.
        p: probability of so strong a sign by chance, at most: Bonferroni's over the tests.
        sign: the test that decided.
        tests: p-value of each test.

    All NaN, without a sign, where there are no reports.
    """

    z: float
    p: float
    sign: str | None
    tests: dict[str, float]


def fit(m: Mechanism, table: CountTable, steps: int = 1) -> Fit:
    """Test counts against the mechanism, see the head of this module.

    Args:
        m: the mechanism.
        table: its counts.
        steps: over how many steps they were summed.

    Raises:
        ValueError: if the table is not the mechanism's or not counts, or steps < 1.
    """
    check_groups([(m, table)], steps)
    found = {name: log_p for name, log_p in _tests(m, table, steps).items() if log_p is not None} if table.n else {}
    if not found:
        return Fit(math.nan, math.nan, None, {})
    worst = min(found, key=lambda name: found[name][0])
    log_p, side = min(0.0, found[worst][0] + math.log(len(found))), found[worst][1]
    z = side * min(-float(special.ndtri_exp(log_p - math.log(2))), MAX_Z)
    return Fit(z + 0.0, math.exp(log_p), worst, {name: math.exp(min(0.0, value)) for name, (value, _) in found.items()})


def _tests(m: Mechanism, table: CountTable, steps: int) -> dict[str, LogP | None]:
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
    """Ones in all reports against their mean; neither that nor the variance depends on the values, nor on fake ones."""
    own, other = m.support_covariance(np.array([1.0, 0.0]), steps)[0]
    variance = table.n / steps * (own + (m.k - 1) * other)
    ones = int(table.counts.sum(dtype=object))
    excess = float(ones) - table.n * (m.p + (m.k - 1) * m.q)
    if not variance:
        return None
    if variance < NORMAL_VARIANCE:
        span = 2 ** math.ceil(math.log2(80 * math.sqrt(variance) + 64))  # 40 standard deviations to either side
        log_p = _log_tail_of_ones(m, table.n, steps, ones, excess > 0, span)
    else:
        log_p = float(norm.logsf(abs(excess) / math.sqrt(variance)))
    return math.log(2) + log_p, 1 if excess > 0 else -1


def _log_tail_of_ones(m: UnaryEncoding | LongitudinalUnary, n: int, steps: int, ones: int, above: bool, span: int) -> float:
    """ln of the chance of so many ones in n reports or more (less), by their probability generating function.

    `span`, a power of two: how many numbers of ones around the mean have any chance to speak of.

    The ones of a memo are drawn once and reported `steps` times: G(1 + w) = U(p1)^u U(q1)^(u(k-1)) for u people, with
    U(a) = a (1 + p2 w)^steps + (1 - a) (1 + q2 w)^steps; reports that are left over are one more person's. On the unit
    circle G is the Fourier transform of the chances. What is too rare for that gets Chernoff's bound, G(e^t) e^(-t ones) at its
    least over t.
    """
    p1, q1, p2, q2 = (m.p1, m.q1, m.p2, m.q2) if isinstance(m, LongitudinalUnary) else (1.0, 0.0, m.p, m.q)
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
        angle = 2j * math.pi * np.arange(span // 2 + 1) / span  # the other half is conjugate
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
    """(k,) support counts in standard errors of a value that nobody has, as far as they are below its mean; else 0."""
    variance = float(m.support_covariance(np.zeros(1), steps)[0][0]) * table.n / steps
    if not variance:
        return np.zeros(0)
    return np.asarray(np.minimum((m.support(table) - table.n * m.q) / math.sqrt(variance), 0))


def _floor(below: FloatArray) -> LogP | None:
    """Σ_j Binomial(k, 1/2)(j) Pr[χ²_j >= Σ z²]; weights that are negligible are left out."""
    if not below.size:
        return None
    k, reach = below.size, 8 * math.ceil(math.sqrt(below.size))
    degrees = np.arange(max(1, k // 2 - reach), min(k, k // 2 + reach) + 1)
    log_p = binom.logpmf(degrees, k, 0.5) + _log_gamma_tail(float((below**2).sum()) / 2, degrees / 2)
    return float(special.logsumexp(log_p)), -1


def _least(below: FloatArray) -> LogP | None:
    """Bonferroni's bound for the least of k."""
    return (math.log(below.size) + float(norm.logcdf(below.min())), -1) if below.size else None


def _functions(table: CountTable, size: int, repeats: int) -> LogP | None:
    """Pairs of reports with the same of `size` functions, n (n-1) / 2 pairs in all, of which each has it with chance 1/size.

    Pairs are uncorrelated; three reports make triples of pairs that are not, which gives the third moment. One-sided, since
    dividing by the repeats makes the counts too even where it was not the same people at every step.
    """
    n, chance = table.n / repeats, 1 / size
    if n < 2:
        return None
    reports = table.counts.sum(axis=1) / repeats
    pairs = n * (n - 1) / 2
    variance = pairs * chance * (1 - chance)
    third = variance * (1 - 2 * chance) + n * (n - 1) * (n - 2) * chance**2 * (1 - chance)
    shape, scale = 4 * variance**3 / third**2, third / (2 * variance)
    found = float((reports * (reports - 1)).sum()) / 2 - (0.5 if repeats == 1 else 0)  # half a pair: they are whole numbers
    return float(_log_gamma_tail((found - pairs * chance) / scale + shape, np.array([shape]))[0]), 1


def _symbols(table: CountTable, repeats: int) -> LogP | None:
    """Pearson's χ² of the symbols but 0, divided by the repeats: at most so often a kept memo sends the same symbol."""
    reports = table.counts.sum(axis=0)[1:].astype(np.float64)
    if reports.size < 2 or reports.mean() < FEW:
        return None
    chi_squared = float(((reports - reports.mean()) ** 2).sum() / reports.mean()) / repeats
    return float(_log_gamma_tail(chi_squared / 2, np.array([(reports.size - 1) / 2]))[0]), 1


def _counts(m: ChannelMechanism, table: CountTable, steps: int) -> LogP | None:
    """The deviance of the best-fitting distribution: never above that of the true one, whose mean and variance are known.

    They are those of k Poisson counts whose sum is given, at the fitted means. The counts of people who report `steps` times
    vary by at most so many times as much, hence the division.
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
    """Mean and variance of the deviance Σ 2 c ln(c/μ) of multinomial counts c with those means μ.

    Those of independent Poisson counts, by the definition for μ < 30 and from there on as χ² with the mean's correction
    1 + 1/(6μ); less what their sum, which is given, takes with it: 1, a k-th, and what goes along with the sum itself.
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
    """ln Pr[Gamma(shape) >= x] for every shape; where that underflows, the bound x^(a-1) e^-x / (Γ(a) (1 - (a-1)/x))."""
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
    """The largest move of a frequency between two estimates.

    Attributes:
        sigma: in standard errors of the difference.
        value: of which value.
        p: probability of so large a move of any value without drift, at most (Bonferroni's, over all values).
    """

    sigma: float
    value: int
    p: float


def drift(before: Estimate, after: Estimate) -> Drift | None:
    """How far the frequencies have moved; None if one of the two has no reports.

    The two estimates' errors are taken for independent. With kept memos and the same people a part of them is the same in both
    and cancels, so what is reported is then the smaller, careful figure: on a population that does not change it is far below
    a standard normal's. Above 5 is hardly ever chance, even for k = 10 000 (p = 0.6 %).
    """
    spread = np.hypot(before.standard_errors, after.standard_errors)
    moved = np.abs(after.frequencies - before.frequencies)
    if np.isnan(spread).any() or np.isnan(moved).any():
        return None
    scores = np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)
    sigma = float(scores.max())
    return Drift(sigma, int(scores.argmax()), min(1.0, scores.size * 2 * float(norm.sf(sigma))))


def mass_below_zero(estimate: Estimate) -> float:
    """Σ of the negative frequencies, as a positive number: what noise has put below zero; NaN without reports."""
    return float(-np.minimum(estimate.frequencies, 0).sum())
