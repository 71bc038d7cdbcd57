"""Randomness of one device: exact coins and uniform integers from the operating system's generator, and the randomizers.

A coin's probability is a rational number whose denominator is a power of two (every double is one), written as base-256 digits
0.d₁d₂…. A toss draws the digits 0.u₁u₂… of a uniform number one by one and compares each digit with the coin's digit:

    u₁ < d₁: yes      u₁ > d₁: no      u₁ = d₁: draw u₂ and go on; no, when the digits have ended

Hence Pr[yes] = Σ dᵢ 256^-i exactly, even for the smallest probabilities. A toss draws 1.004 bytes on average. The code never
computes or compares a floating-point number that depends on a value (Mironov 2012 shows how such numbers leak the value).

Realised loss. A mechanism states probabilities in pairs: the probabilities of an event and of the opposite event. Each
probability is a double with relative error at most δ. The coin uses the smaller probability of a pair unchanged. The larger
probability becomes one minus the smaller, with relative error at most δ as well. Every probability that a device realises is
thus within a factor 1 ± δ of the ideal probability, and

    |loss of the memo - ε∞|, |loss of a one-time report - ε|  <=  4δ     (a ratio of two symbols, or two ratios of two bits)
    |loss of t reports of a memo - ε_t|                       <=  4(t+1)δ, and the loss of t reports is at most ε∞ + 4δ

up to terms in δ². The third bound holds because the probability of t reports is a sum over memos of products of t+1 such
probabilities, all positive. The bound ε∞ + 4δ holds because the reports are drawn from the memo alone. δ is a few units in the
last place (2^-53) times 1 + ε₂, since ε₂ is rounded before its exponential is taken. δ is below 10^-12 for every ε up to 700.
(An exception is q₂ below 10^-300: then ε₂ has an error of up to 10^-7, but a report's ε₁ has no such error.) The deviation is
therefore below 10^-11 nats for a report. The tests compute the deviation with 60 digits over a grid and find at most 4·10^-14.

A draw does not take constant time. Measuring the device's time to a microsecond may reveal something about its draws.
"""

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mechanisms import Longitudinal, Mechanism, Reports
from mechanisms.grr import GRR, LongitudinalGRR
from mechanisms.linear_pool import LinearPool
from mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from mechanisms.subset import SubsetSelection
from mechanisms.unary import LongitudinalUnary, Round, UnaryEncoding

BitArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coin:
    """An exact probability, stored for tossing.

    Attributes:
        digits: base-256 digits of the smaller probability after the point, most significant first.
        inverted: true if "no" has the smaller probability.
    """

    digits: bytes
    inverted: bool

    @property
    def probability(self) -> Fraction:
        """Pr[yes], exactly."""
        smaller = Fraction(int.from_bytes(self.digits, "big"), 256 ** len(self.digits))
        return 1 - smaller if self.inverted else smaller


def coin(yes: float, no: float, shares: int = 1) -> Coin:
    """Returns the coin with Pr[yes] = yes and Pr[no] = shares · no. The smaller of these two probabilities is exact.

    Args:
        yes: in (0, 1].
        no: in (0, 1], probability of each of the equally likely "no" outcomes.
        shares: number of "no" outcomes, at least 1.
    """
    exact_yes, exact_no = Fraction(yes), shares * Fraction(no)
    smaller = min(exact_yes, exact_no)
    if not 0 < smaller < 1:
        raise ValueError(f"the probabilities of a coin must be in (0, 1), got {yes!r} and {shares} times {no!r}")
    length = -(-(smaller.denominator.bit_length() - 1) // 8)
    digits = smaller.numerator * 256**length // smaller.denominator
    return Coin(digits.to_bytes(length, "big"), exact_no < exact_yes)


class SecureRandom:
    """Draws from the operating system's generator. The object keeps no state that a fork or a snapshot could repeat."""

    def bytes(self, n: int) -> bytes:
        """n uniform bytes."""
        return secrets.token_bytes(n)

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), without bias."""
        return secrets.randbelow(n)

    def toss(self, coin: Coin, n: int) -> BitArray:
        """(n,) independent tosses of the coin."""
        smaller = np.zeros(n, np.bool_)
        undecided = np.arange(n)
        for digit in coin.digits:
            if not undecided.size:
                break
            drawn = np.frombuffer(self.bytes(undecided.size), np.uint8)
            smaller[undecided[drawn < digit]] = True
            undecided = undecided[drawn == digit]
        return smaller ^ coin.inverted


# ---- the families' randomizers


def _symbol(symbol: int, n_symbols: int, p: float, q: float, random: SecureRandom) -> int:
    """Generalized randomized response (GRR): the symbol with probability p, each other symbol with probability q."""
    if random.toss(coin(p, q, n_symbols - 1), 1)[0]:
        return symbol
    other = random.below(n_symbols - 1)
    return other + (other >= symbol)


def _bits(ones: BitArray, bit: Round, random: SecureRandom) -> BitArray:
    """Unary encoding: applies the randomizing round to every bit."""
    out = np.empty_like(ones)
    n_ones = int(np.count_nonzero(ones))
    out[ones] = random.toss(coin(bit.p, bit.not_p), n_ones)
    out[~ones] = random.toss(coin(bit.q, bit.not_q), ones.size - n_ones)
    return out


def _subset(value: int, m: SubsetSelection, random: SecureRandom) -> BitArray:
    """Subset selection: draws whether the set contains the value, then draws the other members uniformly."""
    outside = (m.k - m.omega) / m.omega * math.exp(-m.eps_1) * m.p  # 1 - p, without cancellation
    with_value = bool(random.toss(coin(m.p, outside), 1)[0])
    n_others = m.omega - with_value
    others: set[int] = set()
    for last in range(m.k - 1 - n_others, m.k - 1):  # Floyd's algorithm: each set of n_others out of k-1 is equally likely
        drawn = random.below(last + 1)
        others.add(last if drawn in others else drawn)
    out = np.zeros(m.k, np.bool_)
    out[[other + (other >= value) for other in others]] = True
    out[value] = with_value
    return out


def _linear_form(pool: LinearPool, function: int, value: int) -> int:
    """H_a(v) of `mechanisms.linear_pool`, digit by digit."""
    total = 0
    while value:
        total = int(pool.add[total, pool.multiply[function % pool.g, value % pool.g]])
        function, value = function // pool.g, value // pool.g
    return total


def _packed(bits: BitArray) -> Reports:
    return np.packbits(bits, bitorder="little")[None]


def _pair(m: LocalHashing | LongitudinalHashing, function: int, symbol: int) -> Reports:
    return np.array([(function, symbol)], m.report_dtype)


# ---- a device's use of a mechanism


def enroll(m: Mechanism, random: SecureRandom) -> int:
    """Draws the device's permanent choice: the number of its hash function; 0 for mechanisms without one."""
    return random.below(m.pool.size) if isinstance(m, LongitudinalHashing) else 0


def memo_key(m: Longitudinal, value: int, function: int) -> int:
    """Returns the key of the device's memo, like `Longitudinal.memo_keys`: the value, or the hashed symbol."""
    return _linear_form(m.pool, function, value) if isinstance(m, LongitudinalHashing) else value


def memoize(m: Longitudinal, key: int, function: int, random: SecureRandom) -> Reports:
    """First round: draws a new memo for a memo key, one row of `report_dtype`.

    Raises:
        TypeError: if the mechanism has no device-side randomizer.
    """
    if isinstance(m, LongitudinalGRR):
        return np.array([_symbol(key, m.k, m.p1, m.q1, random)], m.report_dtype)
    if isinstance(m, LongitudinalUnary):
        return _packed(_bits(np.arange(m.k) == key, m.first, random))
    if isinstance(m, LongitudinalHashing):
        return _pair(m, function, _symbol(key, m.g, m.p1, m.q1, random))
    raise TypeError(f"no device-side randomizer of {m.name}")


def report_memo(m: Longitudinal, memo: Reports, random: SecureRandom) -> Reports:
    """Second round: draws a report from a memo; both are one row of `report_dtype`.

    Raises:
        TypeError: if the mechanism has no device-side randomizer.
    """
    if isinstance(m, LongitudinalGRR):
        return np.array([_symbol(int(memo[0]), m.k, m.p2, m.q2, random)], m.report_dtype)
    if isinstance(m, LongitudinalUnary):
        return _packed(_bits(np.unpackbits(memo[0], count=m.k, bitorder="little").astype(np.bool_), m.second, random))
    if isinstance(m, LongitudinalHashing):
        return _pair(m, int(memo["function"][0]), _symbol(int(memo["symbol"][0]), m.g, m.p2, m.q2, random))
    raise TypeError(f"no device-side randomizer of {m.name}")


def report_once(m: Mechanism, value: int, random: SecureRandom) -> Reports:
    """Draws a report of a one-time mechanism, one row of `report_dtype`.

    Raises:
        TypeError: if the mechanism has no device-side randomizer.
    """
    if isinstance(m, GRR):
        return np.array([_symbol(value, m.k, m.p, m.q, random)], m.report_dtype)
    if isinstance(m, UnaryEncoding):
        return _packed(_bits(np.arange(m.k) == value, m.report_round, random))
    if isinstance(m, SubsetSelection):
        return _packed(_subset(value, m, random))
    if isinstance(m, LocalHashing):
        function = random.below(m.pool.size)
        return _pair(m, function, _symbol(_linear_form(m.pool, function, value), m.g, m.p, m.other_symbol, random))
    raise TypeError(f"no device-side randomizer of {m.name}")
