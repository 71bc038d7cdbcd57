"""The device's side of a mechanism: exact coins, the parameters for devices in every language, and the base of randomizers.

`Parameters` is a part of the device survey, a sent format (`surveys.device_survey`): new keys may be added, and no key changes
its meaning.
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Protocol, Self

import msgspec

from ldpstream.mechanisms.families.finite_field import FiniteField

BitArray = bytes | bytearray  # for each bit, a byte of 0 or 1
VALUE_BYTES = 4
_DIGITS, _BITS = bytes.maketrans(b"\0\1", b"01"), bytes.maketrans(b"01", b"\0\1")


class Coin(msgspec.Struct, frozen=True):
    """An exact probability, stored for tossing.

    Attributes:
        digits: base-256 digits of the smaller probability after the point, most significant first, two hexadecimal digits each.
        inverted: true if "no" has the smaller probability.
    """

    digits: str
    inverted: bool


def coin(yes: float, no: float, shares: int = 1) -> Coin:
    """Returns the coin with Pr[yes] = yes and Pr[no] = shares · no. The smaller of these two probabilities is exact.

    Args:
        yes: in (0, 1].
        no: in (0, 1], probability of each of the equally likely "no" outcomes.
        shares: number of "no" outcomes, at least 1.

    Raises:
        ValueError: if the smaller probability is not in (0, 1).
    """
    exact_yes, exact_no = Fraction(yes), shares * Fraction(no)
    smaller = min(exact_yes, exact_no)
    if not 0 < smaller < 1:
        raise ValueError(f"the probabilities of a coin must be in (0, 1), got {yes!r} and {shares} times {no!r}")
    length = -(-(smaller.denominator.bit_length() - 1) // 8)
    digits = smaller.numerator * 256**length // smaller.denominator
    return Coin(digits.to_bytes(length, "big").hex(), exact_no < exact_yes)


class Odds(msgspec.Struct, frozen=True):
    """An exact number θ = numerator / 2^shift above 1.

    Attributes:
        numerator: big-endian, in hexadecimal digits, two for each byte; the first byte is not zero.
        shift: in [0, 128].
    """

    numerator: str
    shift: int

    @classmethod
    def of(cls, excess: float) -> Self:
        """Returns θ = 1 + excess, exactly.

        Args:
            excess: a double above 0.
        """
        exact = Fraction(excess) + 1
        number = exact.numerator
        return cls(number.to_bytes(-(-number.bit_length() // 8), "big").hex(), exact.denominator.bit_length() - 1)

    @property
    def excess(self) -> float:
        """θ - 1."""
        return (int(self.numerator, 16) - (1 << self.shift)) / (1 << self.shift)


Coins = dict[str, dict[str, Coin]]  # the coins of each round: "memo" (memoized mechanisms only) and "report"


class Parameters(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Parameters of the mechanism of an attribute and level, for a device.

    Attributes:
        mechanism: the mechanism's name, never ``"auto"``.
        k: number of values.
        row_bytes: size of a report in an envelope.
        every_steps: w; a device reports at one of w consecutive steps.
        lifetime_reports: the largest number of reports that a device makes; None for no limit.
        eps: loss of one report of a one-time mechanism, in nats, after the split of the budget.
        eps_inf, eps_1: losses of a memo and of one report of a memoized mechanism, in nats, after the split of the budget.
        g: number of hashed symbols, a prime power (local hashing).
        functions: number S = g^digits of hash functions (local hashing).
        digits: number of base-g digits of a value's place (local hashing).
        stride: a value v has the place v · stride mod k; in [1, k), without a common factor with k (local hashing).
        field: the field with g elements (local hashing).
        omega: number of ones in a report (subset selection).
        memo_size: number of ones in a memo (L-SS).
        odds: θ. A report with one more value of the memo is θ times as likely (L-SS).
        width: L, number of near cells (SW). A report is one of k - 1 + L cells; those near a value v are v … v + L - 1.
        choices: m, the largest number of values in a set (PS-GRR, L-PS-GRR). k then counts k - m values and m dummies.
        coins: the coins of each round, ``"memo"`` (memoized mechanisms only) and ``"report"``.
    """

    mechanism: str
    k: int
    row_bytes: int
    every_steps: int
    lifetime_reports: int | None
    eps: float | None = None
    eps_inf: float | None = None
    eps_1: float | None = None
    g: int | None = None
    functions: int | None = None
    digits: int | None = None
    stride: int | None = None
    field: FiniteField | None = None
    omega: int | None = None
    memo_size: int | None = None
    odds: Odds | None = None
    width: int | None = None
    choices: int | None = None
    coins: Coins


class DeviceRandom(Protocol):
    def below(self, n: int) -> int:
        """Returns a uniform integer in [0, n)."""

    def toss(self, coin: Coin, n: int) -> BitArray:
        """Returns n independent tosses of the coin, 1 for yes."""


class Randomizer(ABC):
    """The code of a device for one mechanism. A draw uses only the exact numbers of `Parameters`: the integers and the coins.

    The draws are in the order that docs/reference/write_a_device.md states.

    Attributes:
        parameters: the parameters of the mechanism.
        memoized: true if a device keeps one memo for each memo key.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters, self.k = parameters, parameters.k
        self.memoized = "memo" in parameters.coins
        self._first, self._second = parameters.coins.get("memo", {}), parameters.coins["report"]

    def enroll(self, random: DeviceRandom) -> int:
        """Draws the device's permanent choice: the number of its hash function; 0 for mechanisms without one."""
        return 0

    def memo_key(self, value: int, function: int) -> int:
        """Returns the key under which a device with this hash function stores the value's memo."""
        return value

    @abstractmethod
    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes: ...

    @abstractmethod
    def is_memo(self, memo: bytes, function: int) -> bool:
        """For a memoized mechanism, returns true if a device with this hash function could have drawn the memo."""

    @abstractmethod
    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        """Draws a report from a memo: one row of `row_bytes`."""


class OneTimeRandomizer(Randomizer):
    """Base of randomizers that draw a report from the value: the memo is the value in four bytes."""

    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes:
        return key.to_bytes(VALUE_BYTES, "little")

    def is_memo(self, memo: bytes, function: int) -> bool:
        return len(memo) == VALUE_BYTES and int.from_bytes(memo, "little") < self.k

    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        return self.report_value(int.from_bytes(memo, "little"), random)

    @abstractmethod
    def report_value(self, value: int, random: DeviceRandom) -> bytes: ...


def least_bytes(n_symbols: int) -> int:
    """Returns the smallest of the sizes 1, 2 and 4 bytes that holds 0 … n_symbols-1."""
    return 1 if n_symbols <= 2**8 else 2 if n_symbols <= 2**16 else 4


def symbol_row(n_symbols: int, symbol: int) -> bytes:
    """Returns a symbol in [0, n_symbols) as a row: a little-endian integer of `least_bytes`."""
    return symbol.to_bytes(least_bytes(n_symbols), "little")


def bits_row(bits: BitArray) -> bytes:
    """Returns k bits as a row: bit v is bit v mod 8, least significant first, of byte ⌊v/8⌋."""
    number = int(bits[::-1].translate(_DIGITS), 2)
    return number.to_bytes(-(-len(bits) // 8), "little")


def row_bits(k: int, row: bytes) -> BitArray:
    return f"{int.from_bytes(row, 'little'):0{k}b}"[::-1].encode().translate(_BITS)
