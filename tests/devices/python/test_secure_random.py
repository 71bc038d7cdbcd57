"""The device's draws are exact: the tests enumerate every random decision of a randomizer, with probabilities as fractions."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import accumulate, combinations, pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ldpstream.device.secure_random import SecureRandom
from ldpstream.mechanisms import NAMES, NUMERIC, ONE_TIME, Mechanism, Reports, mechanism
from ldpstream.mechanisms.devices import BitArray, Coin, coin
from ldpstream.mechanisms.families.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.families.memoized_subset import LongitudinalSubset
from ldpstream.mechanisms.families.square_wave import SquareWave
from ldpstream.mechanisms.families.subset import Subsets
from tests.mechanisms.reference import most_values, written

EVERY = (*NAMES, *NUMERIC)


def build(name: str, k: int, eps_inf: float, eps_1: float, **options: Any) -> Mechanism:
    budgets: dict[str, Any] = {"eps": eps_1} if name in ONE_TIME or name in NUMERIC else {"eps_inf": eps_inf, "eps_1": eps_1}
    return mechanism(name, k, **budgets, **options)


def device_report(m: Mechanism, value: int, random: SecureRandom) -> Reports:
    """One report of a new device."""
    device = m.randomizer(m.parameters())
    function = device.enroll(random)
    row = device.report(device.memoize(device.memo_key(value, function), function, random), random)
    return np.frombuffer(row, m.report_dtype.base).reshape(1, *m.report_dtype.shape)


def probability(tossed: Coin) -> Fraction:
    """Returns Pr[yes], exactly."""
    smaller = Fraction(int(tossed.digits, 16), 16 ** len(tossed.digits))
    return 1 - smaller if tossed.inverted else smaller


def column(m: Mechanism, rows: Reports) -> npt.NDArray[np.int64]:
    """Returns the index of each report's column in the channel."""
    if isinstance(m, (LocalHashing, LongitudinalHashing)):
        return np.asarray(rows["function"].astype(np.int64) * m.g + rows["symbol"])
    if not m.report_dtype.shape:
        return rows.astype(np.int64)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    assert not bits[:, m.k :].any()
    if not isinstance(m, Subsets):
        return np.asarray(bits[:, : m.k] @ (1 << np.arange(m.k)))
    order = {subset: i for i, subset in enumerate(combinations(range(m.k), m.omega))}
    return np.array([order[tuple(np.flatnonzero(row))] for row in bits])


# ---- the primitives: from bytes to coins and integers


class Scripted(SecureRandom):
    """Returns the given bytes; raises IndexError after the last byte."""

    def __init__(self, script: bytes) -> None:
        self._script = list(script)

    def bytes(self, n: int) -> bytes:
        return bytes(self._script.pop(0) for _ in range(n))


def enumerated_probability(tossed: Coin) -> Fraction:
    """Returns Pr[yes] over all byte strings. Extends a string only while its bytes do not determine the outcome."""
    total, prefixes = Fraction(0), [b""]
    while prefixes:
        prefix = prefixes.pop()
        for byte in range(256):
            script = prefix + bytes([byte])
            try:
                total += Fraction(int(Scripted(script).toss(tossed, 1)[0]), 256 ** len(script))
            except IndexError:
                prefixes.append(script)
    return total


@pytest.mark.parametrize("p", [0.5, 1 / 3, 2 / 3, 1e-3, 1 - 2**-53, 2**-53, 255 / 256, 1e-18, 1e-60])
def test_a_coin_meets_its_probability_exactly(p: float) -> None:
    no = float(1 - Fraction(p))  # nearest double of 1 - p; 1.0 for p below 2^-53, for which the coin must use p itself
    tossed = coin(p, no)
    assert enumerated_probability(tossed) == probability(tossed)
    assert probability(tossed) == Fraction(p)
    assert probability(coin(no, p)) == 1 - Fraction(p)


def test_the_other_side_of_a_coin_may_have_many_outcomes() -> None:
    assert probability(coin(1.0, 1e-30, shares=7)) == 1 - 7 * Fraction(1e-30)  # in doubles, 1 - 7e-30 would be 1
    for yes, no in ((0.0, 1.0), (1.0, 0.0)):  # an underflow is an error, not certainty
        with pytest.raises(ValueError, match="must be in"):
            coin(yes, no)


def test_many_tosses_at_once_equal_single_tosses() -> None:
    two_digits = Coin("4080", False)
    # tosses with a tie draw their second digit after all first digits
    script = bytes([0x40, 0x3F, 0x40, 0x41, 0x40]) + bytes([0x7F, 0x80, 0x81])
    assert Scripted(script).toss(two_digits, 5) == bytes([1, 1, 0, 0, 0])
    assert Scripted(script).toss(Coin("4080", True), 5) == bytes([0, 0, 1, 1, 1])
    assert not Scripted(b"").toss(two_digits, 0)


def test_an_integer_takes_the_low_bits_of_big_endian_bytes() -> None:
    below = {1: (b"", 0), 2: (b"\xff", 1), 3: (b"\x03\xff\x02", 2), 256: (b"\xfe", 254), 257: (b"\x03\x01\x81\x00", 256)}
    for n, (script, drawn) in below.items():
        random = Scripted(script)
        assert random.below(n) == drawn
        with pytest.raises(IndexError):
            random.bytes(1)
    counts = Counter(Scripted(bytes([byte, 0])).below(5) for byte in range(256))
    assert counts == {0: 32 + 96, 1: 32, 2: 32, 3: 32, 4: 32}  # 5, 6 and 7 are drawn again, here as 0


# ---- the randomizers: every decision with its probability


class Decisions(SecureRandom):
    """Follows a path of decisions, then chooses the first alternative at each further decision.

    `weight` is the path's probability. An integer below the last of `ends` is decided by its range: it is the first number of a
    range, or the last one for all others.
    """

    def __init__(self, path: tuple[int, ...], ends: list[int]) -> None:
        self.path, self.weight, self.alternatives, self.ends = path, Fraction(1), list[tuple[int, ...]](), ends
        self._next = 0

    def _decide(self, probabilities: list[Fraction]) -> int:
        if self._next == len(self.path):
            self.alternatives += [(*self.path, i) for i in range(1, len(probabilities))]
            self.path += (0,)
        decision = self.path[self._next]
        self._next += 1
        self.weight *= probabilities[decision]
        return decision

    def below(self, n: int) -> int:
        if self.ends[-1:] != [n]:
            return self._decide([Fraction(1, n)] * n)
        ranges = list(pairwise([0, *self.ends]))
        parts = [(low, 1) for low, _ in ranges] + [(high - 1, high - 1 - low) for low, high in ranges]
        return parts[self._decide([Fraction(size, n) for _, size in parts])][0]

    def toss(self, coin: Coin, n: int) -> BitArray:
        p = probability(coin)
        return bytes(self._decide([1 - p, p]) for _ in range(n))


def outcomes(draw: Callable[[SecureRandom], Reports], ends: list[int]) -> Iterator[tuple[Reports, Fraction]]:
    """Yields all outcomes of a randomizer with their probabilities; an outcome may occur several times."""
    paths: list[tuple[int, ...]] = [()]
    while paths:
        decisions = Decisions(paths.pop(), ends)
        yield draw(decisions), decisions.weight
        paths += decisions.alternatives


def overlap_weights(m: LongitudinalSubset) -> list[int]:
    """The weights of docs/reference/write_a_device.md."""
    size, top, theta, shift = m.memo_size, min(m.memo_size, m.omega), int(m.odds.numerator, 16), m.odds.shift
    ways = [math.comb(size, j) * math.comb(m.k - size, m.omega - j) for j in range(top + 1)]
    return [way * theta**j * 2 ** (shift * (top - j)) for j, way in enumerate(ways)]


def enumerated_channel(m: Mechanism) -> npt.NDArray[np.float64]:
    channel = [[Fraction(0)] * m.channel().shape[1] for _ in range(m.k)]
    ends = list(accumulate(overlap_weights(m))) if isinstance(m, LongitudinalSubset) else []
    for value in range(m.k):
        for row, weight in outcomes(partial(device_report, m, value), ends):
            assert row.dtype == m.report_dtype.base
            assert m.valid(row).all()
            channel[value][int(column(m, row)[0])] += weight
        assert sum(channel[value]) == 1
    return np.array(channel, float)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_device_realises_the_channel(name: str, k: int) -> None:
    m = build(name, k, 2.0, 1.0)
    realised = enumerated_channel(m)
    np.testing.assert_allclose(realised, m.channel(), rtol=1e-13)
    options = {"g": m.g} if isinstance(m, (LocalHashing, LongitudinalHashing)) else {}
    options |= {"memo_size": m.memo_size} if isinstance(m, LongitudinalSubset) else {}
    options |= {"omega": m.omega} if isinstance(m, Subsets) else {}
    options |= {"width": m.width} if isinstance(m, SquareWave) else {}
    other = build(name, k, 2.0, 1.0 + 1e-9, **options)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(realised, other.channel(), rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "option", "size"),
    [
        *product(["SS"], ["omega"], (1, 2, 4)),
        *product(["SW"], ["width"], (1, 3, 5)),
        *product(["L-SS"], ["omega", "memo_size"], (1, 2)),
    ],
)
def test_every_subset_size_and_width_realises_the_channel(name: str, option: str, size: int) -> None:
    m = build(name, 5, 2.0, 1.0, **{option: size})
    np.testing.assert_allclose(enumerated_channel(m), m.channel(), rtol=1e-13)


@pytest.mark.parametrize(("k", "g"), [(30, 2), (30, 3), (100, 4), (70, 8), (100, 9), (40, 16)])
def test_the_device_hashes_like_the_pool(k: int, g: int) -> None:
    m = mechanism("L-OLH", k, eps_inf=2.0, eps_1=1.0, g=g)
    assert isinstance(m, LongitudinalHashing)
    rng = np.random.default_rng(20260105)
    for function in [0, 1, m.pool.size - 1, *rng.integers(0, m.pool.size, 20)]:
        keys = [m.randomizer(m.parameters()).memo_key(value, int(function)) for value in range(k)]
        assert keys == m.memo_keys(np.arange(k), np.full(k, function)).tolist()


# ---- the realised loss, with 60 digits


class Recorder(SecureRandom):
    """Records the coins that a randomizer tosses."""

    def __init__(self) -> None:
        self.coins: list[Coin] = []

    def toss(self, coin: Coin, n: int) -> BitArray:
        self.coins.append(coin)
        return bytes(n)

    def below(self, n: int) -> int:
        return 0


def realised_eps_1(m: Mechanism) -> float:
    """Returns the exact loss of one report, from the coins that the device tosses."""
    recorder = Recorder()
    device_report(m, 1, recorder)
    return logarithm(written(m).ratio(m, [probability(tossed) for tossed in recorder.coins]))


def logarithm(x: Fraction) -> float:
    with localcontext(prec=60):
        return float((Decimal(x.numerator) / Decimal(x.denominator)).ln())


@pytest.mark.parametrize("name", EVERY)
def test_the_realised_loss_equals_the_stated_one(name: str) -> None:
    worst = 0.0
    for k in (2, 3, 100, most_values(name, 5_000)):
        for eps_inf in (1e-3, 0.5, 2.0, 10.0, 37.0, 100.0, 700.0):
            for part in (1e-3, 0.45, 0.999):
                try:
                    m = build(name, k, eps_inf, part * eps_inf)
                except ValueError:  # an OUE second round cannot reach every eps_1
                    assert name in ("L-SOUE", "L-OUE")
                    continue
                worst = max(worst, abs(realised_eps_1(m) - m.eps_1))
    assert worst < (1e-11 if name == "L-SS" else 1e-13)  # the odds come from logarithms of large binomial coefficients
