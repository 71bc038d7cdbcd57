"""The two kinds of mechanisms."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NoReturn, Self

from ldpstream.mechanisms import ledger
from ldpstream.mechanisms.arguments import MAX_COUNT, IntArray, Reports, integer
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.base import Mechanism
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.evidence import Evidence, loss_of
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.claims.privacy_claims import Claims


class OneTimeClaims(Claims):
    m: OneTime

    @property
    def eps_per_report(self) -> float:
        return self.m.eps_1

    def eps_t(self, t: int) -> float:
        return integer("t", t, 1, MAX_COUNT) * self.m.eps_1

    def _eps_sequence(self, t: int) -> ledger.SequenceLoss:
        return ledger.SequenceLoss(self.eps_t(t), exact=True)

    @property
    def favours(self) -> float:
        """h, or an upper bound of h: the largest Pr[a report is e^ε times as likely under v as under v' | v] over all pairs of
        values v and v'."""
        return guessing.bound(self.m.eps_1, 2)

    def evidence(self, t: float, *, any_values: bool = False) -> Evidence:
        return Evidence(self.m.eps_1, self.favours, t)

    def _guess(self, t: float) -> Chance:
        if t == 1:
            return self._guess_once()
        if t == math.inf:
            return Chance(1.0, exact=self.m.k == 2 and self.m.eps_1 > 0)
        return Chance(loss_of(self.evidence(t)).guess(self.m.k), exact=False)

    def _guess_any_values(self, t: int) -> Chance:
        return self._guess(t)

    def _guess_once(self) -> Chance:
        """By default the exact chance from the dense channel, or a bound if the channel is too large."""
        if self.m.has_channel:
            return Chance(float(self.m.channel().max(axis=0).sum() / self.m.k))
        of_evidence = loss_of(self.evidence(1)).guess(self.m.k)
        return Chance(min(guessing.bound(self.m.eps_1, self.m.k), of_evidence), exact=False)


class OneTime(Mechanism):
    """A mechanism without memory: every report is drawn from the value itself, so the losses of reports add up."""

    claims_by = OneTimeClaims
    memoized = False
    max_memos = 0
    eps_inf = math.inf

    def spaced(self, every_steps: int, lifetime_reports: int | None = None) -> Self:
        """The same mechanism on devices that report only at one of `every_steps` consecutive time steps.

        A device draws a phase φ once, uniform in 0 … w-1 and independent of everything. The device makes a fresh report at the
        steps t ≡ φ (mod w), at most B reports in all, and no report at other steps.

        Guarantee, with ε = `eps_1`, also for an observer who knows φ: each report multiplies the likelihood ratio of two value
        sequences by at most e^ε.

        - `eps_window`: for sequences that differ only within w consecutive steps, the loss is at most ε (w-event privacy).
        - For any two sequences over T steps, the loss is at most ε times `reports_in(T)` = min(⌈T/w⌉, B).
        - `eps_lifetime`: the loss is at most B ε after any number of steps.

        Args:
            every_steps: w, in [1, 2^31].
            lifetime_reports: B, at least 1; None for no limit.

        Raises:
            ValueError: if a number is out of range, or the mechanism has fake data already (`with_fake_data` comes last).

        Source: Ren et al. 2022, LDP-IDS (uniform population division); Kellaris et al. 2014 (w-event privacy).
        """
        if self.fakes > 1:
            raise ValueError("call `spaced` before `with_fake_data`")
        spaced = self._copy()
        spaced.every_steps = integer("every_steps", every_steps, 1, 2**31)
        limit = None if lifetime_reports is None else integer("lifetime_reports", lifetime_reports, 1, MAX_COUNT)
        spaced.lifetime_reports = limit
        return spaced

    @property
    def eps_window(self) -> float:
        return self.eps_1

    @property
    def eps_lifetime(self) -> float:
        return math.inf if self.lifetime_reports is None else self.lifetime_reports * self.eps_1

    @abstractmethod
    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports: ...

    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        return np.asarray(values)

    def rounds(self) -> tuple[float, float, float, float]:
        return 1.0, 0.0, self.p, self.q


class LongitudinalClaims(Claims):
    m: Longitudinal

    def distance(self, t: float) -> float:
        """Upper bound of the total variation distance between t reports of one unchanged value and t reports of another."""
        return -math.expm1(-self.m.eps_inf) / (1 + math.exp(-self.m.eps_inf))

    def evidence(self, t: float, *, any_values: bool = False) -> Evidence:
        if any_values and t > 1:
            return Evidence.of_loss(math.inf if t == math.inf else self._sequence_loss(int(t)))
        return Evidence.of_loss(self.m.eps_inf if t == math.inf else self.eps_t(int(t)), self.distance(t))

    def _guess_any_values(self, t: int) -> Chance:
        of_memos = loss_of(self.evidence(t, any_values=True)).guess(self.guessed)
        return Chance(min(guessing.bound(self._sequence_loss(t), self.guessed), of_memos), exact=False)


class Longitudinal(Mechanism):
    """A memoizing mechanism. The device sanitizes a value once (the memo, ε∞), then sanitizes the memo for every report (ε₁).

    Attributes:
        p1, q1: probabilities of the first round.
        p2, q2: probabilities of the second round.
    """

    claims_by = LongitudinalClaims
    memoized = True
    p1: float
    q1: float
    p2: float
    q2: float

    def spaced(self, every_steps: int, lifetime_reports: int | None = None) -> NoReturn:
        raise ValueError(
            f"every_steps and lifetime_reports need a one-time mechanism (with eps): a memo links all reports of {self.name}"
        )

    def rounds(self) -> tuple[float, float, float, float]:
        return self.p1, self.q1, self.p2, self.q2

    def valid_memos(self, memos: Reports) -> npt.NDArray[np.bool_]:
        """(n,) true for each row that a device could have drawn as a memo. By default a memo has the form of a report."""
        return self.valid(memos)

    def _as_memos(self, memos: npt.ArrayLike) -> Reports:
        """The error message never shows a memo."""
        rows = self._as_reports(np.asarray(memos))
        wrong = ~self.valid_memos(rows)
        if wrong.any():
            raise ValueError(f"memos must be memos of {self.signature}, got something else at position {int(wrong.argmax())}")
        return rows
