"""Subset selection (SS): a report is a set of ω values, which contains the device's value with probability p.

    p = ω e^ε / (ω e^ε + k - ω)         Pr[the set contains the value]; the rest of the set is uniform among other values
    q = p (ω-1)/(k-1) + (1-p) ω/(k-1)   Pr[the set contains a given other value]

Each set with the value is e^ε times as likely as each set without the value. With ω = 1 the mechanism is GRR. Sources: Ye and
Barg 2018; Wang et al. 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import NormalDist
from typing import Any

from ldpstream.mechanisms.arguments import FloatArray, IntArray, Reports, epsilon, integer, user_values
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.privacy_claims import Claims
from ldpstream.mechanisms.counts.reading import Reading
from ldpstream.mechanisms.devices import BitArray, Coin, Coins, DeviceRandom, OneTimeRandomizer, Parameters, bits_row, coin
from ldpstream.mechanisms.families.unary import Bits
from ldpstream.mechanisms.kernels.bits import bernoulli_rows, padding_mask, row_ones, set_bits
from ldpstream.mechanisms.kinds import OneTime, OneTimeClaims
from ldpstream.mechanisms.ledger import Blanket


@dataclass(frozen=True)
class RandomSubset:
    """A set of `size` of the k values: each set with the value is e^eps times as likely as each set without it."""

    k: int
    size: int
    eps: float

    @cached_property
    def p(self) -> float:
        """Pr[the set contains the value]."""
        return 1 / (1 + (self.k - self.size) / self.size * math.exp(-self.eps))

    @cached_property
    def not_p(self) -> float:
        """1 - p, without cancellation."""
        return (self.k - self.size) / self.size * math.exp(-self.eps) * self.p

    @cached_property
    def q(self) -> float:
        """Pr[the set contains a given other value]."""
        return (self.p * (self.size - 1) + self.not_p * self.size) / (self.k - 1)

    @property
    def variance(self) -> float:
        return self.q * (1 - self.q) / (self.p - self.q) ** 2

    @property
    def coin(self) -> Coin:
        return coin(self.p, self.not_p)

    @property
    def blanket(self) -> Blanket:
        return Blanket(self.eps, self.size / self.k, self.size * (self.size - 1) / (self.k * (self.k - 1)))

    @property
    def favours(self) -> float:
        """Pr[the set contains the value and not a given other value]."""
        return self.p * (self.k - self.size) / (self.k - 1)

    def pair_chances(self) -> tuple[float, float]:
        """Pr[the set contains the value and a given other value], Pr[it contains two given other values]."""
        k, size = self.k, self.size
        without = (self.p * (size - 1) * (size - 2) + self.not_p * size * (size - 1)) / ((k - 1) * max(k - 2, 1))
        return self.p * (size - 1) / (k - 1), without

    def covariance_rows(self, scale: float, frequencies: FloatArray) -> list[FloatArray]:
        """Rows x: scale² times the covariance that the set contains u and that it contains v is -Σ_r x_ru x_rv.

        The covariance is -(a + b (f_u + f_v) + d² f_u f_v), d = p - q.
        """
        q, d = self.q, self.p - self.q
        with_value, both_others = self.pair_chances()
        a, b = q**2 - both_others, q * d - with_value + both_others
        level, slope = (q, d) if self.size == 1 else (math.sqrt(a), b / math.sqrt(a))  # q² may underflow if ω = 1
        return [scale * (level + slope * frequencies), scale * math.sqrt(max(d**2 - slope**2, 0.0)) * frequencies]

    def rows(self, values: IntArray, rng: np.random.Generator) -> Reports:
        """A set for each of the values, for simulations, as packed bits."""
        from ldpstream.mechanisms.kernels.random_kernels import settle

        k, share = self.k, self.size / self.k  # an addition takes 1 / (1 - share) draws, and a removal 1 / share
        start = share + NormalDist().inv_cdf(share) * math.sqrt(share * (1 - share) / k)  # nearly the fewest draws

        def settled(rows: Reports, part: slice) -> None:
            own = values[part]
            inside, alone = rng.random(own.size) < self.p, np.zeros_like(rows)
            set_bits(rows, own, inside)
            set_bits(alone, own, np.ones_like(inside))
            settle(rows, alone, inside.astype(np.int64), self.size, k, rng.integers(0, 2**64, 4, np.uint64))

        return bernoulli_rows(min(max(start, 0.0), 1.0), values.size, k, rng, settled)


def best_omega(k: int, eps: float) -> int:
    """The integer ω in [1, k-1] next to the real optimum k/(e^ε+1), below or above, with the smaller variance q(1-q)/(p-q)²."""
    real = k / (math.exp(eps) + 1)
    near = {max(1, math.floor(real)), min(k - 1, max(1, math.ceil(real)))}
    return min(near, key=lambda omega: RandomSubset(k, omega, eps).variance)


def draw_places(n: int, size: int, random: DeviceRandom) -> set[int]:
    """A uniform set of `size` of the numbers 0 … n-1, by Floyd's algorithm (Bentley and Floyd 1987)."""
    drawn: set[int] = set()
    for last in range(n - size, n):
        place = random.below(last + 1)
        drawn.add(last if place in drawn else place)
    return drawn


def draw_subset(value: int, k: int, size: int, with_value: Coin, random: DeviceRandom) -> BitArray:
    """k bits with `size` ones: tosses whether the value is in the set, then draws the other values."""
    inside = bool(random.toss(with_value, 1)[0])
    bits = bytearray(k)
    for other in draw_places(k - 1, size - inside, random):
        bits[other + (other >= value)] = 1
    bits[value] = inside
    return bits


def has_ones(rows: Reports, k: int, size: int) -> npt.NDArray[np.bool_]:
    """(n,) true for rows of k bits with exactly `size` ones and clear padding bits."""
    clean = rows[:, -1] & ~np.uint8(padding_mask(k)) == 0
    return np.asarray(clean & (row_ones(rows) == size))


class SubsetRandomizer(OneTimeRandomizer):
    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        assert parameters.omega is not None
        self._omega = parameters.omega

    def report_value(self, value: int, random: DeviceRandom) -> bytes:
        return bits_row(draw_subset(value, self.k, self._omega, self._second["with_value"], random))


class SubsetsClaims(Claims):
    m: Subsets

    @property
    def blanket(self) -> Blanket:
        return self.m.drawn.blanket


class Subsets(Bits):
    """Common base of SS and L-SS: a report is k bits, of which `omega` are ones, with the distribution of `drawn`."""

    claims_by = SubsetsClaims
    invalid = "symbol out of range"
    drawn: RandomSubset

    def _set_report(self, drawn: RandomSubset) -> None:
        self.drawn, self.omega, self.p, self.q = drawn, drawn.size, drawn.p, drawn.q
        self.marks = drawn.size

    @property
    def supported(self) -> tuple[int, int]:
        return self.omega, self.omega

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        return has_ones(reports, self.k, self.omega)

    def _channel(self) -> FloatArray:
        members = np.zeros((math.comb(self.k, self.omega), self.k), bool)
        for row, subset in zip(members, combinations(range(self.k), self.omega)):
            row[list(subset)] = True
        inside = self.p / math.comb(self.k - 1, self.omega - 1)
        outside = (1 - self.p) / math.comb(self.k - 1, self.omega)
        return np.where(members.T, inside, outside)

    def _log2_outputs(self) -> float:
        return (math.lgamma(self.k + 1) - math.lgamma(self.omega + 1) - math.lgamma(self.k - self.omega + 1)) / math.log(2)


class SubsetReading(Reading):
    m: SubsetSelection

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Within a step the covariance of a set's members; between steps -d² f_u f_v, with d = p - q."""
        between = math.sqrt(steps * (steps - 1)) * (self.m.p - self.m.q) * frequencies
        return [(-1, row) for row in (*self.m.drawn.covariance_rows(math.sqrt(steps), frequencies), between)]


class SubsetSelectionClaims(SubsetsClaims, OneTimeClaims):
    m: SubsetSelection

    @property
    def favours(self) -> float:
        return self.m.drawn.favours

    def _guess_once(self) -> Chance:
        return Chance(self.m.p / self.m.omega)


class SubsetSelection(Subsets, OneTime):
    """One-time subset selection; the report has k bits, of which ω are ones.

    Args:
        k: domain size, in [2, 2^31).
        eps: privacy loss of the report, in [1e-9, 700] nats.
        omega: size of the set, in [1, k-1]; default: the size with the smallest variance.

    >>> m = SubsetSelection(k=32, eps=1.0)
    >>> m.omega, round(m.variance(n=10_000), 6)
    (8, 0.00034)
    """

    claims_by = SubsetSelectionClaims
    names = ("SS",)
    name = "SS"
    randomizer = SubsetRandomizer
    read_by = SubsetReading

    def __init__(self, k: int, eps: float, omega: int | None = None) -> None:
        self._set_domain(k)
        self.eps_1 = epsilon("eps", eps)
        size = best_omega(self.k, self.eps_1) if omega is None else integer("omega", omega, 1, self.k - 1)
        self._set_report(RandomSubset(self.k, size, self.eps_1))
        self.signature = f"SS(k={self.k}, eps={self.eps_1!r}, omega={self.omega})"

    def coins(self) -> Coins:
        return {"report": {"with_value": self.drawn.coin}}

    def device_fields(self) -> dict[str, Any]:
        return {"omega": self.omega}

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        return self.drawn.rows(user_values(values, self.k), rng)
