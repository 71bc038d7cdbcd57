"""Reference for tests of the mechanisms: slow, dense code, written from the docstrings alone.

`rounds` builds a mechanism's probabilities for each symbol and bit from p, q (p₁, q₁, p₂, q₂). The other functions compute with
these probabilities. The axes of the arrays are (value, block, …). A block is a constant, public part of a person's reports: the
hash function of memoized local hashing. The other mechanisms have one block.
"""

import math
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import NAMES, ONE_TIME, Longitudinal, Mechanism, mechanism
from ldpstream.mechanisms.counts.terms import SupportTerm
from ldpstream.mechanisms.families.local_hashing import HashingTerm
from ldpstream.mechanisms.families.memoized_subset import weights
from ldpstream.mechanisms.families.square_wave import WaveTerm
from ldpstream.mechanisms.registry import FAMILIES

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Polynomial = tuple[int, ...]  # coefficients, least significant first

# ---- mechanisms


def build(name: str, k: int, eps_inf: float, eps_1: float, **options: Any) -> Mechanism:
    """A one-time or longitudinal mechanism. A one-time mechanism uses only eps_1."""
    budgets: dict[str, Any] = {"eps": eps_1} if name in ONE_TIME else {"eps_inf": eps_inf, "eps_1": eps_1}
    return mechanism(name, k, **budgets, **options)


def most_values(name: str, k: int) -> int:
    """k, or the largest domain of the mechanism with this name."""
    return min(k, next(family.most_values for family in FAMILIES if name in family.names))


def grid(ks: tuple[int, ...] = (2, 3, 8), pairs: tuple[tuple[float, float], ...] = ((2.0, 1.0),)) -> list[Mechanism]:
    """All pure mechanisms in all calibrations, and some with another g or omega, for each of the given parameters."""
    found = []
    for k, (eps_inf, eps_1) in product(ks, pairs):
        found += [build(name, k, eps_inf, eps_1) for name in NAMES]
        found += [build(name, k, eps_inf, eps_1, calibration="paper") for name in ("L-GRR", "L-BLH", "L-OLH")]
        found += [build(name, k, eps_inf, eps_1, g=g) for name in ("OLH", "L-OLH") for g in (3, 8)]
        found += [build("SS", k, eps_inf, eps_1, omega=omega) for omega in {(k + 1) // 2, k - 1}]
        found += [build("L-SS", k, eps_inf, eps_1, memo_size=size, omega=size) for size in {1, k // 2}]
    return list({m.signature: m for m in found if getattr(m, "g", 0) <= 32}.values())


# ---- the finite field, by the docstring of mechanisms.families.finite_field


def prime_power(g: int) -> tuple[int, int]:
    """(r, e) with g = r^e."""
    r = next(r for r in range(2, g + 1) if g % r == 0)
    e = round(math.log(g, r))
    assert r**e == g
    return r, e


def remainder(a: Polynomial, f: Polynomial, r: int) -> Polynomial:
    """The remainder of a divided by the monic polynomial f, by long division. Coefficients are integers modulo r."""
    rest = list(a)
    while len(rest) >= len(f):
        top = rest[-1]
        for i, c in enumerate(f):
            rest[len(rest) - len(f) + i] = (rest[len(rest) - len(f) + i] - top * c) % r
        rest.pop()
    return tuple(rest) + (0,) * (len(f) - 1 - len(rest))


def digits(number: int, base: int, count: int) -> Polynomial:
    """The digits of a number, least significant first."""
    return tuple(number // base**i % base for i in range(count))


@cache
def modulus(r: int, e: int) -> Polynomial:
    """The first irreducible monic polynomial of degree e: no monic polynomial of a lower degree divides it."""
    lower = [(*digits(n, r, d), 1) for d in range(1, e // 2 + 1) for n in range(r**d)]
    candidates = ((*digits(n, r, e), 1) for n in range(r**e))
    return next(f for f in candidates if all(any(remainder(f, h, r)) for h in lower))


@cache
def times(g: int, a: int, b: int) -> int:
    """The product of a and b in GF(g)."""
    r, e = prime_power(g)
    products = [0] * (2 * e - 1)
    for (i, x), (j, y) in product(enumerate(digits(a, r, e)), enumerate(digits(b, r, e))):
        products[i + j] += x * y
    reduced = remainder(tuple(c % r for c in products), modulus(r, e), r)
    return sum(c * r**i for i, c in enumerate(reduced))


@cache
def plus(g: int, a: int, b: int) -> int:
    """The sum of a and b in GF(g)."""
    r, e = prime_power(g)
    return sum((x + y) % r * r**i for i, (x, y) in enumerate(zip(digits(a, r, e), digits(b, r, e))))


def linear_form(g: int, m: int, a: int, place: int) -> int:
    """Σ_j a_j v_j over GF(g), for the m base-g digits of a and of a value's place."""
    total = 0
    for x, y in zip(digits(a, g, m), digits(place, g, m)):
        total = plus(g, total, times(g, x, y))
    return total


@cache
def places(g: int, k: int) -> tuple[int, ...]:
    """The place of each value, for the module's stride."""
    if k <= g:
        return tuple(range(k))
    s = min((s for s in range(1, k) if math.gcd(s, k) == 1), key=lambda s: abs(s - 2 * k / (1 + math.sqrt(5))))
    values = [i * s % k for i in range(k)]
    return tuple(values.index(v) for v in range(k))


@cache
def hashes(g: int, k: int) -> Ints:
    """(S, k) H_a(v) of all functions and values."""
    m = next(m for m in range(1, 64) if g**m >= k)
    return np.array([[linear_form(g, m, a, place) for place in places(g, k)] for a in range(g**m)])


# ---- the families, each written from its docstring


class Written:
    """A family of mechanisms: its reports, and the probabilities of its rounds. Every suite reads them from here.

    Attributes:
        term: the class of its exact likelihood.
        loose: true if its claims keep defaults that are only bounds: evidence, and the weight of a false report for several
            values.
    """

    term: type[Any] = SupportTerm
    loose = False

    def reports(self, m: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Every possible report, in the order of the channel's columns, and a boolean array (outputs, k): true where a report
        supports a value."""
        return np.arange(m.k).astype(m.report_dtype), np.eye(m.k, dtype=bool)

    def one_round(self, m: Any) -> Floats:
        """(k, outputs) Pr[report | value] of a one-time mechanism."""
        return symbols(m.k, m.p, m.q)

    def rounds(self, m: Any) -> tuple[Floats, Floats]:
        """(k, blocks, memos) Pr[block and memo | value]; (memos, symbols) Pr[the report's symbol | memo] within a block, of a
        memoized mechanism."""
        return symbols(m.k, m.p1, m.q1)[:, None, :], symbols(m.k, m.p2, m.q2)

    def keys(self, m: Any) -> Ints:
        """(blocks, k) the number of the memo of each value."""
        return np.arange(m.k)[None]

    def ratio(self, m: Any, coins: list[Fraction]) -> Fraction:
        """e^{ε₁}, from the chances of the coins that a device tosses for one report."""
        return self._symbols_ratio(m.k, coins)

    def _symbols_ratio(self, n: int, coins: list[Fraction]) -> Fraction:
        p, q = coins[0], (1 - coins[0]) / (n - 1)
        for p2 in coins[1:]:
            q2 = (1 - p2) / (n - 1)
            p, q = p * p2 + (n - 1) * q * q2, p * q2 + q * p2 + (n - 2) * q * q2
        return p / q


class Waves(Written):
    term = WaveTerm

    def ratio(self, m: Any, coins: list[Fraction]) -> Fraction:
        return Fraction(coins[0] / m.width * (m.k - 1) / (1 - coins[0]))

    def reports(self, m: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        cells = np.arange(m.k - 1 + m.width)
        offset = cells[:, None] - np.arange(m.k)
        return cells.astype(m.report_dtype), (offset >= 0) & (offset < m.width)

    def one_round(self, m: Any) -> Floats:
        near, far = (math.exp(eps) / (m.width * math.exp(m.eps_1) + m.k - 1) for eps in (m.eps_1, 0))
        return np.asarray(np.where(self.reports(m)[1].T, near, far))


class Bits(Written):
    def ratio(self, m: Any, coins: list[Fraction]) -> Fraction:
        p, q = coins[:2]
        if m.memoized:
            p, q = (x * coins[2] + (1 - x) * coins[3] for x in (p, q))
        return p * (1 - q) / ((1 - p) * q)

    def reports(self, m: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        chosen = np.array([digits(i, 2, m.k) for i in range(2**m.k)], bool)
        return np.packbits(chosen, axis=1, bitorder="little"), chosen

    def one_round(self, m: Any) -> Floats:
        return bits(m.k, m.p, m.q)

    def rounds(self, m: Any) -> tuple[Floats, Floats]:
        memos = np.array([digits(i, 2, m.k) for i in range(2**m.k)], float)
        return bits(m.k, m.p1, m.q1)[:, None, :], bits(m.k, m.p2, m.q2, memos)


class Subsets(Written):
    def ratio(self, m: Any, coins: list[Fraction]) -> Fraction:
        p = coins[0]
        if m.memoized:
            ways = weights(m.k, m.memo_size, m.omega, m.odds)
            overlap = Fraction(sum(j * way for j, way in enumerate(ways)), sum(ways))
            p = p * overlap / m.memo_size + (1 - p) * (m.omega - overlap) / (m.k - m.memo_size)
        return Fraction(p / m.omega * (m.k - m.omega) / (1 - p))

    def reports(self, m: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        chosen = self._sets(m.k, m.omega)
        return np.packbits(chosen, axis=1, bitorder="little"), chosen

    def one_round(self, m: Any) -> Floats:
        sets_with, sets_without = math.comb(m.k - 1, m.omega - 1), math.comb(m.k - 1, m.omega)
        return np.asarray(np.where(self.reports(m)[1].T, m.p / sets_with, (1 - m.p) / sets_without))

    def rounds(self, m: Any) -> tuple[Floats, Floats]:
        memos, reports = self._sets(m.k, m.memo_size), self._sets(m.k, m.omega)
        theta = Fraction(int(m.odds.numerator, 16), 2**m.odds.shift)
        kernel = np.array([[float(theta ** int((memo & report).sum())) for report in reports] for memo in memos])
        first = np.where(memos.T, math.exp(m.eps_inf), 1.0)
        return (first / first.sum(axis=1, keepdims=True))[:, None, :], kernel / kernel.sum(axis=1, keepdims=True)

    def _sets(self, k: int, size: int) -> npt.NDArray[np.bool_]:
        return np.array([np.isin(np.arange(k), subset) for subset in combinations(range(k), size)])


class Hashed(Written):
    term = HashingTerm

    def keys(self, m: Any) -> Ints:
        return hashes(m.g, m.k)

    def ratio(self, m: Any, coins: list[Fraction]) -> Fraction:
        return self._symbols_ratio(m.g, coins)

    def reports(self, m: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        table = hashes(m.g, m.k)
        pairs = list(product(range(len(table)), range(m.g)))
        return np.array(pairs, "i8,i8").astype(m.report_dtype), np.array([table[a] == y for a, y in pairs])

    def one_round(self, m: Any) -> Floats:
        table = hashes(m.g, m.k)
        return (symbols(m.g, m.p, (1 - m.p) / (m.g - 1))[table.T] / len(table)).reshape(m.k, -1)

    def rounds(self, m: Any) -> tuple[Floats, Floats]:
        table = hashes(m.g, m.k)
        return symbols(m.g, m.p1, m.q1)[table.T] / len(table), symbols(m.g, m.p2, m.q2)


WRITTEN: dict[str, Written] = {
    **dict.fromkeys(("GRR", "L-GRR"), Written()),
    **dict.fromkeys(("SUE", "OUE", "THE", "L-SUE", "L-OSUE", "L-SOUE", "L-OUE"), Bits()),
    **dict.fromkeys(("BLH", "OLH", "L-BLH", "L-OLH"), Hashed()),
    **dict.fromkeys(("SS", "L-SS"), Subsets()),
    "SW": Waves(),
}


def written(m: Mechanism) -> Written:
    if m.name not in WRITTEN:
        raise AssertionError(f"write {m.name} down in {__name__}.WRITTEN, from its docstring and independently of its code")
    return WRITTEN[m.name]


def forged(m: Mechanism) -> npt.NDArray[Any]:
    """One report that raises the last value as much as a report can, and as many other values as possible."""
    rows, supported = all_reports(m)
    return rows[[np.lexsort((supported.sum(axis=1), supported[:, -1]))[-1]]]


def all_reports(m: Mechanism) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    return written(m).reports(m)


def column_of(m: Mechanism, reports: npt.NDArray[Any]) -> Ints:
    """The channel's column of each report."""
    rows, _ = all_reports(m)
    index = {row.tobytes(): i for i, row in enumerate(rows)}
    return np.array([index[row.tobytes()] for row in reports])


# ---- probabilities


def symbols(k: int, p: float, q: float) -> Floats:
    """(k, k) Pr[output symbol | input symbol] of one round on k symbols."""
    return np.where(np.eye(k, dtype=bool), p, q)


def bits(k: int, p: float, q: float, inputs: Floats | None = None) -> Floats:
    """(inputs, 2^k) probabilities of one round on k bits. The inputs are the one-hot vectors by default.

    Bit v of a column's index is bit v of the output.
    """
    rows = np.eye(k) if inputs is None else inputs
    outputs = np.array([digits(i, 2, k) for i in range(2**k)])
    one = np.where(rows == 1, p, q)[:, None, :]
    return np.asarray(np.where(outputs == 1, one, 1 - one).prod(axis=2))


def sequences(m: Mechanism, t: int) -> Floats:
    """(k, blocks, symbols^t) Pr[block and t reports of an unchanged value | value]. On the last axis, the last report varies
    fastest."""
    if isinstance(m, Longitudinal):
        memo, fresh = written(m).rounds(m)
    else:  # a one-time mechanism: the value itself serves as the memo
        memo, fresh = np.eye(m.k)[:, None, :], written(m).one_round(m)
    joint = np.ones((len(fresh), 1))
    for _ in range(t):
        joint = (joint[:, :, None] * fresh[:, None, :]).reshape(len(fresh), -1)
    return np.asarray(memo @ joint)


def supports(m: Mechanism, t: int) -> Ints:
    """(blocks, symbols^t, k) number of the t reports of `sequences` that support each value."""
    _, single = all_reports(m)
    blocks = written(m).rounds(m)[0].shape[1] if isinstance(m, Longitudinal) else 1
    single = single.reshape(blocks, -1, m.k)
    total = np.zeros((len(single), 1, m.k), np.int64)
    for _ in range(t):
        total = (total[:, :, None, :] + single[:, None, :, :]).reshape(len(single), -1, m.k)
    return total


def worst_ratio(probabilities: Floats) -> float:
    """The largest |ln ratio| between two rows' probabilities of the same outcome."""
    logs = np.log(probabilities.reshape(len(probabilities), -1))
    return float((logs.max(axis=0) - logs.min(axis=0)).max())
