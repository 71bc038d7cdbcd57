"""Local hashing: a device hashes its value to one of g symbols, and sends its hash function and the randomized symbol.

By default, BLH and L-BLH use g = 2, and OLH and L-OLH use `best_g`. L-OLH with the paper's calibration uses `papers_g`. The
one-time mechanisms apply GRR to the g symbols (Bassily and Smith 2015; Wang, Blocki, Li and Jha 2017), the memoized ones L-GRR
(Arcolezi et al., LOLOHA). The hash functions are the linear forms of `linear_pool`: a report supports a value other
than the device's with probability q = 1/g exactly.

With memoization, a device never changes its function and draws one memo for each hashed symbol: at most min(k, g) memos in its
lifetime.

A report is the function's number a in [0, S), then the symbol in [0, g), both as little-endian unsigned integers of
`least_bytes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from ldpstream.mechanisms import ledger
from ldpstream.mechanisms.arguments import (
    MAX_COUNT,
    FloatArray,
    IntArray,
    Reports,
    chain_epsilons,
    epsilon,
    integer,
    one_of,
    user_values,
)
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.base import Mechanism
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.evidence import Evidence
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.privacy_claims import Claims
from ldpstream.mechanisms.counts.covariance import Covariance
from ldpstream.mechanisms.counts.reading import Reading
from ldpstream.mechanisms.counts.terms import ChannelTerm
from ldpstream.mechanisms.devices import Coins, least_bytes
from ldpstream.mechanisms.families.finite_field import MAX_FIELD, FiniteField, modulus, prime_power, prime_powers
from ldpstream.mechanisms.families.grr import (
    CALIBRATIONS,
    GRR,
    LongitudinalGRR,
    LongitudinalGRRClaims,
    chain,
    probabilities,
    randomize,
    second_round_eps,
    unsigned,
)
from ldpstream.mechanisms.families.hash_randomizer import HashRandomizer
from ldpstream.mechanisms.families.linear_pool import LinearPool, digits_needed
from ldpstream.mechanisms.families.score_moments import MAX_DENSE_K, hashing_moments, lines
from ldpstream.mechanisms.kinds import Longitudinal, LongitudinalClaims, OneTime, OneTimeClaims
from ldpstream.mechanisms.table import CountTable

MAX_TABLE = 2**26  # limit for the counts of one table: 512 MiB of int64
AUTO_TABLE = 2**23  # limit if g is chosen automatically and some g is within the limit: 64 MiB, which the services can store
MAX_HASH_K = 2**24
MAX_SHARPENED_K = 1000  # `sharpened` is for at most this many values, because of its time
SHARPENING = 3  # steps of Newton's method
LEAST_SHARE = 0.05  # least share in these steps, in units of 1/k
LEAST_INFORMATION = 0.1  # least D, in units of the diagonal of the Fisher information


def fits(k: int, g: int, limit: int = MAX_TABLE) -> bool:
    """True if the count table of g symbols for k values has at most `limit` counts."""
    return digits_needed(k, g)[1] * g <= limit


def _limit(k: int) -> int:
    return AUTO_TABLE if 2 * k <= AUTO_TABLE else MAX_TABLE


def best_g(k: int, p_of_g: Callable[[int], float]) -> int:
    """The prime power g up to 1024 with the smallest variance q(1-q)/(p-q)², q = 1/g, whose table has at most 2^23 counts. The
    search ends after three larger variances in a row.

    For more than 2^22 values, the limit is 2^26 counts.
    """
    best, best_variance, worse, limit = 2, math.inf, 0, _limit(k)
    for g in prime_powers(MAX_FIELD):
        if worse == 3:
            break
        if not fits(k, g, limit):  # a larger g may fit: its S = g^m, the next power above k, can be smaller
            continue
        p, q = p_of_g(g), 1 / g
        variance = q * (1 - q) / (p - q) ** 2
        best, best_variance, worse = (g, variance, 0) if variance < best_variance else (best, best_variance, worse + 1)
    return best


def papers_g(k: int, eps_inf: float, eps_1: float) -> int:
    """The g of L-OLH by LOLOHA's formula, rounded down to a prime power whose table is within the limit.

    g = 1 + max(1, ⌊(1 - a² + sqrt(a⁴ - 14a² + 12ab(1-ab) + 12a³b + 1)) / (6(a-b))⌋),  a = e^{ε∞}, b = e^{ε₁}
    """
    square, product, difference = -math.expm1(-2 * eps_inf), -math.expm1(-eps_inf - eps_1), -math.expm1(eps_1 - eps_inf)
    root = math.sqrt(square**2 + 12 * math.exp(eps_1 - eps_inf) * difference * product)
    g = 1 + max(1, math.floor(2 * math.exp(eps_1) * product / (square + root)))
    limit = _limit(k)
    return max(h for h in prime_powers(MAX_FIELD) if h <= g and fits(k, h, limit))


class HashingTerm(ChannelTerm):
    """Term of local hashing's (S, g) count table.

        P(a, y | v) = p/S if H_a(v) = y, q'/S for each of the g - 1 other symbols y

    For a memoized mechanism, p is the probability over both rounds.

    Args:
        pool: the hash functions.
        counts: (S, g) int64 the table's counts.
        p, other: Pr[report is y | hashed symbol is y] and Pr[report is y | hashed symbol is not y], of one report.
    """

    def __init__(self, pool: LinearPool, counts: IntArray, p: float, other: float) -> None:
        super().__init__(pool.k, pool.fold(counts), -int(counts.sum()) * math.log(pool.size))
        self._pool, self._other, self._excess = pool, other, p - other

    def _forward(self, f: FloatArray) -> FloatArray:
        m = self._pool.radon(f)
        m *= self._excess
        m += self._other * f.sum()
        return m

    def _adjoint(self, x: FloatArray) -> FloatArray:
        sums = self._pool.radon_transpose(x)
        sums *= self._excess
        sums += self._other * x.sum()
        return sums


class HashReading(Reading):
    """Reads the (S, g) count table.

    A report supports two values u and v with probability q² + q d L_uv, where d = p - q. L_uv is the share of the people whose
    value lies on the line through u and v (`linear_pool`), and R_uv is this share without u and v themselves. With κ = p₂ - q₂
    for a memoized mechanism and κ = 0 otherwise, the covariance of the support counts over W steps is

        Cov(S_u, S_v) = q d (W + W(W-1) κ) R_uv - W² d² f_u f_v

    If k <= g, all values lie on one line, and R_uv = 1 - f_u - f_v. `_covariance_factors` uses ρ (1 - f_u - f_v), where ρ is
    the share of collinear triples among all triples of values. `support_covariance` adds the difference from R_uv for at most
    128 values. For more values, the standard error of a sum of many shares is right within a few per cent.
    """

    m: Hashing

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        together = math.sqrt(self._together(steps) * self.m.pool.collinear)
        kept = steps * (self.m.p - self.m.q) * frequencies
        return [(1, together * (1 - frequencies)), (-1, together * frequencies), (-1, kept)]

    def _together(self, steps: int) -> float:
        _, _, p2, q2 = self.m.rounds()
        kept = p2 - q2 if self.m.memoized else 0.0
        return max(0.0, self.m.q * (self.m.p - self.m.q) * (steps + steps * (steps - 1) * kept))

    def supported_together(self, steps: int) -> float:
        """The largest R is that of people with one value: the other min(g, k) - 1 values of a line through it are alike."""
        return self._together(steps) * max(0, min(self.m.g, self.m.k) - 2)

    def _support_covariance(self, frequencies: FloatArray, steps: int) -> Covariance:
        found = super()._support_covariance(frequencies, steps)
        if self.m.pool.m == 1 or self.m.k > MAX_DENSE_K:
            return found
        rest = lines(self.m.pool, frequencies) - self.m.pool.collinear
        rest -= (1 - self.m.pool.collinear) * (frequencies[:, None] + frequencies)
        np.fill_diagonal(rest, 0.0)
        sizes, vectors = np.linalg.eigh(self._together(steps) * rest)
        return found + Covariance(np.zeros(self.m.k), np.sqrt(np.abs(sizes))[:, None] * vectors.T, np.sign(sizes))

    def _support(self, table: CountTable) -> IntArray:
        return self.m.pool.support(table.counts)

    def sharpened(self, table: CountTable) -> tuple[FloatArray, FloatArray] | None:
        """Three steps of Newton's method towards the maximum of the true likelihood L, from the inversion (Le Cam 1956).

            f ← f + D⁻¹ (∇L - λ),   D_v = I_vv - 2 a_v        λ keeps the sum

        I is the Fisher information, whose entries beside the diagonal are about a_v + a_w. These add nothing but -2 a_v to the
        diagonal, because all changes have the sum 0.
        """
        m, pool = self.m, self.m.pool
        if m.fakes > 1 or m.k > MAX_SHARPENED_K or pool.m == 1:
            return None
        term, gain = self.likelihood(table), m.p - m.other_symbol
        weight = np.full(pool.cells, table.n * gain**2 * (m.g - 1) / pool.size)
        weight[-2:] = 0.0  # the constant function, which maps all values to one symbol
        alike, z = pool.radon(np.ones(m.k)), self.inversion(table)
        for _ in range(SHARPENING):
            f = np.maximum(z, LEAST_SHARE / m.k)
            f /= f.sum()
            told = weight / (m.other_symbol + gain * pool.radon(f))
            own, row = pool.radon_transpose(told), pool.radon_transpose(told * alike)  # I_vv, and the sum of row v
            beside = (row - own - (row - own).sum() / (2 * m.k - 2)) / (m.k - 2)
            variance = 1 / np.maximum(own - 2 * beside, LEAST_INFORMATION * own)
            score = term(f)[1]
            z = f + (score - variance @ score / variance.sum()) * variance
        return z, variance

    def _channel_term(self, counts: IntArray) -> HashingTerm:
        return HashingTerm(self.m.pool, counts, self.m.p, self.m.other_symbol)

    def fit_tests(self, table: CountTable, steps: int) -> dict[str, tuple[float, int] | None]:
        from ldpstream.mechanisms.counts.fit_tests import hashes  # slow to load; only estimates need it

        return hashes(table, self.m.pool.size, self.m.g, self.m.memoized, steps)

    @property
    def has_score_moments(self) -> bool:
        return self.m.k <= MAX_DENSE_K

    def _score_moments(self, f: FloatArray, steps: int, exact: bool) -> tuple[FloatArray, FloatArray]:
        rounds = self.m.symbols.rounds() if self.m.memoized else None
        return hashing_moments(self.m.pool, self.m.p, self.m.other_symbol, rounds, f, steps, exact)


class HashingClaims(Claims):
    m: Hashing

    @property
    def blanket(self) -> ledger.Blanket:
        return ledger.Blanket(self.m.eps_1, 1 / self.m.g, 1 / self.m.g**2)  # two values have one symbol with chance 1/g

    def _guess_symbol(self, best: Callable[[int], float]) -> float:
        return sum(functions * best(n) for functions, n in self.m.pool.images()) / self.m.pool.size / self.m.k


class Hashing(Mechanism):
    """Common base of one-time and memoized local hashing: the pool of hash functions, reports and count tables.

    Attributes:
        symbols: the mechanism that randomizes a hashed symbol.
    """

    claims_by = HashingClaims
    most_values = MAX_HASH_K

    g: int
    symbols: GRR | LongitudinalGRR
    pool: LinearPool
    randomizer = HashRandomizer
    read_by = HashReading
    other_symbol: float  # Pr[report is y | hashed symbol is not y]; p is Pr[report is y | hashed symbol is y]

    def _set_domain(self, k: object) -> None:
        self.k = integer("k", k, 2, self.most_values)

    def _set_pool(self, g: object) -> None:
        self.g = integer("g", g, 2, MAX_FIELD)
        if prime_power(self.g) is None:
            raise ValueError(f"g must be a prime power in [2, {MAX_FIELD}], got {g!r}")
        if not fits(self.k, self.g):
            raise ValueError(f"g = {self.g} for k = {self.k} needs a count table of more than {MAX_TABLE} counts")
        self.pool = LinearPool(self.k, self.g)
        self.row_bytes = least_bytes(self.pool.size) + least_bytes(self.g)
        self.table_shape = (self.pool.size, self.g)

    @cached_property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype([("function", unsigned(self.pool.size)), ("symbol", unsigned(self.g))])

    def coins(self) -> Coins:
        return self.symbols.coins()

    def device_fields(self) -> dict[str, Any]:
        r, e = prime_power(self.g) or (self.g, 1)
        pool, gf = self.pool, FiniteField(r, e, modulus(r, e))
        return {"g": self.g, "functions": pool.size, "digits": pool.m, "stride": pool.stride, "field": gf}

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        return np.asarray((reports["function"] < self.pool.size) & (reports["symbol"] < self.g))

    def _count(self, reports: Reports) -> IntArray:
        cells = reports["function"].astype(np.int64) * self.g + reports["symbol"]
        return np.bincount(cells, minlength=self.pool.size * self.g).reshape(self.table_shape).astype(np.int64, copy=False)

    def separating_part(self, table: CountTable) -> tuple[Mechanism, CountTable]:
        """Returns the reports of the injective hash functions as reports of `symbols`, if k is at most g and there is no fake
        data."""
        if self.pool.m > 1 or self.fakes > 1:
            return self, table
        functions = np.arange(1, self.g)
        hashed = self.pool.hash(np.repeat(functions, self.g), np.tile(np.arange(self.g), self.g - 1))
        counts = table.counts[np.repeat(functions, self.g), hashed].reshape(self.g - 1, self.g).sum(axis=0)
        return self.symbols, self.symbols.table(int(counts.sum()), counts)

    def _rows(self, functions: IntArray, symbols: IntArray) -> Reports:
        rows = np.empty(functions.size, self.report_dtype)
        rows["function"], rows["symbol"] = functions, symbols
        return rows

    def _draw_functions(self, n: int, rng: np.random.Generator) -> IntArray:
        return rng.integers(0, self.pool.size, n)

    def _channel(self) -> FloatArray:
        functions = np.arange(self.pool.size)
        out = np.full((self.k, self.pool.size, self.g), self.other_symbol / self.pool.size)
        for v in range(self.k):
            out[v, functions, self.pool.hash(functions, np.full(functions.size, v))] = self.p / self.pool.size
        return out.reshape(self.k, -1)

    def _log2_outputs(self) -> float:
        return math.log2(self.pool.size * self.g)


class LocalHashingClaims(HashingClaims, OneTimeClaims):
    m: LocalHashing

    @property
    def favours(self) -> float:
        return (1 - 1 / self.m.g) * self.m.p  # two values have one symbol with probability 1/g

    def _guess_once(self) -> Chance:
        return Chance(self._guess_symbol(lambda n: n * self.m.p + (self.m.g - n) * self.m.other_symbol))


class LocalHashing(Hashing, OneTime):
    """One-time local hashing, BLH or OLH.

    Args:
        name: ``"BLH"`` or ``"OLH"``.
        k: domain size, in [2, 2^24].
        eps: privacy loss of the report, in [1e-9, 700] nats.
        g: number of symbols, a prime power up to 1024; default: 2 for BLH, `best_g` for OLH.

    >>> m = LocalHashing("OLH", k=100, eps=1.0)
    >>> m.g, round(m.variance(n=10_000), 6)
    (4, 0.000369)
    """

    claims_by = LocalHashingClaims
    names = ("BLH", "OLH")

    def __init__(self, name: str, k: int, eps: float, g: int | None = None) -> None:
        self.name = one_of("name", name, self.names)
        self._set_domain(k)
        self.eps_1 = epsilon("eps", eps)
        if g is None:
            g = 2 if name == "BLH" else best_g(self.k, lambda g: probabilities(g, self.eps_1)[0])
        self._set_pool(g)
        self.symbols = GRR(self.g, self.eps_1)
        self.p, self.other_symbol = self.symbols.p, self.symbols.q
        self.q = 1 / self.g
        self.signature = f"{name}(k={self.k}, eps={self.eps_1!r}, g={self.g})"

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        checked = user_values(values, self.k)
        functions = self._draw_functions(checked.size, rng)
        return self._rows(functions, randomize(self.pool.hash(functions, checked), self.g, self.p, rng))


class LongitudinalHashingClaims(HashingClaims, LongitudinalClaims):
    m: LongitudinalHashing

    @property
    def symbols(self) -> LongitudinalGRRClaims:
        return LongitudinalGRRClaims(self.m.symbols)

    @property
    def memo_blanket(self) -> ledger.Blanket:
        return ledger.Blanket(self.m.eps_inf, 1 / self.m.g, 1 / self.m.g**2)

    @property
    def eps_per_report(self) -> float:
        return self.m.eps_2  # the loss of the second round alone, for two memos with different symbols

    def distance(self, t: float) -> float:
        return (1 - 1 / self.m.g) * self.symbols.distance(t)

    def evidence(self, t: float, *, any_values: bool = False) -> Evidence:
        return self.symbols.evidence(t, any_values=True) if any_values and t > 1 else super().evidence(t)

    def _guess(self, t: float) -> Chance:
        def likely(memo: Callable[[int], float]) -> float:
            return self._guess_symbol(lambda n: self.m.q1 * self.m.g + (self.m.p1 - self.m.q1) * memo(n))

        def chance(reports: int) -> float:
            return likely(lambda n: guessing.most_likely_symbol(reports, n, self.m.g, self.m.p2))

        return guessing.of_memo(t, likely(float), chance, guessing.MAX_EXACT_REPORTS)

    def eps_t(self, t: int) -> float:
        return ledger.eps_t_grr(integer("t", t, 1, MAX_COUNT), k=self.m.g, log_e1=self.m.eps_inf, log_e2=self.m.eps_2)

    def _eps_sequence(self, t: int) -> ledger.SequenceLoss:
        """For several reports exact only if some function maps the values onto all g symbols; for k < g an upper bound."""
        loss = ledger.eps_sequence_grr(integer("t", t, 1, MAX_COUNT), k=self.m.g, log_e1=self.m.eps_inf, log_e2=self.m.eps_2)
        return loss if self.m.k >= self.m.g or t == 1 else replace(loss, exact=False)


class LongitudinalHashing(Hashing, Longitudinal):
    """Memoized local hashing (L-LH): L-GRR on the g symbols to which the device's function hashes the values.

    Args:
        name: ``"L-BLH"`` or ``"L-OLH"``.
        k: domain size, in [2, 2^24].
        eps_inf: loss of the memo, up to 700 nats.
        eps_1: loss of a single report, in [1e-9, eps_inf) nats.
        calibration: ``"exact"``; or ``"paper"``: LOLOHA's second round.
        g: number of symbols, a prime power up to 1024; default: 2 for L-BLH; for L-OLH `best_g`, or `papers_g` with the paper's
            calibration.

    >>> m = LongitudinalHashing("L-OLH", k=100, eps_inf=2.0, eps_1=1.0)
    >>> m.g, round(m.variance(n=10_000), 6)
    (4, 0.000369)
    """

    claims_by = LongitudinalHashingClaims
    names = ("L-BLH", "L-OLH")

    def __init__(
        self, name: str, k: int, eps_inf: float, eps_1: float, calibration: str = "exact", g: int | None = None
    ) -> None:
        self.name = one_of("name", name, self.names)
        self._set_domain(k)
        self.eps_inf, self.eps_1 = chain_epsilons(eps_inf, eps_1)
        exact = one_of("calibration", calibration, CALIBRATIONS) == "exact"
        if g is None and name == "L-BLH":
            g = 2
        elif g is None:
            g = best_g(self.k, self._chain_p) if exact else papers_g(self.k, self.eps_inf, self.eps_1)
        self._set_pool(g)
        self.n_keys, self.max_memos, self.n_enrolments = self.g, min(self.k, self.g), self.pool.size
        self.signature = f"{name}(k={self.k}, eps_inf={self.eps_inf!r}, eps_1={self.eps_1!r}, g={self.g}, {calibration})"
        self.symbols: LongitudinalGRR = LongitudinalGRR(self.g, self.eps_inf, self.eps_1, calibration)
        self.eps_1, self.eps_2 = self.symbols.eps_1, self.symbols.eps_2
        self.p1, self.q1, self.p2, self.q2 = self.symbols.rounds()
        self.p, self.other_symbol = self.symbols.p, self.symbols.q
        self.q = 1 / self.g

    def _chain_p(self, g: int) -> float:
        eps_2 = second_round_eps(g, self.eps_inf, self.eps_1)
        return chain(g, *probabilities(g, self.eps_inf), *probabilities(g, eps_2))[0]

    def enroll(self, n: int, rng: np.random.Generator) -> IntArray:
        return self._draw_functions(integer("n", n, 0, 2**40), rng)

    def _functions(self, enrolment: IntArray, n: int) -> IntArray:
        functions = np.asarray(enrolment)
        if functions.shape != (n,) or functions.dtype.kind not in "iu":
            raise ValueError(f"enrolment must be {n} integers, got {functions.dtype} of shape {functions.shape}")
        if n and not (functions.min() >= 0 and functions.max() < self.pool.size):
            raise ValueError(f"enrolment must be in [0, {self.pool.size}), got {functions.min()} to {functions.max()}")
        return functions.astype(np.int64, copy=False)

    def memo_keys(self, values: npt.ArrayLike, enrolment: IntArray) -> IntArray:
        checked = user_values(values, self.k)
        return self.pool.hash(self._functions(enrolment, checked.size), checked)

    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        checked = user_values(values, self.k)
        functions = self.enroll(checked.size, rng) if enrolment is None else self._functions(enrolment, checked.size)
        return self._rows(functions, randomize(self.pool.hash(functions, checked), self.g, self.p1, rng))

    def report(self, memos: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        memo = self._as_memos(memos)
        return self._rows(memo["function"], randomize(memo["symbol"].astype(np.int64), self.g, self.p2, rng))

    def rounds(self) -> tuple[float, float, float, float]:
        return self.p1, 1 / self.g, self.p2, self.q2  # a different value has the same hash with probability 1/g
