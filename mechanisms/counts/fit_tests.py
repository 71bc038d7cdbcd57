"""Tests of a count table against its mechanism, valid for every distribution of the values."""

import math

import numpy as np
from scipy import special

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.reading import CountedMechanism
from ldpstream.mechanisms.table import CountTable

ENOUGH_PAIRS = 50.0  # expected pairs of reports with one function, times g - 1; if fewer, one pair shifts the floor test
FEW = 5.0  # reports per symbol; with fewer reports, the χ² distribution is inaccurate
TILTS = 256  # exponents s of which the best one bounds the number of ones

Rounds = tuple[float, float, float, float]  # p1, q1, p2, q2: the bits of the memo, then of the report (`Mechanism.rounds`)
LogP = tuple[float, int]  # ln p of one test, and the sign of the deviation: +1 above the mean, -1 below the mean


def ones(m: CountedMechanism, rounds: Rounds, table: CountTable, steps: int) -> LogP | None:
    """Tests the number of ones in all reports, by Chernoff's bound. Its distribution does not depend on the values, real or
    fake.

    A device draws the ones of a memo once and reports them `steps` times. So the ones of u people have the generating function

        G(1 + w) = U(p1)^u U(q1)^(u(k-1)),   U(a) = a (1 + p2 w)^steps + (1 - a) (1 + q2 w)^steps

    and Pr[found or more ones] <= G(e^s) e^(-s found) for every s > 0, and likewise found or fewer for s < 0.
    """
    own, other = m.reading.support_variances(np.array([1.0, 0.0]), steps)
    variance, found = table.n / steps * (own + (m.k - 1) * other), float(table.counts.sum(dtype=object))
    excess = found - table.n * (m.p + (m.k - 1) * m.q)
    p1, q1, p2, q2 = rounds
    if not variance:
        return None
    least = max(abs(excess) / (variance + abs(excess)) / 2, 1e-12)  # the best exponent is larger, as for a Poisson number
    tilts = np.copysign(np.geomspace(least, max(least, min(60.0, 600 / steps)), TILTS), excess)
    log_chances = -tilts * found
    for people, each in ((table.n // steps, steps), (1, table.n % steps)):
        high, low = (np.expm1(each * np.log1p(chance * np.expm1(tilts))) for chance in (p2, q2))
        of_value, of_other = (np.log1p(a * high + (1 - a) * low) for a in (p1, q1))
        log_chances += people * (of_value + (m.k - 1) * of_other)
    return math.log(2) + float(log_chances.min()), 1 if excess > 0 else -1


def hashes(table: CountTable, size: int, g: int, memoized: bool, steps: int) -> dict[str, LogP | None]:
    """Returns the tests of the functions and of the symbols of local hashing.

    The entry ``"floor"`` is None if the floor test is unreliable, and is absent otherwise.

    Args:
        memoized: true if a device keeps its function.
        steps: number of reports of one device.
    """
    repeats = steps if memoized else 1
    tests = {"functions": functions(table, size, repeats), "symbols": symbols(table, repeats)}
    few = (table.n / steps) ** 2 * (g - 1) / (2 * size) < ENOUGH_PAIRS
    return tests | ({"floor": None} if few else {})


def functions(table: CountTable, size: int, repeats: int) -> LogP | None:
    """Tests the number of pairs of reports, or of memoized devices, with equal functions.

    A pair is equal with probability 1/size.
    """
    n, chance = table.n / repeats, 1 / size
    if n < 2:
        return None
    reports = table.counts.sum(axis=1) / repeats
    pairs = n * (n - 1) / 2
    variance = pairs * chance * (1 - chance)
    third = variance * (1 - 2 * chance) + n * (n - 1) * (n - 2) * chance**2 * (1 - chance)
    if third <= 0:  # only for one pair and two functions
        return None
    shape, scale = 4 * variance**3 / third**2, third / (2 * variance)
    found = float((reports * (reports - 1)).sum()) / 2 - (0.5 if repeats == 1 else 0)  # continuity correction
    return float(log_gamma_tail((found - pairs * chance) / scale + shape, np.array([shape]))[0]), 1


def symbols(table: CountTable, repeats: int) -> LogP | None:
    """Tests Pearson's χ² of all symbols except 0, divided by `repeats`."""
    reports = table.counts.sum(axis=0)[1:].astype(np.float64)
    if reports.size < 2 or reports.mean() < FEW:
        return None
    chi_squared = float(((reports - reports.mean()) ** 2).sum() / reports.mean()) / repeats
    return float(log_gamma_tail(chi_squared / 2, np.array([(reports.size - 1) / 2]))[0]), 1


def classes(table: CountTable, width: int, far: float, near: float) -> LogP | None:
    """Tests Pearson's χ² of the counts of cell numbers modulo `width`."""
    remainders = np.arange(table.counts.size) % width
    reports = np.bincount(remainders, weights=table.counts, minlength=width)
    chance = far * np.bincount(remainders) + near - far
    mean = width - 1
    variance = 2 * mean + (float((1 / chance).sum()) - width**2 - 2 * mean) / table.n
    if variance < 1e-9:  # for one report and equal chances, χ² is a constant
        return None
    chi_squared = float(((reports - table.n * chance) ** 2 / (table.n * chance)).sum())
    return float(log_gamma_tail(chi_squared * mean / variance, np.array([mean**2 / variance]))[0]), 1


def log_gamma_tail(x: float, shapes: FloatArray) -> FloatArray:
    """ln Pr[Gamma(a) >= x] for every shape a; if Pr underflows, ln of the bound x^(a-1) e^-x / (Γ(a) (1 - (a-1)/x))."""
    if x <= 0:
        return np.zeros(shapes.size)
    with np.errstate(divide="ignore"):
        log_p = np.log(special.gammaincc(shapes, x))
    far = np.isneginf(log_p)
    a = shapes[far]
    log_p[far] = (a - 1) * math.log(x) - x - special.gammaln(a) - np.log1p(-np.minimum((a - 1) / x, 0.999))
    return np.asarray(log_p)
