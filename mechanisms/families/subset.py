"""Subset selection (SS): a report is a set of ω values, which contains the device's value with probability p.

    p = ω e^ε / (ω e^ε + k - ω)         Pr[the set contains the value]; the rest of the set is uniform among other values
    q = p (ω-1)/(k-1) + (1-p) ω/(k-1)   Pr[the set contains a given other value]

Each set with the value is e^ε times as likely as each set without the value. With ω = 1 the mechanism is GRR. Sources: Ye and
Barg 2018; Wang et al. 2016.
"""

import math
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, Reports, epsilon, integer, user_values
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.ratios import GainRatios
from ldpstream.mechanisms.devices import Coins, DeviceRandom, OneTimeRandomizer, Parameters, bits_row, coin
from ldpstream.mechanisms.families.unary import Bits
from ldpstream.mechanisms.kernels.bits import dyadic, padding_mask, row_bytes, row_ones
from ldpstream.mechanisms.kinds import OneTime
from ldpstream.mechanisms.ledger import Blanket


def probabilities(k: int, eps: float, omega: int) -> tuple[float, float]:
    p = 1 / (1 + (k - omega) / omega * math.exp(-eps))
    outside = (k - omega) / omega * math.exp(-eps) * p  # equals 1 - p, without cancellation
    return p, (p * (omega - 1) + outside * omega) / (k - 1)


def best_omega(k: int, eps: float) -> int:
    """The integer ω in [1, k-1] next to the real optimum k/(e^ε+1), below or above, with the smaller variance q(1-q)/(p-q)²."""
    real = k / (math.exp(eps) + 1)
    near = {max(1, math.floor(real)), min(k - 1, max(1, math.ceil(real)))}
    return min(near, key=lambda omega: _variance(*probabilities(k, eps, omega)))


def byte_near(k: int, omega: int) -> int:
    """The a in [1, 255] with which k bits of probability a/2^8 need about the fewest random numbers to become ω ones.

    If s = ω/k is the share of ones, a removal takes 1/s random numbers on average, and an addition 1/(1-s). So a/2^8 differs
    from s by a shift that makes the cheaper change more likely; the shift is then rounded to 1/2^8. The factor 2.6 fits the
    minimum for normally distributed numbers of ones.
    """
    share = omega / k
    shift = 2.6 * (share - 0.5) * math.sqrt(share * (1 - share) / k)
    return min(max(round(256 * (share + shift)), 1), 255)


def _variance(p: float, q: float) -> float:
    return q * (1 - q) / (p - q) ** 2


class SubsetRandomizer(OneTimeRandomizer):
    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        assert parameters.omega is not None
        self._omega = parameters.omega

    def report_value(self, value: int, random: DeviceRandom) -> bytes:
        inside = bool(random.toss(self._second["with_value"], 1)[0])
        n_others = self._omega - inside
        others: set[int] = set()
        for last in range(self.k - 1 - n_others, self.k - 1):  # Floyd's algorithm: each set of others is equally likely
            drawn = random.below(last + 1)
            others.add(last if drawn in others else drawn)
        out = np.zeros(self.k, np.bool_)
        out[[other + (other >= value) for other in others]] = True
        out[value] = inside
        return bits_row(out)


class SubsetSelection(Bits, OneTime):
    """One-time subset selection; the report has k bits, of which ω are ones.

    Args:
        k: domain size, in [2, 2^31).
        eps: privacy loss of the report, in [1e-9, 700] nats.
        omega: size of the set, in [1, k-1]; default: the size with the smallest variance.

    >>> m = SubsetSelection(k=32, eps=1.0)
    >>> m.omega, round(m.variance(n=10_000), 6)
    (8, 0.00034)
    """

    names = ("SS",)
    name = "SS"
    randomizer = SubsetRandomizer

    def __init__(self, k: int, eps: float, omega: int | None = None) -> None:
        self._set_domain(k)
        self.eps_1 = epsilon("eps", eps)
        self.omega = best_omega(self.k, self.eps_1) if omega is None else integer("omega", omega, 1, self.k - 1)
        self.p, self.q = probabilities(self.k, self.eps_1, self.omega)
        self.signature = f"SS(k={self.k}, eps={self.eps_1!r}, omega={self.omega})"
        self.invalid, self.marks = "symbol out of range", self.omega

    def coins(self) -> Coins:
        outside = (self.k - self.omega) / self.omega * math.exp(-self.eps_1) * self.p  # 1 - p, without cancellation
        return {"report": {"with_value": coin(self.p, outside)}}

    def device_fields(self) -> dict[str, Any]:
        return {"omega": self.omega}

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        from ldpstream.mechanisms.kernels.random_kernels import LANES, SPARSE, few_members, many_members

        checked = user_values(values, self.k)
        rows = np.zeros((checked.size, row_bytes(self.k)), np.uint8)
        with_value = rng.random(checked.size) < self.p
        others = self.k - self.omega
        if self.omega * SPARSE < self.k:
            few_members(checked, with_value, self.omega, self.k, rows, rng.integers(0, 2**64, 4, np.uint64))
        elif others * SPARSE < self.k:  # the complement is small, and has the value if the set has it not
            few_members(checked, ~with_value, others, self.k, rows, rng.integers(0, 2**64, 4, np.uint64))
            np.invert(rows, out=rows)
            rows[:, -1] &= padding_mask(self.k)
        else:
            near = dyadic(byte_near(self.k, self.omega))
            states = rng.integers(0, 2**64, (4, LANES), np.uint64)
            many_members(checked, with_value, self.omega, self.k, rows, *near, states)
        return rows

    @property
    def supported(self) -> tuple[int, int]:
        return self.omega, self.omega

    def pair_chances(self) -> tuple[float, float]:
        k, omega, p = self.k, self.omega, self.p
        without = (p * (omega - 1) * (omega - 2) + (1 - p) * omega * (omega - 1)) / ((k - 1) * max(k - 2, 1))
        return p * (omega - 1) / (k - 1), without

    @property
    def blanket(self) -> Blanket:
        k, omega = self.k, self.omega
        return Blanket(self.eps_1, omega / k, omega * (omega - 1) / (k * (k - 1)))

    def ratios(self) -> GainRatios:
        return GainRatios(self.p * (self.k - self.omega) / (self.omega * (1 - self.p)))

    @property
    def favours(self) -> float:
        return self.p * (self.k - self.omega) / (self.k - 1)

    def _guess_once(self) -> Chance:
        return Chance(self.p / self.omega)

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        clean = reports[:, -1] & ~np.uint8(padding_mask(self.k)) == 0
        return np.asarray(clean & (row_ones(reports) == self.omega))

    def valid_row(self, row: bytes) -> bool:
        return super().valid_row(row) and int.from_bytes(row, "little").bit_count() == self.omega

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Covariance of two values u, v: -(a + b (f_u + f_v) + d² f_u f_v) within a step, -d² f_u f_v between steps."""
        omega, q, d = self.omega, self.q, self.p - self.q
        with_value, both_others = self.pair_chances()
        a, b = q**2 - both_others, q * d - with_value + both_others
        level, slope = (q, d) if omega == 1 else (math.sqrt(a), b / math.sqrt(a))  # q² may underflow if ω = 1
        first = level + slope * frequencies
        second = math.sqrt(max(d**2 - slope**2, 0.0)) * frequencies
        between = math.sqrt(steps * (steps - 1)) * d * frequencies
        return [(-1, math.sqrt(steps) * first), (-1, math.sqrt(steps) * second), (-1, between)]

    def _channel(self) -> FloatArray:
        members = np.zeros((math.comb(self.k, self.omega), self.k), bool)
        for row, subset in zip(members, combinations(range(self.k), self.omega)):
            row[list(subset)] = True
        inside = self.p / math.comb(self.k - 1, self.omega - 1)
        outside = (1 - self.p) / math.comb(self.k - 1, self.omega)
        return np.where(members.T, inside, outside)

    def _log2_outputs(self) -> float:
        return (math.lgamma(self.k + 1) - math.lgamma(self.omega + 1) - math.lgamma(self.k - self.omega + 1)) / math.log(2)
