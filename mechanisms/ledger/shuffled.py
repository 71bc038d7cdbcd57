"""Privacy loss for an observer of n reports without their senders: amplification by shuffling.

"Table" below means the set of a step's reports: how often each report occurs. Let R be the randomizer of a report, ε its loss
and E = e^ε. For every mechanism that states a `Blanket`, a part B that all values have in common (the privacy blanket)
satisfies

    R(y | v) = γ B(y) (1 + (E-1) [y hits v]),   Pr[y hits v | B] = π,   γ = 1 / (1 + (E-1) π)

A report hits v if its symbol, bit, set or wave supports v. A report drawn from B hits both of two values with probability π₁₁,
the smallest over all pairs. Let i be 1 if such a report hits v, else 0, and let j be the same for v'. Let ln x be the
loss whose δ is bounded. With probability γ let V be 1 - x + (E-1) (i - x j), else 0. For any values of the n-1 others, and also
for a reader who knows these values (Balle, Bell, Gascón and Nissim 2019, Lemma 5.3),

    δ(ln x) = max_S Pr[table in S | v] - x Pr[table in S | v'] <= E[(V₁ + … + V_n)₊] / n

The published "variation-ratio" pair can be smaller than δ, so it is not a bound: see docs/evidence/errata.md.

`table_delta` computes the right side, rounded up, or the bound for one report alone if that is smaller.

`shuffled_loss` composes tables. The convolution of the loss distributions of all tables (`loss_distribution.of_curve`) bounds
the loss of all tables together (Zhu, Dong and Wang 2022).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache

from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.ledger.loss_distribution import POINTS, ROUNDING, LossDistribution, of_curve

CELLS = 2**12, 2**13  # cells of the lattice of a table's sum: usual and largest number
WIDER = 0.002  # the lattice may raise the variance of a table's sum by this share
SPREAD = 10.0  # the lattice reaches this many standard deviations to either side
TAIL = 1e-3  # largest share of δ for losses beyond the last point
MOST_EPS, MOST_TABLES = 20.0, 10**6  # we compute no bound for a larger loss or for more tables
MOST_REPORTS = 10**7  # a table of more reports gets the bound of this number, since more reports reveal less
UNIT, SMALL = sys.float_info.epsilon, 1e-300


@dataclass(frozen=True, slots=True)
class Blanket:
    """The privacy blanket of a report: a part of its distribution that all values have in common.

    Attributes:
        eps: ε, the loss of a report, in nats.
        hit: π, probability that a report drawn from the blanket hits a value.
        both: π₁₁, probability that a report drawn from the blanket hits both of two values; the smallest over all pairs of
            values.
    """

    eps: float
    hit: float
    both: float

    @property
    def share(self) -> float:
        """γ, the probability that a report comes from the blanket."""
        return 1 / (1 + math.expm1(self.eps) * self.hit)

    def atoms(self, eps: float) -> tuple[FloatArray, FloatArray]:
        """The values of V for x = e^eps, and their probabilities."""
        one, share, gain = self.hit - self.both, self.share, math.expm1(self.eps)
        hits = np.array([0.0, gain, -math.exp(eps) * gain, -math.expm1(eps) * gain])
        chances = share * np.array([1 - 2 * self.hit + self.both, one, one, self.both])
        return np.append(0.0, hits - math.expm1(eps)), np.append(1 - share, np.maximum(chances, 0))


@dataclass(frozen=True)
class _Sum:
    values: FloatArray
    chances: FloatArray
    n: int

    def log_mean(self, tilt: float) -> float:
        """ln E[e^{tilt · sum}]."""
        exponents = np.where(self.chances > 0, tilt * self.values, -np.inf)
        top = float(exponents.max())
        return self.n * (top + math.log(float(self.chances @ np.exp(exponents - top))))

    def tilted(self, tilt: float) -> FloatArray:
        exponents = tilt * self.values
        weights = self.chances * np.exp(exponents - exponents.max())
        return np.asarray(weights / weights.sum())

    def centre(self) -> float:
        """The tilt >= 0 with which one number has the mean 0.

        Without a tilt the mean must be at most 0, and the largest value must be positive.
        """
        high = 1 / float(self.values.max())
        while self.tilted(high) @ self.values < 0:
            high *= 2
        low = 0.0
        for _ in range(50):
            tilt = (low + high) / 2
            low, high = (tilt, high) if self.tilted(tilt) @ self.values < 0 else (low, tilt)
        return low


def _power(places: IntArray, chances: FloatArray, n: int, size: int) -> tuple[FloatArray, float]:
    """Distribution of a sum of n independent numbers, by places modulo `size`, and a bound of the sum of its absolute errors.

    The bound assumes that each result of a transform has an error of at most 64 units in the last place of the sum of its
    input's absolute values.
    """
    once = np.zeros(size)
    np.add.at(once, places % size, chances)
    spectrum = np.fft.rfft(once)
    spectrum[spectrum == 0] = SMALL
    found = np.maximum(np.fft.irfft(np.exp(n * np.log(spectrum)), size), 0)
    return found, 64 * UNIT * (n * math.sqrt(size) + size) * float(np.linalg.norm(found))


def table_delta(blanket: Blanket, n: int, eps: float) -> float:
    """Upper bound of δ(eps) for a table of n reports, for eps in [0, `blanket.eps`].

    >>> grr = Blanket(1.0, 1 / 4, 0.0)  # GRR on 4 values
    >>> [f"{table_delta(grr, n, 0.5):.4f}" for n in (1, 4, 100)]
    ['0.1870', '0.0509', '0.0000']
    """
    gain = math.expm1(blanket.eps)
    local = blanket.share * ((blanket.hit - blanket.both) * (gain - math.expm1(eps)) + 8 * UNIT * gain)
    if n == 1 or eps >= blanket.eps:
        return max(local, 0.0)
    values, chances = blanket.atoms(eps)
    tilt = _Sum(values, chances, n).centre()
    tilted = _Sum(values, chances, n).tilted(tilt)
    deviation = math.sqrt(n * float(tilted @ values**2))
    parts = max(1, math.floor(CELLS[0] * gain / (2 * SPREAD * deviation)))
    while True:
        unit = gain / parts  # E-1 is a multiple of the unit, so the lattice hardly widens V
        cells = 2 ** math.ceil(math.log2(2 * SPREAD * deviation / unit))
        places = np.floor(values / unit)
        above = np.minimum(values / unit - places + 1e-12 * (1 + np.abs(places)), 1)  # rounds the mean up
        if n * float(tilted @ (above * (1 - above))) * unit**2 < WIDER * deviation**2 or cells >= CELLS[1]:
            break
        parts *= 2
    lattice = _Sum(np.append(places, places + 1) * unit, np.append(chances * (1 - above), chances * above), n)
    found, error = _power(np.append(places, places + 1).astype(np.int64), lattice.tilted(tilt), n, cells)
    ahead, reach = np.arange(1, cells // 2) * unit, cells // 2 * unit
    sums = float((ahead * np.exp(-tilt * ahead)) @ found[1 : cells // 2])
    sums += error * (reach if tilt * reach < 1 else 1 / (math.e * tilt))
    if lattice.log_mean(tilt) > 1:  # the lattice is too coarse: without rounding, `log_mean` is at most 0
        return local
    total = math.exp(lattice.log_mean(tilt)) * sums
    steep = [max(tilt, 1 / reach) + c / deviation for c in (0, 2, 4, 8, 12, 16)]
    # beyond the reach T: z <= T e^{s (z-T)} for z >= T >= 1/s
    total += reach * math.exp(min(700.0, *(lattice.log_mean(s) - s * reach for s in steep)))
    return float(min(local, total * (1 + 1e-9 + 64 * n * UNIT) / n))


@lru_cache(maxsize=256)
def shuffled_loss(blanket: Blanket, n: int, tables: int, delta: float) -> LossDistribution | None:
    """Upper bound of the privacy loss from several tables of at least n reports; None beyond `MOST_EPS` or `MOST_TABLES`.

    Args:
        blanket: blanket of the reports; if all tables come from the same memos, blanket of the memos, and `tables` is 1.
        n: smallest number of reports of a table, with the person's report.
        tables: number of tables with a fresh report of the person.
        delta: probability for which the points are chosen. The result is valid for every probability.
    """
    if blanket.eps > MOST_EPS or tables > MOST_TABLES:
        return None
    n = min(n, MOST_REPORTS)
    last = max(_last_point(blanket, n, TAIL * delta / tables), 1e-9)
    grid = np.arange(POINTS + 1, dtype=np.float64) * (last / POINTS)
    over = np.minimum.accumulate([table_delta(blanket, n, eps) for eps in grid.tolist()])  # δ never rises
    places, chances = of_curve(grid, over)
    unit, size = last / POINTS, 2
    mean, deviation = float(chances @ places), math.sqrt(float(chances @ places.astype(float) ** 2))
    while size < min(2 * SPREAD * deviation * math.sqrt(tables) + 4 * POINTS, 2 * POINTS * tables + 2):
        size *= 2
    found, error = _power(places, chances, tables, size)
    first = max(round(tables * mean) - size // 2, -POINTS * tables)
    inside = np.arange(first, first + size)
    losses = np.asarray(inside * unit, np.float64)
    infinite = -math.expm1(tables * math.log1p(-float(over[-1]))) + error + tables * ROUNDING
    total = _Sum(places.astype(float), chances, tables)
    for edge in (first - 1, first + size):
        sign = -1 if edge < first else 1
        if abs(edge) <= POINTS * tables:
            steep = [c / (deviation * math.sqrt(tables)) for c in (2, 4, 8, 12)]
            infinite += math.exp(min(0.0, *(total.log_mean(sign * s) - sign * s * edge for s in steep)))
    return LossDistribution(losses, found[inside % size], infinite)


def _last_point(blanket: Blanket, n: int, delta: float) -> float:
    low, high = 0.0, blanket.eps
    for _ in range(30):
        middle = (low + high) / 2
        table = _Sum(*blanket.atoms(middle), n)
        tilt = table.centre() if table.values.max() > 0 else 0.0
        small = tilt > 0 and table.log_mean(tilt) - math.log(math.e * tilt * n) < math.log(delta)
        low, high = (low, middle) if small else (middle, high)
    return high
