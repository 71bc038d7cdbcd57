"""Square Wave (SW): a one-time mechanism for numbers in bins. Reports near the value are e^ε times as likely as others.

The paper scales a number to x in [0, 1] and reports a y with density e^ε q if |y - x| <= b, and q elsewhere in [-b, 1+b]. The
b that maximises a bound of the mutual information of x and y is

    b = (ε e^ε - e^ε + 1) / (2 e^ε (e^ε - 1 - ε))

Here, the loss is ε exactly. The value is a bin 0 … k-1, the report is one of m = k-1+L cells, and L is the width of the wave in
cells:

    Pr[cell y | bin x] = p if x <= y < x+L, else q      q = 1 / (L e^ε + k-1),   p = e^ε q

By default, L is the integer nearest to 2b (k-1), at least 1. With L = 1 the mechanism is GRR.

Source: Li, Wang, Lopuhaä-Zwakenberg, Skoric and Li 2020, "Estimating Numerical Distributions under Local Differential Privacy",
arXiv:1912.01051, §5.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar

from ldpstream.mechanisms.arguments import FloatArray, IntArray, Reports, epsilon, integer, user_values
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.base import Answers
from ldpstream.mechanisms.channel import ChannelMechanism, ChannelReading
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.counts.terms import ChannelTerm
from ldpstream.mechanisms.devices import Coins, DeviceRandom, OneTimeRandomizer, Parameters, coin, symbol_row
from ldpstream.mechanisms.kinds import OneTimeClaims
from ldpstream.mechanisms.ledger import Blanket
from ldpstream.mechanisms.table import CountTable

MAX_BINS = 1024  # the inversion needs a dense matrix
SERIES = 1e-5  # for a smaller ε, the formula of b loses its digits


def half_width(eps: float) -> float:
    """The paper's b, half the width of the wave on a value scaled to [0, 1]: from 1/2 for ε near 0 to 0 for large ε.

    >>> round(half_width(1.0), 4)
    0.2561
    """
    if eps < SERIES:
        return 0.5 - eps / 3
    return (eps + math.expm1(-eps)) / (2 * (math.expm1(eps) - eps))


def best_width(k: int, eps: float) -> int:
    """The default width L of the wave in cells: the integer nearest to 2b (k-1), at least 1."""
    return max(1, round(2 * half_width(eps) * (k - 1)))


class WaveTerm(ChannelTerm):
    """Term of Square Wave."""

    def __init__(self, k: int, width: int, far: float, eps: float, counts: IntArray) -> None:
        super().__init__(k, counts)
        self._width, self._far, self._gap = width, far, far * math.expm1(eps)

    def _forward(self, f: FloatArray) -> FloatArray:
        if self._width == 1:
            return np.asarray(self._far * f.sum() + self._gap * f)
        sums = np.zeros(self.k + 2 * self._width - 1)  # L zeros, then the running sum, then its last value
        np.cumsum(f, out=sums[self._width : self._width + self.k])
        sums[self._width + self.k :] = sums[self._width + self.k - 1]
        waves = sums[self._width :] - sums[: -self._width]
        return np.asarray(self._far * f.sum() + self._gap * waves)

    def _adjoint(self, x: FloatArray) -> FloatArray:
        if self._width == 1:
            return np.asarray(self._far * x.sum() + self._gap * x)
        sums = np.concatenate([[0.0], np.cumsum(x)])
        return np.asarray(self._far * sums[-1] + self._gap * (sums[self._width :] - sums[: -self._width]))


class WaveRandomizer(OneTimeRandomizer):
    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        assert parameters.width is not None
        self._width = parameters.width

    def report_value(self, value: int, random: DeviceRandom) -> bytes:
        if random.toss(self._second["keep"], 1)[0]:
            cell = value + random.below(self._width)
        else:
            other = random.below(self.k - 1)
            cell = other + self._width * (other >= value)
        return symbol_row(self.k - 1 + self._width, cell)


class WaveReading(ChannelReading):
    m: SquareWave

    def fit_tests(self, table: CountTable, steps: int) -> dict[str, tuple[float, int] | None]:
        from ldpstream.mechanisms.counts.fit_tests import classes  # slow to load; only estimates need it

        return {"classes": classes(table, self.m.width, self.m.far, self.m.near)} if self.m.width > 1 else {}

    def _channel_term(self, counts: IntArray) -> WaveTerm:
        return WaveTerm(self.m.k, self.m.width, self.m.far, self.m.eps_1, counts)

    @cached_property
    def own_inverse(self) -> FloatArray:
        """Inverse B by least squares under Σ f = 1. With the shares o of the cells, the waves W (k, m), G = W Wᵀ and
        y = (o - q)/(p-q), the estimate is f = y V,

        V = Wᵀ G⁻¹ + (1/L - Wᵀ G⁻¹ 1) (G⁻¹ 1)ᵀ / (1ᵀ G⁻¹ 1)
        """
        from scipy.linalg import cho_factor, cho_solve  # scipy.linalg is slow to load; only estimates need it

        waves = self.m._waves()
        factor = cho_factor(waves @ waves.T)
        ones = cho_solve(factor, np.ones(self.m.k))
        inverse = cho_solve(factor, waves).T
        inverse += np.outer(1 / self.m.width - inverse.sum(axis=1), ones / ones.sum())
        gap = self.m.far * math.expm1(self.m.eps_1)  # p - q, without cancellation
        found = np.asarray((inverse - self.m.far * inverse.sum(axis=0)) / gap)
        found.setflags(write=False)
        return found

    def _inversion_variances(self, frequencies: FloatArray, n: int, steps: int) -> FloatArray:
        """Exact: [ W (Σ_z γ_z B_zv² - f_v) + W² (f_v - f_v²) ] / (n W²) with γ = f A, since A B is the unit matrix."""
        f = frequencies
        single = (f @ self.m.channel()) @ self.own_inverse**2
        return np.asarray(np.maximum((single - f) / steps + f - f**2, 0) / n)


class SquareWaveClaims(OneTimeClaims):
    m: SquareWave

    @property
    def blanket(self) -> Blanket:
        return Blanket(self.m.eps_1, self.m.width / self.m.cells, max(0, self.m.width - self.m.k + 1) / self.m.cells)

    @property
    def favours(self) -> float:
        return min(self.m.width, self.m.k - 1) * self.m.near  # for the two values that are furthest apart

    def _guess_once(self) -> Chance:
        return Chance(self.m.cells * self.m.near / self.m.k)  # every cell is near some bin


class SquareWave(ChannelMechanism):
    """Square Wave on k bins, experimental.

    Args:
        k: number of bins, in [2, 1024], in the order of the numbers.
        eps: privacy loss of the report, in [1e-9, 700] nats.
        width: L, the width of the wave in cells, in [1, k]; default: `best_width`.

    Attributes:
        eps_1: ε, the exact loss of one report.
        cells: m = k-1+L, number of different reports.
        keep: Pr[the report is one of the L cells near the value] = L p.
        near: p, probability of each of these cells.
        far: q, probability of each other cell.

    >>> m = SquareWave(k=100, eps=1.0)
    >>> m.width, m.cells, round(m.keep, 4), round(m.near / m.far, 6)
    (51, 150, 0.5834, 2.718282)
    """

    claims_by = SquareWaveClaims
    names = ("SW",)
    answers: ClassVar[Answers] = "numbers"
    most_values = MAX_BINS
    name = "SW"
    randomizer = WaveRandomizer
    read_by = WaveReading

    def __init__(self, k: int, eps: float, width: int | None = None) -> None:
        k, self.eps_1 = integer("k", k, 2, MAX_BINS), epsilon("eps", eps)
        self.width = best_width(k, self.eps_1) if width is None else integer("width", width, 1, k)
        self.cells = k - 1 + self.width
        self._set_domain(k, self.cells)
        rest = (k - 1) * math.exp(-self.eps_1)
        self.keep = self.width / (self.width + rest)
        self.near = 1 / (self.width + rest)
        self.far = math.exp(-self.eps_1) / (self.width + rest)
        self.signature = f"SW(k={self.k}, eps={self.eps_1!r}, width={self.width})"

    def coins(self) -> Coins:
        return {"report": {"keep": coin(self.keep, self.far, self.k - 1)}}

    def device_fields(self) -> dict[str, Any]:
        return {"width": self.width}

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        checked = user_values(values, self.k)
        near = checked + rng.integers(0, self.width, checked.size)
        far = rng.integers(0, self.k - 1, checked.size)
        far += self.width * (far >= checked)
        return np.where(rng.random(checked.size) < self.keep, near, far).astype(self.report_dtype)

    def _channel(self) -> FloatArray:
        return self.far + (self.near - self.far) * self._waves()

    def _waves(self) -> FloatArray:
        offset = np.arange(self.cells) - np.arange(self.k)[:, None]
        return ((offset >= 0) & (offset < self.width)).astype(np.float64)
