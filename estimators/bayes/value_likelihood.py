"""Likelihood of each value's share among the people who report, given the raw inversion: the input of empirical Bayes.

For random people, `Reading.support_covariance` gives the covariance of the inversion z: a diagonal matrix minus products of
vectors. For given people, the values are treated as independent, given that their shares sum to 1. A value's variance N(f) is
its entry of the diagonal at the share f, minus f / people. The likelihood is the
exponential family with mean f and variance N(f), up to a factor that does not depend on f:

    ln L(f; z) = z A(f) - B(f),    A(f) = ∫ df / N(f),    B(f) = ∫ f df / N(f)

Source: Wedderburn 1974 (quasi-likelihood); Morris 1982 (exponential families with a quadratic variance).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy import special

from ldpstream.estimators.estimate import Group, Steps, of_each_group
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.counts.reading import Variance

SPACING = 0.4  # distance of neighbouring points, in standard errors
LARGE = 5.0  # a share this many standard errors above zero is certainly more than noise
REACH = 7.0  # a value's points lie within this many standard errors of its inversion, cut to [0, 1]
FINE = 0.5  # points per factor of e near zero, where shares are smaller than the noise, in units of 1 / SPACING
FORGED = 10.0  # largest distance of the shares' sum from 1 with honest reports, in standard errors
NEARLY, ALIKE = 0.125, 0.02  # widths of the classes of nearly equal kinds: in standard errors, and in ln(noise variance)
LEAST_PART, MOST_PART = 0.1, 0.95  # smallest and largest part of the inversion's noise that sharper shares may have
_TABLE = 2000  # entries of the table from shares to positions on the grid


@dataclass(frozen=True, slots=True)
class Observation:
    """A group's raw inversion.

    Attributes:
        z: (k,) raw inversion.
        variance: the function N, from shares in [0, 1] to variances; or (k,) variances that do not depend on the share.
    """

    z: FloatArray
    variance: Variance | FloatArray

    def precision(self, f: FloatArray) -> FloatArray:
        """Returns 1 / N at shares f of any shape, or the (k,) fixed precisions."""
        return np.asarray(1 / (self.variance(f) if callable(self.variance) else self.variance))

    def integrals(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns (k,) factors c, and a and b at the points, by Simpson's rule, with A = c a and B = c b for each value."""
        if not callable(self.variance):
            return self.precision(points), points, points**2 / 2
        middle, width = (points[1:] + points[:-1]) / 2, np.diff(points)
        ends, inside = np.split(self.precision(np.concatenate([points, middle])), [points.size])
        a = (ends[1:] + 4 * inside + ends[:-1]) / 6 * width
        b = ((ends * points)[1:] + 4 * inside * middle + (ends * points)[:-1]) / 6 * width
        return np.ones(self.z.size), np.append(0.0, np.cumsum(a)), np.append(0.0, np.cumsum(b))


def observations(groups: list[Group], steps: Steps = 1) -> list[Observation]:
    """Returns the inversion of each group with information."""
    found, (people, concentration) = [], people_of(groups, steps)
    k = groups[0][0].k
    for m, table, each in informative(groups, steps):
        raw = matrix_inversion(m, table, steps=each)
        z = raw.frequencies[:k]
        noise = m.reading.noise(raw.standard_errors[:k] ** 2, table.n, each, people / concentration)
        found.append(Observation(_with_possible_sum(z, noise) if callable(noise) else z, noise))
        sharper = m.reading.sharpened(table) if each == 1 else None
        if sharper is not None and callable(noise):
            sharp, variance = sharper
            shares = np.clip(sharp, 0, 1)
            of_people = float((shares * (1 - shares)).sum()) / people
            part = (_given_the_sum(variance) - of_people) / _given_the_sum(noise(shares))
            if LEAST_PART < part < MOST_PART:  # forged or very few counts give less, and a small gain can be a loss
                found[-1] = Observation(sharp, partial(_of_part, part, noise))
    return found


def _given_the_sum(variance: FloatArray) -> float:
    return float(variance.sum() - variance @ variance / variance.sum())


def _of_part(part: float, noise: Variance, shares: FloatArray) -> FloatArray:
    return part * noise(shares)


def _with_possible_sum(z: FloatArray, noise: Variance) -> FloatArray:
    excess = z.sum() - 1
    error = np.sqrt(noise(np.full(z.size, 1 / z.size)).sum())
    return z - excess / z.size if abs(excess) > FORGED * error else z


def informative(groups: list[Group], steps: Steps = 1) -> Iterator[tuple[Mechanism, CountTable, int]]:
    """Yields the `Mechanism.separating_part` of each group with information, with its steps."""
    for (own, whole), each in zip(groups, of_each_group(groups, steps), strict=True):
        m, table = own.separating_part(whole)
        if table.n and m.p != m.q:
            yield m, table, each


def people_of(groups: list[Group], steps: Steps) -> tuple[float, float]:
    """Returns the number of people of the groups with p ≠ q, and their concentration c.

    A person makes the `steps` reports of the group. people / c is the sum of each group's people / `Reading.concentration`.
    """
    pairs = zip(groups, of_each_group(groups, steps), strict=True)
    told = [(table.n / each, m.reading.concentration(each)) for (m, table), each in pairs if m.p != m.q]
    people = sum(number for number, _ in told)
    return people, people / max(sum(number / c for number, c in told), 1e-300)


@dataclass(frozen=True, slots=True)
class ValueLikelihood:
    """Likelihoods of the values on a common grid. Values with equal inversions form one kind: kind i has `times[i]` values.

    The likelihoods of kind i are the entries start[i] … start[i + 1] - 1, at successive points from first[i] on.

    Attributes:
        points: (J,) shares, ascending.
        edges: (2, J) lower and upper end of the cell of each point.
        kind, times: (k,) kind of each value, and (kinds,) number of values of each kind.
        unbiased, noise: (kinds,) combined inversion of each kind's values, and its variance.
        error: standard error of a share of zero.
        start, first: (kinds + 1,) and (kinds,) positions as above.
        log_like: (start[-1],) log-likelihoods; the largest of each kind is 0.
    """

    points: FloatArray
    edges: FloatArray
    kind: IntArray
    times: FloatArray
    unbiased: FloatArray
    noise: FloatArray
    error: float
    start: IntArray
    first: IntArray
    log_like: FloatArray

    @property
    def places(self) -> IntArray:
        """(start[-1],) the point of each entry."""
        return _places(self.start, self.first)

    def moments(self, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the mean and the variance of each kind's posterior, (kinds,) each."""
        f, begin = self.points[self.places], self.start[:-1]
        mean = np.add.reduceat(posterior * f, begin)
        away = f - np.repeat(mean, np.diff(self.start))
        return mean, np.add.reduceat(posterior * away**2, begin)

    def gammas(self, means: FloatArray, shapes: FloatArray) -> FloatArray:
        """Returns the probability of each point's cell under gamma distributions with these shapes and means, (shapes, J)."""
        ends, place = np.unique(self.edges.ravel(), return_inverse=True)  # a cell's upper end is often the next one's lower end
        below = special.gammainc(shapes[:, None], (shapes / means)[:, None] * ends)
        low, high = place.reshape(2, -1)
        return np.asarray(below[:, high] - below[:, low])

    def power_laws(self, k: int, exponents: FloatArray) -> FloatArray:
        """Returns the probability of each point's cell under the densities in proportion to f^-exponent on (1 / 4k, 1)."""
        ends = np.concatenate([np.clip(self.edges, 1 / (4 * k), 1).ravel(), [1 / (4 * k), 1]])
        integral = special.boxcox(ends, 1 - exponents[:, None])  # ∫ f^-exponent df, also for exponent 1
        low, high, (begin, end) = integral[:, : self.points.size], integral[:, self.points.size : -2], integral[:, -2:].T
        return np.asarray((high - low) / (end - begin)[:, None])

    def merged(self) -> "ValueLikelihood":
        """Returns the likelihoods with each class of nearly equal kinds (`NEARLY`, `ALIKE`) as one kind, their middle one.

        In the result, `kind` has the merged kind of each original kind.
        """
        noise = np.round(np.log(self.noise) / ALIKE)
        place = np.round(self.unbiased / (NEARLY * np.exp(noise * ALIKE / 2)))
        order = np.lexsort([self.unbiased, place, noise])
        new = np.concatenate([[True], (np.diff(noise[order]) != 0) | (np.diff(place[order]) != 0)])
        begin = np.flatnonzero(new)
        of = np.empty(order.size, np.int64)
        of[order] = np.cumsum(new) - 1
        middle = order[(begin + np.append(begin[1:], order.size)) // 2]
        return self._of_kinds(middle, of, np.bincount(of, self.times).astype(np.float64))

    def apart(self) -> "ValueLikelihood":
        """Returns the likelihoods with every value as a kind of its own: kind v is value v."""
        return self._of_kinds(self.kind, np.arange(self.kind.size), np.ones(self.kind.size))

    def _of_kinds(self, kinds: IntArray, kind: IntArray, times: FloatArray) -> "ValueLikelihood":
        start = np.append(0, np.cumsum(np.diff(self.start)[kinds]))
        log_like = self.log_like[_places(start, self.start[kinds])]
        return ValueLikelihood(
            self.points, self.edges, kind, times, self.unbiased[kinds], self.noise[kinds], self.error, start, self.first[kinds],
            log_like,
        )  # fmt: skip


def value_likelihood(seen: list[Observation], k: int, finer: float = 1.0) -> ValueLikelihood:
    """Returns the likelihood of every value's share on a grid of shares.

    Args:
        finer: divides the distance between neighbouring points.
    """
    fixed = [s.variance for s in seen if not callable(s.variance)]
    representative, kind, times = kinds([s.z for s in seen] + fixed)
    z = np.array([s.z[representative] for s in seen])
    table, fine = _table(k)
    info = sum(s.precision(table) if callable(s.variance) else np.full(table.size, s.precision(table).max()) for s in seen)
    error = 1 / np.sqrt(np.asarray(info))
    weights = [
        s.precision(np.clip(own, 0, 1)) if callable(s.variance) else s.precision(own)[representative]
        for s, own in zip(seen, z, strict=True)
    ]
    total = np.sum(weights, axis=0)
    unbiased = (np.array(weights) * z).sum(axis=0) / total
    centre = np.clip(unbiased, 0, 1)
    away = _cumulative(table, 1 / error)  # distance of each share from zero, in standard errors
    position = (away + fine) * finer / SPACING
    at = np.interp(centre, table, away)
    reach = REACH / np.sqrt(total) / np.interp(centre, table, error)
    low = np.floor(np.interp(at - reach, away, position)).astype(np.int64)
    high = np.ceil(np.interp(at + reach, away, position)).astype(np.int64)
    used = _union(low, high)
    points = np.interp(used, position, table)
    edges = np.interp(np.clip([used - 0.5, used + 0.5], 0, position[-1]), position, table)
    points[(edges[0] <= 1 / k) & (1 / k < edges[1])] = 1 / k  # makes exactly equal shares possible
    first, size = np.searchsorted(used, low), high - low + 1
    start = np.concatenate([[0], np.cumsum(size)])
    log_like = np.zeros(start[-1])
    place = _places(start, first)
    for s, own in zip(seen, z, strict=True):
        factor, a, b = s.integrals(points)
        factor = factor[representative]
        log_like += np.repeat(factor * own, size) * a[place] - np.repeat(factor, size) * b[place]
    log_like -= np.repeat(np.maximum.reduceat(log_like, start[:-1]), size)
    return ValueLikelihood(points, edges, kind, times, unbiased, 1 / total, float(error[0]), start, first, log_like)


def _places(start: IntArray, first: IntArray) -> IntArray:
    """Numbers the entries start[i] … start[i + 1] - 1 from first[i] on."""
    return np.asarray(np.arange(start[-1]) + np.repeat(first - start[:-1], np.diff(start)))


@lru_cache(maxsize=128)
def _table(k: int) -> tuple[FloatArray, FloatArray]:
    table = np.concatenate([[0.0], np.geomspace(1e-4 / k, 1.0, _TABLE)])
    return table, _cumulative(table, FINE / (table + 1 / (4 * k)))


def _union(low: IntArray, high: IntArray) -> IntArray:
    order = np.argsort(low)
    begin, reached = low[order], np.maximum.accumulate(high[order])
    new = np.concatenate([[True], begin[1:] > reached[:-1]])
    begin, end = begin[new], reached[np.concatenate([np.flatnonzero(new)[1:] - 1, [low.size - 1]])]
    size = end - begin + 1
    before = np.cumsum(size) - size
    return np.asarray(np.arange(size.sum()) + np.repeat(begin - before, size))


def _cumulative(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum((y[1:] + y[:-1]) / 2 * np.diff(x))])


def kinds(columns: list[FloatArray]) -> tuple[IntArray, IntArray, FloatArray]:
    """Groups the k values into kinds: two values are of one kind if they have the same number in each of the columns, (k,).

    Returns each kind's first value, each value's kind, and the kinds' sizes.
    """
    _, first, kind, times = np.unique(columns[0], return_index=True, return_inverse=True, return_counts=True)
    for column in columns[1:]:
        if (column != column[0]).any():
            both = kind * column.size + np.unique(column, return_inverse=True)[1]
            _, first, kind, times = np.unique(both, return_index=True, return_inverse=True, return_counts=True)
    return first, kind, times.astype(np.float64)
