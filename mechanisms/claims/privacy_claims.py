"""The privacy of a mechanism: losses of reports, and the chances of a right guess that follow from them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Protocol

from ldpstream.mechanisms import ledger
from ldpstream.mechanisms.arguments import MAX_COUNT, FloatArray, integer
from ldpstream.mechanisms.claims.evidence import Evidence, guess_bound_known, loss_of
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.counts.reading import CountedMechanism


class ClaimedMechanism(CountedMechanism, Protocol):
    """The part of a `Mechanism` that its claims use."""

    eps_1: float
    eps_inf: float
    memoized: bool

    @property
    def device(self) -> ClaimedMechanism: ...
    @property
    def claims(self) -> Claims: ...


class Claims(ABC):
    """The claims about a mechanism's privacy.

    `OneTimeClaims` and `LongitudinalClaims` are the claims of the two kinds; `Mechanism.claims_by` names the class.

    Args:
        m: the mechanism.

    Attributes:
        no_fakes: true if the mechanism has no fake data. With fake data, every chance and every loss is an upper bound.
    """

    def __init__(self, m: ClaimedMechanism) -> None:
        self.m, self.no_fakes = m, m.fakes == 1

    @property
    def guessed(self) -> int:
        """Number of answers that the guesser of `guess` at first considers equally likely: the k values.

        2 for a mechanism of sets, whose guesser says whether one value is in the set.
        """
        return self.m.k

    @property
    @abstractmethod
    def eps_per_report(self) -> float:
        """Largest loss that one report adds, in nats, for an observer who knows all other reports and all memos.

        These losses add up. Let n be the number of reports at all steps at which two value sequences differ. The loss of all
        reports of the device is at most n times this number.
        """

    @abstractmethod
    def eps_t(self, t: int) -> float:
        """Exact privacy loss of t reports of an unchanged value, in nats.

        For L-SS with many values it may be the bound ε∞ (`ledger.eps_t_subset`). With fake data, the result is an upper bound
        for t answers, each with one report for every attribute.

        Raises:
            ValueError: if t is not an integer in [1, 2^62].
        """

    def eps_sequence(self, t: int) -> ledger.SequenceLoss:
        """Privacy loss of t reports between any two value sequences, in nats, or an upper bound; t is in [1, 2^50] for a
        memoized mechanism.

        With fake data the result is an upper bound for the reports of all attributes together.
        """
        loss = self._eps_sequence(t)
        return loss if self.no_fakes else replace(loss, exact=False)

    @abstractmethod
    def _eps_sequence(self, t: int) -> ledger.SequenceLoss: ...

    def guess(self, t: float = 1) -> Chance:
        """Chance of a right guess (`mechanisms.claims.guessing`) of a value that never changes, from t reports.

        The result's `exact` is false if it is an upper bound. With fake data, the result is a bound for an attacker who knows
        which reports are true.

        Args:
            t: number of reports, at least 1; `math.inf` for any number of reports.
        """
        if t != math.inf:
            integer("t", t, 1, MAX_COUNT)
        chance = self.m.device.claims._guess(t)
        return chance if self.no_fakes else Chance(chance, exact=False)

    def guess_any_values(self, t: int) -> Chance:
        """Chance of a right guess of the value at one step, from t reports of any values."""
        integer("t", t, 1, MAX_COUNT)
        chance = self.m.device.claims.guess(1) if t == 1 else self.m.device.claims._guess_any_values(t)
        return chance if self.no_fakes else Chance(chance, exact=False)

    def guess_known(self, shares: FloatArray, t: float = 1) -> Chance:
        """Upper bound of the chance of a right guess of a value that never changes, from t reports, for a guesser who knows the
        share of the people with each value (`evidence.guess_bound_known`); not for sets.

        Args:
            shares: (k,) shares, at least 0, with the sum 1.
            t: as in `guess`.
        """
        m, loss = self.m.device.claims, self.m.eps_inf if t == math.inf else self.eps_t(int(t))
        known = guess_bound_known(shares, loss, m.evidence(t))
        return Chance(min(known, self.m.k * float(shares.max()) * m.guess(t)), exact=False)

    def guess_memos(self, n: int) -> Chance:
        """Chance of a right guess of one value from any number of reports of each of n memos, drawn independently.

        A device that loses its storage draws a new memo of the value, and so does each device of people who share the value.
        The guesser knows which reports come from which memo. For memoized mechanisms only.

        Args:
            n: number of memos, in [1, 100].
        """
        integer("n", n, 1, 100)
        chance = self.m.device.claims._guess(math.inf) if n == 1 else self.m.device.claims._guess_memos(n)
        return chance if self.no_fakes else Chance(chance, exact=False)

    def _guess_memos(self, n: int) -> Chance:
        memo = self.evidence(math.inf)
        return Chance(loss_of(Evidence(memo.eps, memo.favours, n)).guess(self.guessed), exact=False)

    def guess_hint(self, k: int, t: float, *, any_values: bool = False) -> Chance:
        """Upper bound of the chance of a right guess of another attribute's value, which determines this attribute's values.

        Args:
            k: number of values of the other attribute, all equally likely.
            t: number of reports of this attribute; `math.inf` for any number of reports.
            any_values: false if this attribute's value never changes; true for any values.
        """
        m = self.m.device.claims
        found = loss_of(m.evidence(t, any_values=any_values)).guess(k)
        if m.guessed < self.m.k:  # sets: `guess` is about one value of a set
            return Chance(found, exact=False)
        if not any_values and k >= self.m.k:  # worst if all this attribute's values occur: Σ_y max_v P(y|v) / k
            found = min(found, self.m.k / k * m.guess(t))
        if any_values and k == self.m.k and t != math.inf:
            found = min(found, m.guess_any_values(int(t)))
        return Chance(found, exact=False)

    @property
    def blanket(self) -> ledger.Blanket | None:
        """The privacy blanket of one report: `ledger.Blanket`; None if it is unknown."""
        return None

    @property
    def memo_blanket(self) -> ledger.Blanket | None:
        """The privacy blanket of one memo; None for a one-time mechanism, and if it is unknown."""
        return None

    def shuffled(self, t: float, n: int, delta: float, smaller: float = 0.0) -> ledger.LossDistribution:
        """Bound of the loss for an observer who sees reports without their senders.

        The observer sees each step's reports as a set (`ledger.shuffled`), or only counts that sum several sets. The observer
        also knows the values of all other people, and with fake data whose reports are true.

        For a one-time mechanism, the person makes t reports of any values, and the observer cannot link them. For a
        longitudinal mechanism with t = 1, the observer sees the n reports of one step. With t > 1, the observer sees any number
        of reports of the person's memo and of one memo of each of n - 1 others, all at the same steps.

        Args:
            t: number of reports, at least 1; `math.inf` only for a longitudinal mechanism.
            n: number of reports in a set, or of memos, the person's included; none of them forged.
            delta: in (0, 1), the δ at which the bound is close.
            smaller: probability that fewer than n reports are in a set, less than `delta`. The result includes it.
        """
        linked = self.m.memoized and t > 1
        blanket = self.m.device.claims.memo_blanket if linked else self.m.device.claims.blanket
        found = blanket and ledger.shuffled_loss(blanket, n, 1 if linked else int(t), delta - smaller)
        if not found:
            return loss_of(Evidence.of_loss(self.m.device.eps_inf if t == math.inf else self.m.device.claims.eps_t(int(t))))
        return found.or_certain(smaller)

    def _sequence_loss(self, t: int) -> float:
        loss = self.eps_sequence(t).value
        return math.inf if loss > 60 else loss

    @abstractmethod
    def evidence(self, t: float, *, any_values: bool = False) -> Evidence:
        """Evidence (`mechanisms.claims.evidence`) that reveals at least as much as t reports.

        Args:
            t: number of reports, at least 1; `math.inf` for any number of reports.
            any_values: false for reports of an unchanged value, true for any sequences of values.
        """

    @abstractmethod
    def _guess(self, t: float) -> Chance: ...

    @abstractmethod
    def _guess_any_values(self, t: int) -> Chance: ...
