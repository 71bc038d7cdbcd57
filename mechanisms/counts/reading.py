"""The server's statistics of a mechanism's counts: likelihood, inversion, and the errors of estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.counts.covariance import Covariance
from ldpstream.mechanisms.counts.terms import ChannelTerm, FakeDataTerm, SupportTerm, Term
from ldpstream.mechanisms.table import CountTable

SMALLEST = 1e-12  # smallest variance in units of 1/n; a smaller one is a rounding error

Shares = TypeVar("Shares", float, "FloatArray")  # a device calculates one variance without NumPy
Variance = Callable[[FloatArray], FloatArray]  # maps shares in [0, 1] to variances


class CountedMechanism(Protocol):
    """The part of a `Mechanism` that its reading uses."""

    k: int
    p: float
    q: float
    fakes: int
    every_steps: int
    signature: str

    @property
    def device(self) -> CountedMechanism: ...
    @property
    def reading(self) -> Reading: ...
    @property
    def supported(self) -> tuple[int, int]: ...
    def rounds(self) -> tuple[float, float, float, float]: ...
    def require(self, table: CountTable) -> None: ...
    def channel(self) -> FloatArray: ...


class Reading:
    """Reads the counts of a mechanism whose p and q describe its reports.

    With fake data (`Mechanism.with_fake_data`), d = `fakes` is above 1. The people then encode values with the frequencies
    `encoded`, and `true` reads their counts: its inversion estimates these frequencies, and `decoded` those of the true values.
    Without fake data, `true` is this object. A subclass overrides only methods that say "without fake data", or have a name
    with an underscore.

    `ChannelReading` reads the counts of any channel, and `SetReading` those of sets. `Mechanism.read_by` names the class.

    Args:
        m: the mechanism.

    Attributes:
        unbiased: true only if the matrix inversion is unbiased for all distributions of the values.
    """

    unbiased: bool = True

    def __init__(self, m: CountedMechanism) -> None:
        self.m = m

    @property
    def true(self) -> Reading:
        """The reading without fake data."""
        return self.m.device.reading

    def encoded(self, frequencies: npt.ArrayLike) -> FloatArray:
        """Frequencies of the values that devices encode, true and fake, if the true values have these frequencies."""
        return np.asarray((np.asarray(frequencies, np.float64) + (self.m.fakes - 1) / self.m.k) / self.m.fakes)

    def decoded(self, shares: FloatArray) -> FloatArray:
        """The inverse of `encoded`."""
        return np.asarray(self.m.fakes * shares - (self.m.fakes - 1) / self.m.k)

    def support(self, table: CountTable) -> IntArray:
        """See `Mechanism.support`."""
        self.m.require(table)
        return self._support(table)

    def _support(self, table: CountTable) -> IntArray:
        return table.counts

    # ---- likelihood

    def likelihood(self, table: CountTable, exact: bool = True) -> Term:
        """Returns the log-likelihood of a count table: the true one if the table determines it, else that of the support
        counts.

        Args:
            exact: false for the likelihood of the support counts, if the mechanism has support counts.

        Raises:
            ValueError: if the table belongs to another mechanism.
        """
        self.m.require(table)
        term = self.true._channel_term(table.counts) if exact else None
        if term is None:
            return SupportTerm(self.support(table), table.n, self.m.p, self.m.q)
        return term if self.m.fakes == 1 else FakeDataTerm(term, self.m.fakes)

    def _channel_term(self, counts: IntArray) -> ChannelTerm | None:
        """Returns the true likelihood of counts, for a mechanism without fake data.

        None if the likelihood of the support counts is the true one, or if the table does not determine the true one.
        """
        return None

    def fit_tests(self, table: CountTable, steps: int) -> dict[str, tuple[float, int] | None]:
        """Returns the mechanism's own tests of a table, by name (`mechanisms.counts.fit_tests`).

        Args:
            steps: number of reports of one device with an unchanged value.

        Returns:
            For each test ln p, and the sign of the deviation; None for a test that this table does not allow. The entry None
            for ``"total"``, ``"floor"`` or ``"least"`` also switches off this test of support counts of
            `estimators.diagnostics`.
        """
        return {}

    @property
    def has_score_moments(self) -> bool:
        return False

    def score_moments(self, f: FloatArray, steps: int, exact: bool) -> tuple[FloatArray, FloatArray]:
        """Returns minus the expected Hessian of one report's log-likelihood, and the covariance of one person's score, at f.

        The score is summed over the person's `steps` reports. Both matrices are right only along changes of f that keep
        its sum. Call this method only if `has_score_moments` is true.

        Args:
            f: (k,) true frequencies.
            steps: number of reports of one person with an unchanged value.
            exact: true for the score of the true likelihood, false for the score of the support counts.
        """
        hessian, covariance = self.true._score_moments(self.encoded(f), steps, exact)
        return hessian / self.m.fakes**2, covariance / self.m.fakes**2

    def _score_moments(self, f: FloatArray, steps: int, exact: bool) -> tuple[FloatArray, FloatArray]:
        raise ValueError(f"{self.m.signature} has no score moments")

    # ---- inversion

    def inversion(self, table: CountTable) -> FloatArray:
        """Returns the raw frequencies of the matrix inversion, (k,): (C_v/n - q) / (p - q) for support counts C."""
        return np.asarray((self.support(table) / table.n - self.m.q) / (self.m.p - self.m.q))

    def sharpened(self, table: CountTable) -> tuple[FloatArray, FloatArray] | None:
        """Returns nearly unbiased shares with smaller errors than the inversion's, and their variances, (k,) each.

        The shares sum to 1. The variances are those for one report of each person, as if the sum were free. None if the
        mechanism has no such shares.
        """
        return None

    def inverse(self) -> FloatArray:
        """Returns B, (outputs, k), with ``inversion(table) = counts / n @ B``, for mechanisms that are not pure.

        Raises:
            TypeError: for a pure mechanism, whose inversion needs only the support counts.
        """
        raise TypeError(f"{self.m.signature} is pure and has no inverse of its channel")

    def possible(self, shares: FloatArray) -> FloatArray:
        return np.clip(shares, 0, 1)

    def inversion_variances(self, frequencies: npt.ArrayLike, n: int = 10_000, steps: int = 1) -> FloatArray:
        """Returns the `Mechanism.variance` at each true frequency in [0, 1], in the shape of `frequencies`."""
        return np.asarray(self.m.fakes**2 * self.true._inversion_variances(self.encoded(frequencies), n, steps))

    def _inversion_variances(self, frequencies: FloatArray, n: int, steps: int) -> FloatArray:
        scale = n * (steps * (self.m.p - self.m.q)) ** 2
        variances = self._support_variances(frequencies, steps)
        return np.asarray(variances / scale) if scale else np.full(variances.shape, math.inf)

    def bin_variance(self, f: float, n: int, steps: int) -> float:
        """See `Mechanism.variance`."""
        m, d = self.m.device, self.m.fakes
        hit, p2, q2 = self.true.given_memo((f + (d - 1) / m.k) / d)
        fresh = hit * p2 * (1 - p2) + (1 - hit) * q2 * (1 - q2)
        kept = (p2 - q2) ** 2 * hit * (1 - hit)
        scale = n * (m.p - m.q) ** 2
        return d**2 * float(fresh / steps + kept) / scale if scale else math.inf

    def outweighs(self, values: int) -> float:
        """See `Mechanism.outweighs`."""
        m, (least, most) = self.m, self.m.supported
        if m.p == m.q:
            return math.inf
        raised, lowered = min(values, most) - values * m.q, values * m.q - max(0, values - (m.k - least))
        return max(raised, lowered) / abs(m.p - m.q)

    def support_covariance(self, frequencies: FloatArray, steps: int = 1) -> Covariance:
        """Covariance of one random person's support counts S_v over W steps with an unchanged value.

        S_v counts the person's reports that support v. The covariances are approximations for PS-GRR with m > 1, and for
        local hashing of more than 128 values to at most as many symbols (see `HashReading`).

        Args:
            frequencies: (k,) true frequencies of all values.
        """
        return self.true._support_covariance(self.encoded(frequencies), steps)

    def _support_covariance(self, frequencies: FloatArray, steps: int) -> Covariance:
        signs, rows = zip(*self._covariance_factors(frequencies, steps), strict=True)
        return Covariance(self._unshared_variances(frequencies, steps), np.array(rows), np.array(signs, np.float64))

    def _unshared_variances(self, frequencies: FloatArray, steps: int) -> FloatArray:
        """The part `own` of `support_covariance` without fake data, for frequencies of any shape."""
        own = self._support_variances(frequencies, steps)
        for sign, row in self._covariance_factors(frequencies, steps):
            own = own - sign * row**2
        return own

    def supported_together(self, steps: int) -> float:
        """Largest eigenvalue, or an upper bound, of the positive part of `support_covariance`, for any frequencies.

        0 if no two support counts are positively correlated. By default, the bound for uniform frequencies.
        """
        noise = self.support_covariance(np.full(self.m.k, 1 / self.m.k), steps)
        return float((noise.rows[noise.signs > 0] ** 2).sum())

    def support_variances(self, frequencies: FloatArray, steps: int) -> FloatArray:
        """The variances of `support_covariance`, for frequencies of any shape."""
        return self.true._support_variances(self.encoded(frequencies), steps)

    def _support_variances(self, frequencies: FloatArray, steps: int) -> FloatArray:
        hit, p2, q2 = self.given_memo(frequencies)
        fresh = hit * p2 * (1 - p2) + (1 - hit) * q2 * (1 - q2)
        kept = (p2 - q2) ** 2 * hit * (1 - hit)
        return np.asarray(steps * fresh + steps**2 * kept)

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Signs s and vectors x with Cov(S_u, S_v) = Σ s x_u x_v, here for bits that are independent given the value.

        Every entry of a vector belongs to the entry of `frequencies`.
        """
        return [(-1, steps * (self.m.p - self.m.q) * frequencies)]

    def given_memo(self, frequencies: Shares) -> tuple[Shares, float, float]:
        """(π, p₂, q₂) for a mechanism without fake data: π = Pr[the memo supports v] for a person drawn at random, p₂ and q₂ of
        `rounds`."""
        memo_p, memo_q, p2, q2 = self.m.rounds()
        return frequencies * memo_p + (1 - frequencies) * memo_q, p2, q2

    def noise(self, variance: FloatArray, n: int, steps: int, everyone: float) -> Variance | FloatArray:
        """Returns the variance of the inversion's noise for given people, as if the estimates of the values were independent.

        Args:
            variance: (k,) variances of the inversion at its own shares, for random people.
            everyone: number of people of all groups, each group's number divided by its `concentration`.

        Returns:
            A function of the shares, or (k,) fixed variances, which include the random choice of the people.
        """
        return lambda f: self._noise_at(f, n, steps, everyone)

    def _noise_at(self, f: FloatArray, n: int, steps: int, everyone: float) -> FloatArray:
        people = n / steps
        own = self.true._unshared_variances(self.encoded(f), steps)
        scale = people * (steps * (self.m.p - self.m.q)) ** 2
        return np.asarray(np.maximum(own / scale - f / everyone, SMALLEST / people))

    def values_variance(self, shares: FloatArray, steps: int) -> float:
        """For sets, the variance of the number of one random person's reports that name a value, not a dummy.

        Args:
            shares: (k,) shares of the drawn members, as the inversion estimates them.

        Raises:
            ValueError: for mechanisms that are not of sets.
        """
        raise ValueError(f"{self.m.signature} is no mechanism of sets")

    def concentration(self, steps: int) -> float:
        """E[u²] / E[u], u being the share of a person's reports that encode v. The person makes `steps` reports of one value.

        1 if all reports of a person encode the same value. So u has the variance f (c - f), c being this number.
        """
        return 1.0

    @property
    def largest_contribution(self) -> float:
        """Largest difference between the contributions of two reports to n times an inverted share: 1 / |p - q|."""
        return 1 / abs(self.m.p - self.m.q)

    def fresh_moments(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """Returns the least variance of fresh noise that a filter assumes, and the third central moments of one report's noise,
        (k,).

        All numbers are for n times a share.
        """
        hit, p2, q2 = self.true.given_memo(self.encoded(shares))
        if self.m.every_steps > 1:  # other people at each step: the value and the memo vary, too
            chance = hit * p2 + (1 - hit) * q2
            third = chance * (1 - chance) * (1 - 2 * chance)
        else:
            third = hit * p2 * (1 - p2) * (1 - 2 * p2) + (1 - hit) * q2 * (1 - q2) * (1 - 2 * q2)
        return 1 / (self.m.p - self.m.q) ** 2, np.asarray(third / (self.m.p - self.m.q) ** 3)
