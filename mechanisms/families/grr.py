"""Generalized randomized response (GRR, k-ary randomized response) and its memoizing chain L-GRR = GRR∘GRR.

    report = the value with probability p, any other symbol with probability q each

For one-time GRR, p = e^ε/(e^ε+k-1) and q = 1/(e^ε+k-1) (Kairouz, Bonawitz and Ramage 2016). For the chain with rounds (p₁, q₁)
and (p₂, q₂) and with E = e^{ε₂} = p₂/q₂,

    p = p₁p₂ + (k-1) q₁q₂        q = p₁q₂ + q₁p₂ + (k-2) q₁q₂        p/q = e^{ε₁}
    E - 1 = (1 + (k-1) e^{-ε∞}) (e^{ε₁} - 1) / (1 - e^{ε₁-ε∞})

`calibration="paper"` uses the solution for k = 2 for every k, as equation 13 of Arcolezi et al. (ALLOMFREE).
"""

from __future__ import annotations

import math

from ldpstream.mechanisms import ledger
from ldpstream.mechanisms.arguments import (
    MAX_COUNT,
    MAX_K,
    FloatArray,
    IntArray,
    Reports,
    chain_epsilons,
    epsilon,
    integer,
    log1mexp,
    logaddexp,
    one_of,
    user_values,
)
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.base import Mechanism
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.evidence import Evidence
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.privacy_claims import Claims
from ldpstream.mechanisms.counts.reading import Reading
from ldpstream.mechanisms.devices import Coin, Coins, DeviceRandom, Randomizer, coin, least_bytes, symbol_row
from ldpstream.mechanisms.kinds import Longitudinal, LongitudinalClaims, OneTime, OneTimeClaims

CALIBRATIONS = ("exact", "paper")
MANY = 2**16  # from this many reports on, the compiled loop saves more time than its loading costs
NARROW = 2**14  # for at most this many symbols, the loop's four count tables fit the cache


def unsigned(symbols: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype(f"<u{least_bytes(symbols)}")


def probabilities(k: int, eps: float) -> tuple[float, float]:
    """(p, q) of one round of GRR on k symbols with loss eps in nats."""
    p = 1 / (1 + (k - 1) * math.exp(-eps))
    return p, p * math.exp(-eps)


def second_round_eps(k: int, eps_inf: float, eps_1: float) -> float:
    """The ε₂ = ln(p₂/q₂) that gives one report of GRR∘GRR on k symbols a loss of exactly eps_1."""
    log_excess = math.log1p((k - 1) * math.exp(-eps_inf)) + eps_1 + log1mexp(eps_1) - log1mexp(eps_inf - eps_1)
    return logaddexp(0.0, log_excess)


def chain(k: int, p1: float, q1: float, p2: float, q2: float) -> tuple[float, float]:
    """(p, q) of GRR∘GRR on k symbols, without cancellation."""
    return p1 * p2 + (k - 1) * q1 * q2, p1 * q2 + q1 * p2 + (k - 2) * q1 * q2


def randomize(symbols: IntArray, k: int, p: float, rng: np.random.Generator) -> IntArray:
    """Keeps each symbol with probability p, else replaces it by one of the other k-1 symbols, drawn uniformly."""
    other = rng.integers(0, k - 1, symbols.size)
    other += other >= symbols
    return np.where(rng.random(symbols.size) < p, symbols, other)


def symbol_coins(n_symbols: int, p: float, q: float) -> dict[str, Coin]:
    return {"keep": coin(p, q, n_symbols - 1)}


def draw_symbol(symbol: int, n_symbols: int, coins: dict[str, Coin], random: DeviceRandom) -> int:
    """Keeps the symbol, or draws one of the other symbols uniformly."""
    if not coins or random.toss(coins["keep"], 1)[0]:
        return symbol
    other = random.below(n_symbols - 1)
    return other + (other >= symbol)


class SymbolRandomizer(Randomizer):
    """The device's code of GRR and L-GRR: each memo and each report is one of k symbols."""

    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes:
        return symbol_row(self.k, draw_symbol(key, self.k, self._first, random))

    def is_memo(self, memo: bytes, function: int) -> bool:
        return len(memo) == self.parameters.row_bytes and int.from_bytes(memo, "little") < self.k

    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        return symbol_row(self.k, draw_symbol(int.from_bytes(memo, "little"), self.k, self._second, random))


class SymbolReading(Reading):
    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Within a step, the covariance of the support counts of u and v is -γ_u γ_v, with γ_v = Pr[a report supports v].

        Between steps it is -(p₂-q₂)² π_u π_v, with π of `given_memo` (PS-GRR: see its `_kept_together`).
        """
        hit, p2, q2 = self.given_memo(frequencies)
        return [
            (-1, math.sqrt(steps) * (q2 + (p2 - q2) * hit)),
            (-1, math.sqrt(steps * (steps - 1)) * (p2 - q2) * self._kept_together(hit)),
        ]

    def _kept_together(self, hit: FloatArray) -> FloatArray:
        """(k,) a row x: -x_u x_v stands for the covariance of the memo's supports of u and v, if π of `given_memo` is `hit`."""
        return hit


class SymbolsClaims(Claims):
    m: Symbols

    @property
    def blanket(self) -> ledger.Blanket | None:
        return ledger.Blanket(self.m.eps_1, 1 / self.m.k, 0.0)


class Symbols(Mechanism):
    """Common base of GRR, L-GRR and the mechanisms of sets: a report is one of k symbols, and the table counts symbols."""

    randomizer = SymbolRandomizer
    read_by = SymbolReading

    def _set_domain(self, k: object) -> None:
        self.k = integer("k", k, 2, MAX_K)
        self.row_bytes = least_bytes(self.k)
        self.table_shape = (self.k,)

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        return np.asarray(reports < self.k)

    def _count(self, reports: Reports) -> IntArray:
        if len(reports) < MANY or self.k > NARROW:
            return np.bincount(reports, minlength=self.k).astype(np.int64, copy=False)
        from ldpstream.mechanisms.kernels.hash_kernels import count_symbols

        return np.asarray(count_symbols(reports, self.k))

    @property
    def supported(self) -> tuple[int, int]:
        return 1, 1

    def _channel(self) -> FloatArray:
        return np.full((self.k, self.k), self.q) + np.eye(self.k) * (self.p - self.q)

    def _log2_outputs(self) -> float:
        return math.log2(self.k)


class GRRClaims(SymbolsClaims, OneTimeClaims):
    m: GRR

    def _guess_once(self) -> Chance:
        return Chance(self.m.p)

    @property
    def favours(self) -> float:
        return self.m.p

    def _guess(self, t: float) -> Chance:
        if 1 < t <= guessing.MAX_EXACT_REPORTS:
            return Chance(guessing.most_likely_symbol(int(t), self.m.k, self.m.k, self.m.p) / self.m.k)
        return super()._guess(t)


class GRR(Symbols, OneTime):
    """One-time generalized randomized response.

    Args:
        k: domain size, in [2, 2^31).
        eps: privacy loss of the report, in [1e-9, 700] nats.

    >>> round(GRR(k=32, eps=1.0).variance(n=10_000), 6)
    0.001108
    """

    claims_by = GRRClaims
    names = ("GRR",)
    name = "GRR"

    def __init__(self, k: int, eps: float) -> None:
        self._set_domain(k)
        self.eps_1 = epsilon("eps", eps)
        self.p, self.q = probabilities(self.k, self.eps_1)
        self.signature = f"GRR(k={self.k}, eps={self.eps_1!r})"

    def coins(self) -> Coins:
        return {"report": symbol_coins(self.k, self.p, self.q)}

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        return randomize(user_values(values, self.k), self.k, self.p, rng).astype(self.report_dtype)


class LongitudinalGRRClaims(SymbolsClaims, LongitudinalClaims):
    m: LongitudinalGRR

    @property
    def memo_blanket(self) -> ledger.Blanket | None:
        return ledger.Blanket(self.m.eps_inf, 1 / self.m.k, 0.0)

    @property
    def eps_per_report(self) -> float:
        return self.m.eps_2  # the loss of the second round alone

    def _guess(self, t: float) -> Chance:
        def chance(n: int) -> float:
            return (
                self.m.q1 + (self.m.p1 - self.m.q1) * guessing.most_likely_symbol(n, self.m.k, self.m.k, self.m.p2) / self.m.k
            )

        return guessing.of_memo(t, self.m.p1, chance, guessing.MAX_EXACT_REPORTS)

    def _guess_memos(self, n: int) -> Chance:
        return Chance(guessing.most_likely_symbol(n, self.m.k, self.m.k, self.m.p1) / self.m.k)

    def distance(self, t: float) -> float:
        return (self.m.p1 - self.m.q1) * Evidence(self.m.eps_2, self.m.p2, t).distance

    def evidence(self, t: float, *, any_values: bool = False) -> Evidence:
        return Evidence(self.m.eps_2, self.m.p2, t) if any_values and t > 1 else super().evidence(t)

    def _guess_any_values(self, t: int) -> Chance:
        chance = super()._guess_any_values(t)
        if t <= guessing.MAX_EXACT_REPORTS:
            chance = min(chance, Chance(guessing.most_likely_symbol(t, self.m.k, self.m.k, self.m.p2) / self.m.k, exact=False))
        return chance

    def eps_t(self, t: int) -> float:
        return ledger.eps_t_grr(integer("t", t, 1, MAX_COUNT), k=self.m.k, log_e1=self.m.eps_inf, log_e2=self.m.eps_2)

    def _eps_sequence(self, t: int) -> ledger.SequenceLoss:
        return ledger.eps_sequence_grr(integer("t", t, 1, MAX_COUNT), k=self.m.k, log_e1=self.m.eps_inf, log_e2=self.m.eps_2)


class LongitudinalGRR(Symbols, Longitudinal):
    """L-GRR = GRR∘GRR: the memo is the GRR symbol of the value at ε∞, and each report is a GRR symbol of the memo.

    Args:
        k: domain size, in [2, 2^31).
        eps_inf: loss of the memo, up to 700 nats.
        eps_1: loss of a single report, in [1e-9, eps_inf) nats.
        calibration: ``"exact"`` reaches eps_1 exactly; with ``"paper"`` and k > 2 the loss is lower, and the attribute `eps_1`
            holds the true loss.

    >>> LongitudinalGRR(k=32, eps_inf=2.0, eps_1=1.0).eps_1
    1.0
    >>> round(LongitudinalGRR(k=32, eps_inf=2.0, eps_1=1.0, calibration="paper").eps_1, 4)
    0.3889
    """

    claims_by: type[LongitudinalClaims] = LongitudinalGRRClaims
    names = ("L-GRR",)
    name = "L-GRR"

    def __init__(self, k: int, eps_inf: float, eps_1: float, calibration: str = "exact") -> None:
        self._set_domain(k)
        self.eps_inf, self.eps_1 = chain_epsilons(eps_inf, eps_1)
        one_of("calibration", calibration, CALIBRATIONS)
        self.signature = f"L-GRR(k={self.k}, eps_inf={self.eps_inf!r}, eps_1={self.eps_1!r}, {calibration})"
        self.n_keys = self.max_memos = self.k
        self.eps_2 = second_round_eps(self.k if calibration == "exact" else 2, self.eps_inf, self.eps_1)
        self.p1, self.q1 = probabilities(self.k, self.eps_inf)
        self.p2, self.q2 = probabilities(self.k, self.eps_2)
        self.p, self.q = chain(self.k, self.p1, self.q1, self.p2, self.q2)
        if calibration == "paper":
            self.eps_1 = min(self.eps_t(1), self.eps_1)  # rounding errors could exceed it

    def coins(self) -> Coins:
        return {"memo": symbol_coins(self.k, self.p1, self.q1), "report": symbol_coins(self.k, self.p2, self.q2)}

    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        return randomize(user_values(values, self.k), self.k, self.p1, rng).astype(self.report_dtype)

    def report(self, memos: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        memo = self._as_memos(memos).astype(np.int64)
        return randomize(memo, self.k, self.p2, rng).astype(self.report_dtype)
