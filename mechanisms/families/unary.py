"""Unary encodings: one-time (SUE, OUE, THE) and memoized (L-SUE, L-OSUE, L-SOUE, L-OUE).

A report has k bits, randomized independently. A round turns a one into a one with probability p, and a zero into a one with
probability q:

    SUE (basic one-time RAPPOR)   p = e^{ε/2}/(e^{ε/2}+1)   q = 1-p            Erlingsson, Pihur and Korolova 2014
    OUE                           p = 1/2                   q = 1/(e^ε+1)      Wang, Blocki, Li and Jha 2017

The name of a chain gives the first round first: L-OSUE is OUE, then SUE (Arcolezi et al., ALLOMFREE). With rounds (p₁, q₁)
and (p₂, q₂) a report's bits have p = p₁p₂ + (1-p₁)q₂ and q = q₁p₂ + (1-q₁)q₂. The second round satisfies

    ln[p(1-q) / ((1-p)q)] = ε₁
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from ldpstream.mechanisms import ledger
from ldpstream.mechanisms.arguments import (
    FloatArray,
    IntArray,
    Reports,
    chain_epsilons,
    epsilon,
    integer,
    log1mexp,
    one_of,
    user_values,
)
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.base import Invalid, Mechanism
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.privacy_claims import Claims
from ldpstream.mechanisms.counts.reading import Reading
from ldpstream.mechanisms.devices import BitArray, Coin, Coins, DeviceRandom, Randomizer, bits_row, coin, row_bits
from ldpstream.mechanisms.families.grr import CALIBRATIONS
from ldpstream.mechanisms.kernels.bits import bernoulli_rows, changed_rows, count_ones, padding_mask, row_bytes, set_bits
from ldpstream.mechanisms.kinds import Longitudinal, LongitudinalClaims, OneTime, OneTimeClaims
from ldpstream.mechanisms.ledger import Round
from ldpstream.mechanisms.table import CountTable


def coins_of(bit: Round) -> dict[str, Coin]:
    return {"one": coin(bit.p, bit.not_p), "zero": coin(bit.q, bit.not_q)}


def symmetric(eps: float) -> Round:
    """The round of SUE with loss eps."""
    p, not_p = _logistic(eps / 2)
    return Round(p, not_p, not_p, p)


def optimized(eps: float) -> Round:
    """The round of OUE with loss eps."""
    not_q, q = _logistic(eps)
    return Round(0.5, 0.5, q, not_q)


def _logistic(x: float) -> tuple[float, float]:
    small = math.exp(-x)
    return 1 / (1 + small), small / (1 + small)


def thresholded(eps: float) -> Round:
    """The round of THE: a one-hot vector plus Laplace(2/ε) noise. A bit is one if its number exceeds a threshold θ in (1/2, 1).

    The loss is `Round.eps`, not the ε of the noise. θ gives the smallest variance q(1-q)/(p-q)²: there, 2(1-p-q)/(p-q) +
    q/(1-q) = 1.

    Source: Wang, Blocki, Li and Jha 2017, §4.1.
    """
    low, high = 0.5, 1.0
    while low < (theta := (low + high) / 2) < high:
        bit = _cut(eps, theta)
        if 2 * (bit.not_p - bit.q) / (bit.not_q - bit.not_p) + bit.q / bit.not_q < 1:
            low = theta
        else:
            high = theta
    return _cut(eps, high)


def _cut(eps: float, theta: float) -> Round:
    not_p, q = 0.5 * math.exp(eps * (theta - 1) / 2), 0.5 * math.exp(-eps * theta / 2)
    return Round(1 - not_p, not_p, q, 1 - q)


ROUNDS = {"SUE": symmetric, "OUE": optimized, "THE": thresholded}
CHAINS = {"L-SUE": ("SUE", "SUE"), "L-OSUE": ("OUE", "SUE"), "L-SOUE": ("SUE", "OUE"), "L-OUE": ("OUE", "OUE")}


def largest_eps_1(first: Round, second: str) -> float:
    """The supremum of ε₁ for this first round and this form of the second round: ε∞ for SUE, and less for OUE.

    For OUE it is ln[p₁(2-q₁) / ((2-p₁)q₁)], the loss with q₂ = 0.
    """
    if second == "SUE":
        return first.eps()
    return math.log(first.p) - math.log(first.q) + math.log(1 + first.not_q) - math.log(1 + first.not_p)


def calibrate(first: Round, second: str, eps_inf: float, eps_1: float) -> Round:
    """The second round of this form that gives one report a loss of exactly eps_1. eps_1 must be below `largest_eps_1`.

    The equation is p(1-q) = e^{ε₁} (1-p)q for the p and q of both rounds together. Divided by e^{ε₁}, with n₁ = 1-p₁ and
    m₁ = 1-q₁, it is:

        SUE  a R² - b R - c = 0 in R = p₂/q₂ = e^{ε₂/2}: the only positive root;
             a = p₁m₁ (e^{-ε₁} - e^{-ε∞}),  b = (1 - e^{-ε₁}) (p₁q₁ + n₁m₁),  c = p₁m₁ (1 - e^{-ε₁-ε∞})
        OUE  a u² - b u + c = 0 in u = 2q₂ in (0, 1): the smaller root;
             a = (1 - e^{-ε₁}) n₁m₁,  b = (1 + e^{-ε₁}) (p₁-q₁) + 2a,  c = (1+n₁) q₁ (e^{limit - ε₁} - 1)
    """
    gain = -math.expm1(-eps_1)
    crossed = first.not_p * first.not_q
    if second == "SUE":
        hit = first.p * first.not_q
        log_a = math.log(hit) - eps_1 + log1mexp(eps_inf - eps_1)  # in logarithms, since R can exceed the largest double
        b = gain * (first.p * first.q + crossed)
        c = -hit * math.expm1(-eps_1 - eps_inf)
        return symmetric(2 * (math.log(b + math.sqrt(b * b + 4 * c * math.exp(log_a))) - math.log(2) - log_a))
    a = gain * crossed
    b = (2 - gain) * (first.p - first.q) + 2 * a
    c = (1 + first.not_p) * first.q * math.expm1(largest_eps_1(first, second) - eps_1)
    q = c / (b + math.sqrt(b * b - 4 * a * c))
    return Round(0.5, 0.5, q, 1 - q)


def draw_bits(ones: BitArray, coins: dict[str, Coin], random: DeviceRandom) -> BitArray:
    """Tosses a coin for each 1 bit, then for each 0 bit. Without coins, returns the bits unchanged."""
    if not coins:
        return ones
    n_ones = ones.count(1)
    of_ones = iter(random.toss(coins["one"], n_ones))
    of_zeros = iter(random.toss(coins["zero"], len(ones) - n_ones))
    return bytes(next(of_ones if bit else of_zeros) for bit in ones)


class BitRandomizer(Randomizer):
    """The device's code of unary encodings: each memo and each report has k bits."""

    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes:
        ones = bytearray(self.k)
        ones[key] = 1
        return bits_row(draw_bits(ones, self._first, random))

    def is_memo(self, memo: bytes, function: int) -> bool:
        return len(memo) == self.parameters.row_bytes and int.from_bytes(memo, "little") < 1 << self.k

    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        return bits_row(draw_bits(row_bits(self.k, memo), self._second, random))


class Bits(Mechanism):
    """Common base of unary encodings and subset selection: a report has k bits, and the table has one count for each bit."""

    invalid: Invalid = "padding bits set"
    marks: int | None = None

    def _set_domain(self, k: object) -> None:
        self.k = integer("k", k, 2, self.most_values)
        self.row_bytes = row_bytes(self.k)
        self.table_shape = (self.k,)

    @cached_property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(("u1", (self.row_bytes,)))

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        return np.asarray(reports[:, -1] & (0xFF ^ padding_mask(self.k)) == 0)

    def _count(self, reports: Reports) -> IntArray:
        return count_ones(reports, self.k)


class BitReading(Reading):
    def fit_tests(self, table: CountTable, steps: int) -> dict[str, tuple[float, int] | None]:
        from ldpstream.mechanisms.counts.fit_tests import ones  # slow to load; only estimates need it

        return {"ones": ones(self.m, self.m.rounds(), table, steps), "total": None}


class IndependentBitsClaims(Claims):
    m: _IndependentBits

    @property
    def blanket(self) -> ledger.Blanket:
        return ledger.Blanket(self.m.eps_1, self.m.q, self.m.q**2)


class _IndependentBits(Bits):
    claims_by = IndependentBitsClaims
    report_round: Round
    randomizer = BitRandomizer
    read_by = BitReading

    def _set_report_round(self, report_round: Round) -> None:
        self.report_round, self.p, self.q = report_round, report_round.p, report_round.q

    def _encode(self, values: npt.ArrayLike, bit: Round, rng: np.random.Generator) -> Reports:
        checked = user_values(values, self.k)
        on = rng.random(checked.size) < bit.p
        return bernoulli_rows(bit.q, checked.size, self.k, rng, lambda rows, part: set_bits(rows, checked[part], on[part]))

    def _channel(self) -> FloatArray:
        channel, r = np.ones((self.k, 1)), self.report_round
        for bit in np.eye(self.k, dtype=bool)[:, :, None]:  # bit v of an output's number is bit v of the report
            zero, one = np.where(bit, r.not_p, r.not_q), np.where(bit, r.p, r.q)
            channel = np.concatenate((channel * zero, channel * one), axis=1)
        return channel

    def _log2_outputs(self) -> float:
        return self.k


class UnaryEncodingClaims(IndependentBitsClaims, OneTimeClaims):
    m: UnaryEncoding

    @property
    def favours(self) -> float:
        return self.m.report_round.p * self.m.report_round.not_q

    def _guess_once(self) -> Chance:
        r = self.m.report_round
        return Chance(guessing.among_memos(self.m.k, r.p, r.not_p, r.q, r.not_q))

    def _guess(self, t: float) -> Chance:
        if 1 < t <= guessing.MAX_EXACT_BITS:
            r = self.m.report_round
            return Chance(guessing.among_bits(self.m.k, guessing.binomial(int(t), r.p), guessing.binomial(int(t), r.q)))
        return super()._guess(t)


class UnaryEncoding(_IndependentBits, OneTime):
    """One-time unary encoding: SUE, OUE or THE.

    Args:
        name: ``"SUE"``, ``"OUE"`` or ``"THE"``.
        k: domain size, in [2, 2^31).
        eps: privacy loss of the report, in [1e-9, 700] nats. For THE, eps is the ε of the noise, and `eps_1` the loss.

    >>> round(UnaryEncoding("OUE", k=32, eps=1.0).variance(n=10_000), 6)
    0.000368
    """

    claims_by = UnaryEncodingClaims
    names = tuple(ROUNDS)

    def __init__(self, name: str, k: int, eps: float) -> None:
        self.name = one_of("name", name, self.names)
        self._set_domain(k)
        self.eps = self.eps_1 = epsilon("eps", eps)
        self.signature = f"{name}(k={self.k}, eps={self.eps!r})"
        self._set_report_round(ROUNDS[name](self.eps))
        if name == "THE":
            self.eps_1 = min(self.report_round.eps(), self.eps)  # rounding errors would exceed a tiny ε

    def epsilons(self) -> dict[str, float]:
        return {"eps": self.eps}

    def coins(self) -> Coins:
        return {"report": coins_of(self.report_round)}

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        return self._encode(values, self.report_round, rng)


class LongitudinalUnaryClaims(IndependentBitsClaims, LongitudinalClaims):
    m: LongitudinalUnary

    @property
    def memo_blanket(self) -> ledger.Blanket:
        return ledger.Blanket(self.m.eps_inf, self.m.q1, self.m.q1**2)

    @property
    def eps_per_report(self) -> float:
        return self.m.k * max(self.m.second.alpha, self.m.second.beta)  # the loss if two memos differ in all bits

    def _guess(self, t: float) -> Chance:
        r = self.m.first

        def chance(n: int) -> float:
            one, zero = guessing.binomial(n, self.m.p2), guessing.binomial(n, self.m.q2)
            return guessing.among_bits(self.m.k, r.p * one + r.not_p * zero, r.q * one + r.not_q * zero)

        known = guessing.among_memos(self.m.k, r.p, r.not_p, r.q, r.not_q)
        return guessing.of_memo(t, known, chance, guessing.MAX_EXACT_BITS)

    def distance(self, t: float) -> float:
        return self.m.first.p * self.m.first.not_q * -math.expm1(-self.m.eps_inf)

    def eps_t(self, t: int) -> float:
        return ledger.eps_t_unary(t, first=self.m.first, second=self.m.second)

    def _eps_sequence(self, t: int) -> ledger.SequenceLoss:
        return ledger.eps_sequence_unary(t, k=self.m.k, first=self.m.first, second=self.m.second)


class LongitudinalUnary(_IndependentBits, Longitudinal):
    """Memoized unary encoding: the memo is k bits at ε∞, and each report is the memo's bits, randomized again.

    Args:
        name: ``"L-SUE"``, ``"L-OSUE"``, ``"L-SOUE"`` or ``"L-OUE"``.
        k: domain size, in [2, 2^31).
        eps_inf: loss of the memo, up to 700 nats.
        eps_1: loss of a single report, in [1e-9, eps_inf) nats. With an OUE second round the maximum is lower: `largest_eps_1`.
        calibration: ``"exact"`` or ``"paper"``. Both give the same result.

    >>> LongitudinalUnary("L-OUE", k=10, eps_inf=2.0, eps_1=1.7)
    Traceback (most recent call last):
    ValueError: eps_1 must be in (0, 1.66001) for L-OUE with eps_inf=2, got 1.7
    """

    claims_by = LongitudinalUnaryClaims
    names = tuple(CHAINS)

    def __init__(self, name: str, k: int, eps_inf: float, eps_1: float, calibration: str = "exact") -> None:
        self.name = one_of("name", name, self.names)
        self._set_domain(k)
        self.eps_inf, self.eps_1 = chain_epsilons(eps_inf, eps_1)
        one_of("calibration", calibration, CALIBRATIONS)
        self.n_keys = self.max_memos = self.k
        first, second = CHAINS[name]
        self.first = ROUNDS[first](self.eps_inf)
        limit = largest_eps_1(self.first, second)
        if second == "OUE" and self.eps_1 >= limit:
            raise ValueError(f"eps_1 must be in (0, {limit:g}) for {name} with eps_inf={self.eps_inf:g}, got {eps_1!r}")
        self.second = calibrate(self.first, second, self.eps_inf, self.eps_1)
        self.p1, self.q1, self.p2, self.q2 = self.first.p, self.first.q, self.second.p, self.second.q
        self._set_report_round(self.first.then(self.second))
        self.signature = f"{name}(k={self.k}, eps_inf={self.eps_inf!r}, eps_1={self.eps_1!r})"

    def coins(self) -> Coins:
        return {"memo": coins_of(self.first), "report": coins_of(self.second)}

    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        return self._encode(values, self.first, rng)

    def report(self, memos: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        return changed_rows(self._as_memos(memos), self.p2, self.q2, self.k, rng)
