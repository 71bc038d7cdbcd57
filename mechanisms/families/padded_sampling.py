"""Padding and sampling (PS-GRR) and its memoizing chain L-PS-GRR: mechanisms of sets of at most m of n values.

A device pads its set S with dummies to exactly m members: d = n + m symbols are the n values and the m dummies, and the padded
set has the first m - |S| dummies. The report is one symbol:

    Pr[report = s] = A if s is in the padded set, B for every other symbol,   A/B = e^ε,  m A + n B = 1

This is PrivSet with outputs of one symbol. The result is the same if the device draws a member anew for each report, and
randomizes it by GRR on d symbols, with the larger loss ε' = ln(1 + m (e^ε - 1)). A value's share among the drawn members times
m is the share of people who chose the value.

In the chain, the memo of a set is one symbol, drawn as above at ε∞ when the device first has this set; each report is a symbol
of GRR for the memo. With the memo's A and B, and E = p₂/q₂ of the second round,

    Pr[report = s] = A p₂ + (1-A) q₂ or B p₂ + (1-B) q₂
    ε_t = ln[(A E^t + 1-A) / (B E^t + 1-B)]      reached by t reports of one symbol in one set and not in the other

Experimental. Sources: Qin et al. 2016 (padding and sampling); Wang, Li and Jha 2018, "Locally differentially private frequent
itemset mining" (the larger loss ε'); Wang et al. 2018, PrivSet. The exact calibration of the chain and its losses of t reports
are ours.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, NoReturn

from ldpstream.mechanisms import ledger
from ldpstream.mechanisms.arguments import MAX_COUNT, MAX_EPS, FloatArray, IntArray, Reports, chain_epsilons, epsilon, integer
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.claims.evidence import Evidence, loss_of
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.privacy_claims import Claims
from ldpstream.mechanisms.counts.reading import SMALLEST, Shares
from ldpstream.mechanisms.devices import VALUE_BYTES, Coin, Coins, DeviceRandom, Parameters, coin, symbol_row
from ldpstream.mechanisms.families.grr import (
    LongitudinalGRR,
    SymbolRandomizer,
    SymbolReading,
    Symbols,
    draw_symbol,
    probabilities,
    symbol_coins,
)
from ldpstream.mechanisms.kinds import LongitudinalClaims, OneTime, OneTimeClaims
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T, SequenceLoss
from ldpstream.mechanisms.sets import MAX_SET_VALUES, checked_codes, members, n_sets, set_codes

TOGETHER = 50  # iterations for the covariances of the members of a set


def drawn_eps(eps: float, choices: int) -> float:
    """ε' = ln(1 + m (e^ε - 1)): the loss of GRR for a member that the device draws, if the set may lose eps nats."""
    if eps < 1:
        return math.log1p(choices * math.expm1(eps))
    return eps + math.log(choices) + math.log1p(-(1 - 1 / choices) * math.exp(-eps))


def set_eps(drawn: float, choices: int) -> float:
    """The inverse of `drawn_eps`: the loss of a set, if the reports have this loss for a drawn member."""
    if drawn < 1:
        return math.log1p(math.expm1(drawn) / choices)
    return drawn - math.log(choices) + math.log1p((choices - 1) * math.exp(-drawn))


class SetRandomizer(SymbolRandomizer):
    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        assert parameters.choices is not None
        self._choices = parameters.choices

    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes:
        if not self.memoized:
            return key.to_bytes(VALUE_BYTES, "little")
        return symbol_row(self.k, self._draw(key, self._first["member"], random))

    def is_memo(self, memo: bytes, function: int) -> bool:
        if self.memoized:
            return super().is_memo(memo, function)
        code = int.from_bytes(memo, "little")
        return len(memo) == VALUE_BYTES and code >> self.k - self._choices == 0 and code.bit_count() <= self._choices

    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        number = int.from_bytes(memo, "little")
        if not self.memoized:
            return symbol_row(self.k, self._draw(number, self._second["member"], random))
        return symbol_row(self.k, draw_symbol(number, self.k, self._second, random))

    def _draw(self, code: int, member: Coin, random: DeviceRandom) -> int:
        n = self.k - self._choices
        padded = [v for v in range(n) if code >> v & 1] + list(range(n, self.k - code.bit_count()))
        if random.toss(member, 1)[0]:
            return padded[random.below(len(padded))]
        return [symbol for symbol in range(self.k) if symbol not in padded][random.below(n)]


class SetReading(SymbolReading):
    m: SetMechanism

    def outweighs(self, values: int) -> float:
        return self.m.choices * super().outweighs(values)


class SetClaims(Claims):
    m: SetMechanism

    @property
    def guessed(self) -> int:
        return 2

    def _guess(self, t: float) -> Chance:
        return Chance(loss_of(self.evidence(t)).guess(2), exact=False)


class SetMechanism(Symbols):
    """Common parts of both mechanisms: sets as values, and claims about one value of a set.

    Attributes:
        choices: m, the largest number of values of a person.
        member, other: A and B of the first randomization of a set: of the memo, or of the report for PS-GRR.
    """

    claims_by = SetClaims
    answers = "sets"
    randomizer = SetRandomizer
    read_by = SetReading
    choices: int
    member: float
    other: float

    @abstractmethod
    def symbol_chances(self) -> tuple[float, float]: ...

    def _set_sets(self, k: object, choices: object, eps: float) -> None:
        n = integer("k", k, 2, MAX_SET_VALUES)
        self.choices = integer("choices", choices, 1, n)
        if drawn_eps(eps, self.choices) > MAX_EPS:
            raise ValueError(f"the loss of a set must be at most {MAX_EPS - math.log(self.choices):.4g} nats, got {eps!r}")
        self._set_domain(n + self.choices)
        self.member = 1 / (self.choices + n * math.exp(-eps))
        self.other = self.member * math.exp(-eps)

    @property
    def _n(self) -> int:
        return self.k - self.choices

    def with_fake_data(self, d: int) -> NoReturn:
        raise ValueError(f"{self.name} has no fake data (rs+fd): use smp or spl")

    def device_fields(self) -> dict[str, Any]:
        return {"choices": self.choices}

    def counts_of(self, values: IntArray) -> IntArray:
        found, numbers = np.unique(values, return_counts=True)
        return np.asarray(numbers @ members(found, self._n, self.choices).astype(np.int64))

    def _member_coins(self) -> dict[str, Coin]:
        return {"member": coin(self.choices * self.member, self._n * self.other)}

    def _draw(self, values: npt.ArrayLike, rng: np.random.Generator) -> IntArray:
        codes, places = np.unique(checked_codes(values, self._n, self.choices), return_inverse=True)
        order = np.argsort(~members(codes, self._n, self.choices), axis=1, kind="stable")  # members first
        chosen = rng.random(places.size) < self.choices * self.member
        inside, outside = rng.integers(0, self.choices, places.size), rng.integers(self.choices, self.k, places.size)
        return np.asarray(order[places, np.where(chosen, inside, outside)])

    def _channel(self) -> FloatArray:
        return np.where(members(set_codes(self._n, self.choices), self._n, self.choices), *self.symbol_chances())

    def _log2_outputs(self) -> float:
        return math.log2(n_sets(self._n, self.choices))


class SampledReading(SetReading):
    """The device draws a member anew for each report."""

    def given_memo(self, frequencies: Shares) -> tuple[Shares, float, float]:
        """The memo is the set: the device draws a member anew for each report."""
        return np.minimum(self.m.choices * frequencies, 1.0), *self.m.symbol_chances()

    def _kept_together(self, hit: FloatArray) -> FloatArray:
        """For m > 1, the row x is an approximation. It makes each symbol's covariances sum to 0, as those of a padded set do:
        π(1-π) = x (Σx - x).

        Source of the iteration: Deville and Tillé 2005, for samples of a fixed size.
        """
        if self.m.choices == 1:
            return hit
        own = hit * (1 - hit)
        found = np.maximum(own, 1e-300)
        for _ in range(TOGETHER):
            found = np.maximum(own + found**2 / found.sum(), 1e-300)
        return np.asarray(found / math.sqrt(found.sum()))

    def _noise_at(self, f: FloatArray, n: int, steps: int, everyone: float) -> FloatArray:
        """For given drawn members, and values treated as independent, the inversion has the variance (γ/(p-q)² - f) / n.

        A value's share among the drawn members has the variance f (c - f) / people, with c of `concentration`.
        """
        of_reports = (self.m.q + (self.m.p - self.m.q) * f) / (self.m.p - self.m.q) ** 2
        return np.asarray(np.maximum((of_reports + (steps - 1) / self.m.choices * f) / n - f / everyone, SMALLEST * steps / n))

    def concentration(self, steps: int) -> float:
        """Two reports of one set draw the same member with probability 1/m."""
        return (1 + (steps - 1) / self.m.choices) / steps

    def values_variance(self, shares: FloatArray, steps: int) -> float:
        inside, outside = self.m.symbol_chances()
        least = np.clip(self.m.choices * shares[self.m._n :], 0, 1)  # Pr[at least 1, 2, … m dummies]
        dummies = float(least.sum())
        of_dummies = max(float((2 * np.arange(self.m.choices) + 1) @ least) - dummies**2, 0.0)
        values = self.m._n * outside + (self.m.choices - dummies) * (inside - outside)
        kept = (inside - outside) ** 2 * of_dummies
        return steps * values * (1 - values) + steps * (steps - 1) * kept


class PaddedSamplingClaims(SetClaims, OneTimeClaims):
    m: PaddedSampling

    @property
    def favours(self) -> float:
        """The largest Pr[the report is in the padded set and not in another one]: m A for sets without a common member."""
        return min(
            self.m.choices * self.m.member, 1 / (1 + math.exp(-self.m.eps_1))
        )  # for m = n both are equal but for rounding


class PaddedSampling(SetMechanism, OneTime):
    """One-time PS-GRR.

    Args:
        k: number n of values, in [2, 30].
        eps: privacy loss of the report, in nats: at least 1e-9, and at most about 700 - ln m.
        choices: m, the largest number of values that a person may choose, in [1, k].

    >>> m = PaddedSampling(k=10, eps=1.0, choices=3)
    >>> m.k, round(math.log(m.member / m.other), 9), round(m.choices**2 * m.variance(n=10_000), 6)
    (13, 1.0, 0.000581)
    """

    claims_by = PaddedSamplingClaims
    names = ("PS-GRR",)
    name = "PS-GRR"
    read_by = SampledReading

    def __init__(self, k: int, eps: float, choices: int) -> None:
        self.eps_1 = epsilon("eps", eps)
        self._set_sets(k, choices, self.eps_1)
        self.p, self.q = probabilities(self.k, drawn_eps(self.eps_1, self.choices))
        self.signature = f"PS-GRR(k={self._n}, eps={self.eps_1!r}, choices={self.choices})"

    def coins(self) -> Coins:
        return {"report": self._member_coins()}

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        return self._draw(values, rng).astype(self.report_dtype)

    def symbol_chances(self) -> tuple[float, float]:
        return self.member, self.other


class KeptReading(SetReading):
    """The device draws a member once."""

    m: LongitudinalPaddedSampling

    def values_variance(self, shares: FloatArray, steps: int) -> float:
        m = self.m
        hit = m._n * m.q1 + (m.p1 - m.q1) * float(np.clip(shares[: m._n].sum(), 0, 1))
        one, other = m.p2 + (m._n - 1) * m.q2, m._n * m.q2  # Pr[a report is a value | the memo is one, or none]
        fresh = hit * one * (1 - one) + (1 - hit) * other * (1 - other)
        return float(steps * fresh + steps**2 * (one - other) ** 2 * hit * (1 - hit))


class LongitudinalPaddedSamplingClaims(SetClaims, LongitudinalClaims):
    m: LongitudinalPaddedSampling

    @property
    def eps_per_report(self) -> float:
        return self.m.eps_2  # the loss of the second round alone

    def distance(self, t: float) -> float:
        return self.m.choices * (self.m.member - self.m.other) * Evidence(self.m.eps_2, self.m.p2, t).distance

    def evidence(self, t: float, *, any_values: bool = False) -> Evidence:
        return Evidence(self.m.eps_2, self.m.p2, t) if any_values and t > 1 else super().evidence(t)

    def eps_t(self, t: int) -> float:
        reports = integer("t", t, 1, MAX_COUNT)
        first = drawn_eps(self.m.eps_inf, self.m.choices)
        return set_eps(ledger.eps_t_grr(reports, k=self.m.k, log_e1=first, log_e2=self.m.eps_2), self.m.choices)

    def _eps_sequence(self, t: int) -> SequenceLoss:
        """Exact for t = 1, else an upper bound. Proof of the bound:

        The reports of one set have, up to a factor that is the same for all sequences, the likelihood L(c) = 1 + Σ_s P(s)
        (E^{c_s} - 1). c_s counts the reports of symbol s at the steps with this set, and P(s) is A or B. With φ(n) = ln(1 + A
        (E^n - 1)), the likelihood of a whole sequence is at most exp Σ_s φ(n_s), n_s being all reports of s: (1+x)(1+y) is at
        least 1+x+y, and φ(a) + φ(b) <= φ(a+b) since φ is convex with φ(0) = 0. If h symbols are reported, Σ φ(n_s) is largest
        if all but one of them are reported once. The likelihood is at least the product over the sets of 1 + B Σ_s (E^{c_s} -
        1). A set with r reports has at least 1 + B h (E^{r/h} - 1) for r >= h and 1 + B r (E - 1) for r <= h, by convexity. The
        r-th root of both is smallest at r = h. So ln of the ratio is at most

            max_h φ(t-h+1) + (h-1) φ(1) - (t/h) ln(1 + h B (E - 1)),   1 <= h <= min(d, t)

        and at most t ε₂ (`eps_per_report`).
        """
        t = integer("t", t, 1, MAX_T)
        h, e2 = np.arange(1, min(self.m.k, t) + 1), self.m.eps_2

        def phi(reports: IntArray | int) -> FloatArray:
            return np.asarray(np.logaddexp(math.log1p(-self.m.member), math.log(self.m.member) + e2 * np.asarray(reports)))

        gain = math.log(self.m.other) + math.log(math.expm1(e2)) if e2 < 30 else math.log(self.m.other) + e2
        least = np.logaddexp(0.0, gain + np.log(h)) / h
        bounds = phi(t - h + 1) + (h - 1) * phi(1) - t * least
        return SequenceLoss(min(float(bounds.max()), t * e2), exact=t == 1)


class LongitudinalPaddedSampling(SetMechanism, LongitudinalGRR):
    """L-PS-GRR: the memo of a set is a symbol of PS-GRR at ε∞, and each report is a symbol of GRR of the memo.

    Args:
        k, choices: as for `PaddedSampling`.
        eps_inf: loss of the memo, at most about 700 - ln m nats.
        eps_1: loss of a single report, in [1e-9, eps_inf) nats.

    >>> m = LongitudinalPaddedSampling(k=10, eps_inf=2.0, eps_1=1.0, choices=3)
    >>> [round(m.eps_t(t), 4) for t in (1, 2, 3)]
    [1.0, 1.8468, 1.9869]
    """

    claims_by = LongitudinalPaddedSamplingClaims
    names = ("L-PS-GRR",)
    name = "L-PS-GRR"
    read_by = KeptReading

    def __init__(self, k: int, eps_inf: float, eps_1: float, choices: int) -> None:
        long, single = chain_epsilons(eps_inf, eps_1)
        self._set_sets(k, choices, long)
        LongitudinalGRR.__init__(self, self.k, drawn_eps(long, self.choices), drawn_eps(single, self.choices))
        self.eps_inf, self.eps_1 = long, single
        self.n_keys, self.max_memos = 1 << self._n, n_sets(self._n, self.choices)
        self.signature = f"L-PS-GRR(k={self._n}, eps_inf={long!r}, eps_1={single!r}, choices={self.choices})"

    def coins(self) -> Coins:
        return {"memo": self._member_coins(), "report": symbol_coins(self.k, self.p2, self.q2)}

    def memo_keys(self, values: npt.ArrayLike, enrolment: IntArray) -> IntArray:
        return checked_codes(values, self._n, self.choices)

    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        return self._draw(values, rng).astype(self.report_dtype)

    def symbol_chances(self) -> tuple[float, float]:
        a, b = (x * self.p2 + (1 - x) * self.q2 for x in (self.member, self.other))
        return a, b
