"""Randomness of one device: exact coins and uniform integers from the operating system's generator, and the randomizers.

The randomizers read the same integers as devices in other languages (`surveys.device_survey.Parameters`). They draw random
bytes in the order that docs/write_a_device.md states. The same bytes therefore give the same reports in every language.

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

import secrets

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.finite_field import field
from ldpstream.surveys.device_survey import Coin, Parameters

BitArray = npt.NDArray[np.bool_]


class SecureRandom:
    """Draws from the operating system's generator. The object keeps no state that a fork or a snapshot could repeat."""

    def bytes(self, n: int) -> bytes:
        """n uniform bytes."""
        return secrets.token_bytes(n)

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), without bias. Draws again until the low bits of big-endian bytes are below n."""
        n_bits = (n - 1).bit_length()
        while True:
            drawn = int.from_bytes(self.bytes(-(-n_bits // 8)), "big") & ((1 << n_bits) - 1)
            if drawn < n:
                return drawn

    def toss(self, coin: Coin, n: int) -> BitArray:
        """(n,) independent tosses of the coin. Draws the first digit of every toss, then the second digit where needed, …"""
        smaller = np.zeros(n, np.bool_)
        undecided = np.arange(n)
        for digit in bytes.fromhex(coin.digits):
            if not undecided.size:
                break
            drawn = np.frombuffer(self.bytes(undecided.size), np.uint8)
            smaller[undecided[drawn < digit]] = True
            undecided = undecided[drawn == digit]
        return smaller ^ coin.inverted


# ---- the families' randomizers


def _symbol(symbol: int, n_symbols: int, keep: Coin, random: SecureRandom) -> int:
    """Generalized randomized response (GRR): keeps the symbol, or draws one of the other symbols uniformly."""
    if random.toss(keep, 1)[0]:
        return symbol
    other = random.below(n_symbols - 1)
    return other + (other >= symbol)


def _cell(value: int, k: int, width: int, keep: Coin, random: SecureRandom) -> int:
    """Square Wave: a uniform cell near the value, or a uniform one of the k-1 other cells."""
    if random.toss(keep, 1)[0]:
        return value + random.below(width)
    other = random.below(k - 1)
    return other + width * (other >= value)


def _bits(ones: BitArray, coins: dict[str, Coin], random: SecureRandom) -> BitArray:
    """Unary encoding: tosses for all ones, then for all zeros."""
    out = np.empty_like(ones)
    n_ones = int(np.count_nonzero(ones))
    out[ones] = random.toss(coins["one"], n_ones)
    out[~ones] = random.toss(coins["zero"], ones.size - n_ones)
    return out


def _subset(value: int, k: int, omega: int, with_value: Coin, random: SecureRandom) -> BitArray:
    """Subset selection: draws whether the set contains the value, then draws the other members uniformly."""
    inside = bool(random.toss(with_value, 1)[0])
    n_others = omega - inside
    others: set[int] = set()
    for last in range(k - 1 - n_others, k - 1):  # Floyd's algorithm: each set of n_others out of k-1 is equally likely
        drawn = random.below(last + 1)
        others.add(last if drawn in others else drawn)
    out = np.zeros(k, np.bool_)
    out[[other + (other >= value) for other in others]] = True
    out[value] = inside
    return out


def hashed(p: Parameters, function: int, value: int) -> int:
    """The symbol H_a(v) of `mechanisms.linear_pool`, digit by digit, for local hashing."""
    assert p.g is not None
    assert p.stride is not None
    add, multiply = field(p.g)
    total, place = 0, value * p.stride % p.k
    while place:
        total = int(add[total, multiply[function % p.g, place % p.g]])
        function, place = function // p.g, place // p.g
    return total


# ---- rows, as in an envelope


def least_bytes(n_symbols: int) -> int:
    """The smallest of the sizes 1, 2 and 4 bytes that holds 0 … n_symbols-1."""
    return 1 if n_symbols <= 2**8 else 2 if n_symbols <= 2**16 else 4


def _symbol_row(n_symbols: int, symbol: int) -> bytes:
    return symbol.to_bytes(least_bytes(n_symbols), "little")


def _bits_row(bits: BitArray) -> bytes:
    return np.packbits(bits, bitorder="little").tobytes()


def _row_bits(p: Parameters, row: bytes) -> BitArray:
    return np.unpackbits(np.frombuffer(row, np.uint8), count=p.k, bitorder="little").astype(np.bool_)


# ---- a device's use of a mechanism


def enroll(p: Parameters, random: SecureRandom) -> int:
    """Draws the device's permanent choice: the number of its hash function; 0 for mechanisms without one."""
    return random.below(p.functions) if p.functions is not None and "memo" in p.coins else 0


def memo_key(p: Parameters, value: int, function: int) -> int:
    """Returns the key of the device's memo: the value, or the hashed symbol."""
    return value if p.g is None else hashed(p, function, value)


def memoize(p: Parameters, key: int, function: int, random: SecureRandom) -> bytes:
    """First round: draws a new memo for a memo key, one row of `row_bytes`."""
    return _row_of(p, p.coins["memo"], key, function, random)


def report_memo(p: Parameters, memo: bytes, random: SecureRandom) -> bytes:
    """Second round: draws a report from a memo; both are one row of `row_bytes`."""
    coins = p.coins["report"]
    if "one" in coins:
        return _bits_row(_bits(_row_bits(p, memo), coins, random))
    width = 0 if p.functions is None else least_bytes(p.functions)
    return _row_of(p, coins, int.from_bytes(memo[width:], "little"), int.from_bytes(memo[:width], "little"), random)


def report_once(p: Parameters, value: int, random: SecureRandom) -> bytes:
    """Draws a report of a one-time mechanism, one row of `row_bytes`."""
    coins = p.coins["report"]
    if p.omega is not None:
        return _bits_row(_subset(value, p.k, p.omega, coins["with_value"], random))
    if p.width is not None:
        return _symbol_row(p.k - 1 + p.width, _cell(value, p.k, p.width, coins["keep"], random))
    if p.functions is None:
        return _row_of(p, coins, value, 0, random)
    function = random.below(p.functions)
    return _row_of(p, coins, hashed(p, function, value), function, random)


def is_memo(p: Parameters, row: bytes, function: int) -> bool:
    """True if a device with this hash function could have drawn the memo."""
    if len(row) != p.row_bytes:
        return False
    if "one" in p.coins["memo"]:
        return int.from_bytes(row, "little") < 1 << p.k
    width = 0 if p.functions is None else least_bytes(p.functions)
    return int.from_bytes(row[:width], "little") == function and int.from_bytes(row[width:], "little") < (p.g or p.k)


def _row_of(p: Parameters, coins: dict[str, Coin], symbol: int, function: int, random: SecureRandom) -> bytes:
    """Randomizes a symbol, or the bits of which only this symbol's bit is one."""
    if "one" in coins:
        return _bits_row(_bits(np.arange(p.k) == symbol, coins, random))
    drawn = _symbol(symbol, p.g or p.k, coins["keep"], random)
    return _symbol_row(p.k, drawn) if p.functions is None else _symbol_row(p.functions, function) + _symbol_row(p.g or 0, drawn)
