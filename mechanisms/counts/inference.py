"""The server's statistics of a mechanism's counts: likelihood, inversion, and the errors of estimates."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import MAX_COUNT, FloatArray, IntArray, integer, real
from ldpstream.mechanisms.counts.covariance import Covariance
from ldpstream.mechanisms.counts.terms import ChannelTerm, FakeDataTerm, SupportTerm, Term
from ldpstream.mechanisms.table import CountTable

SMALLEST = 1e-12  # smallest variance in units of 1/n; a smaller one is a rounding error

Variance = Callable[[FloatArray], FloatArray]  # maps shares in [0, 1] to variances


class Inference(ABC):
    """The methods for estimators.

    Attributes:
        unbiased: true only if the matrix inversion is unbiased for all distributions of the values.
    """

    k: int
    p: float
    q: float
    fakes: int
    every_steps: int
    signature: str
    unbiased: bool = True

    @property
    @abstractmethod
    def device(self) -> "Inference": ...

    def require(self, table: CountTable) -> None:
        if table.mechanism != self.signature:
            raise ValueError(f"expected a count table of {self.signature}, got one of {table.mechanism}")

    def support(self, table: CountTable) -> IntArray:
        """(k,) int64 support counts C_v: how many reports support each value.

        Raises:
            ValueError: if the table belongs to another mechanism, or if the mechanism is not pure.
        """
        self.require(table)
        return self._support(table)

    def _support(self, table: CountTable) -> IntArray:
        return table.counts

    # ---- false reports

    @property
    def supported(self) -> tuple[int, int]:
        """The least and the largest number of values that one report can support."""
        return 0, self.k

    def outweighs(self, values: int = 1) -> float:
        """Number of honest people whom one false report outweighs, for a set of r values.

            max_y max_R |Σ_{v∈R} w_v(y)|,   w_v(y) = (1[y supports v] - q) / (p - q)

        Args:
            values: r, the size of the set, in [1, k].

        Returns:
            The exact maximum; infinite if p = q.

        Source of the idea: Cheu, Smith and Ullman 2021 (manipulation attacks).
        """
        r, (least, most) = integer("values", values, 1, self.k), self.supported
        if self.p == self.q:
            return math.inf
        raised, lowered = min(r, most) - r * self.q, r * self.q - max(0, r - (self.k - least))
        return max(raised, lowered) / abs(self.p - self.q)

    # ---- likelihood

    def likelihood(self, table: CountTable, exact: bool = True) -> Term:
        """Returns the log-likelihood of a count table: the true one if the table determines it, else that of the support
        counts.

        Args:
            exact: false for the likelihood of the support counts, if the mechanism has support counts.

        Raises:
            ValueError: if the table belongs to another mechanism.
        """
        self.require(table)
        term = self.device._channel_term(table.counts) if exact else None
        if term is None:
            return SupportTerm(self.support(table), table.n, self.p, self.q)
        return term if self.fakes == 1 else FakeDataTerm(term, self.fakes)

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
        raise ValueError(f"{self.signature} has no score moments")

    # ---- inversion

    def inversion(self, table: CountTable) -> FloatArray:
        """Returns the raw frequencies of the matrix inversion, (k,): (C_v/n - q) / (p - q) for support counts C."""
        return np.asarray((self.support(table) / table.n - self.q) / (self.p - self.q))

    def inverse(self) -> FloatArray:
        """Returns B, (outputs, k), with ``inversion(table) = counts / n @ B``, for mechanisms that are not pure.

        Raises:
            TypeError: for a pure mechanism, whose inversion needs only the support counts.
        """
        raise TypeError(f"{self.signature} is pure and has no inverse of its channel")

    def possible(self, shares: FloatArray) -> FloatArray:
        return np.clip(shares, 0, 1)

    def variance(self, f: float = 0.0, n: int = 10_000, steps: int = 1) -> float:
        """Exact variance of one bin of the matrix inversion.

            steps = 1:  γ(1 - γ) / (n (p - q)²),  γ = q + f (p - q)
            steps = W:  Var S / (n W² (p - q)²),
                        Var S = W [π p₂(1-p₂) + (1-π) q₂(1-q₂)] + W² (p₂-q₂)² π (1-π),  π = f a + (1-f) b

        The n people are drawn at random from a population in which a share f has the value. Every device reports at each of the
        W steps, with an unchanged value. a, b, p₂ and q₂ are those of `rounds`. The second formula holds without fake data, and
        not for PS-GRR (see `PaddedSampling.given_memo`).

        Args:
            f: true frequency of the bin, in [0, 1].
            n: number of people, at least 1.
            steps: number of steps W that are averaged, at least 1.

        Returns:
            The variance; infinite if p and q are the same double.

        Raises:
            ValueError: if an argument is outside its range, or if the mechanism is not pure.

        Equation 10 of ALLOMFREE has another factor of f in γ. It is right at f = 0, and for all f only if p + q = 1 in both
        rounds.
        """
        f, n, steps = real("f", f, 0.0, 1.0), integer("n", n, 1, MAX_COUNT), integer("steps", steps, 1, 2**31)
        return float(self.inversion_variances(np.array([f]), n, steps)[0])

    def inversion_variances(self, frequencies: npt.ArrayLike, n: int = 10_000, steps: int = 1) -> FloatArray:
        """Returns the `variance` at each true frequency in [0, 1], in the shape of `frequencies`."""
        scale = n * (steps * (self.p - self.q)) ** 2
        variances = self.support_variances(np.asarray(frequencies, np.float64), steps)
        return np.asarray(variances / scale) if scale else np.full(variances.shape, math.inf)

    def encoded(self, frequencies: FloatArray) -> FloatArray:
        """Frequencies of the values that devices encode, true and fake, if the true values have these frequencies."""
        return np.asarray((frequencies + (self.fakes - 1) / self.k) / self.fakes)

    def support_covariance(self, frequencies: FloatArray, steps: int = 1) -> Covariance:
        """Covariance of one random person's support counts S_v over W steps with an unchanged value.

        S_v counts the person's reports that support v. The covariances are approximations for PS-GRR with m > 1, and for
        local hashing of more than 128 values to at most as many symbols (see `Hashing`).

        Args:
            frequencies: (k,) true frequencies of all values.
        """
        if self.fakes > 1:
            return self.device.support_covariance(self.encoded(frequencies), steps)
        signs, rows = zip(*self._covariance_factors(frequencies, steps), strict=True)
        return Covariance(self.unshared_variances(frequencies, steps), np.array(rows), np.array(signs, np.float64))

    def unshared_variances(self, frequencies: FloatArray, steps: int) -> FloatArray:
        """The part `own` of `support_covariance`, for frequencies of any shape."""
        if self.fakes > 1:
            return self.device.unshared_variances(self.encoded(frequencies), steps)
        own = self.support_variances(frequencies, steps)
        for sign, row in self._covariance_factors(frequencies, steps):
            own = own - sign * row**2
        return own

    def supported_together(self, steps: int) -> float:
        """Largest eigenvalue, or an upper bound, of the positive part of `support_covariance`, for any frequencies.

        0 if no two support counts are positively correlated. By default, the bound for uniform frequencies.
        """
        noise = self.support_covariance(np.full(self.k, 1 / self.k), steps)
        return float((noise.rows[noise.signs > 0] ** 2).sum())

    def support_variances(self, frequencies: FloatArray, steps: int) -> FloatArray:
        """The variances of `support_covariance`, for frequencies of any shape."""
        if self.fakes > 1:
            return self.device.support_variances(self.encoded(frequencies), steps)
        hit, p2, q2 = self.given_memo(frequencies)
        fresh = hit * p2 * (1 - p2) + (1 - hit) * q2 * (1 - q2)
        kept = (p2 - q2) ** 2 * hit * (1 - hit)
        return np.asarray(steps * fresh + steps**2 * kept)

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Signs s and vectors x with Cov(S_u, S_v) = Σ s x_u x_v, here for bits that are independent given the value.

        Every entry of a vector belongs to the entry of `frequencies`.
        """
        return [(-1, steps * (self.p - self.q) * frequencies)]

    def given_memo(self, frequencies: FloatArray) -> tuple[FloatArray, float, float]:
        """(π, p₂, q₂) for a mechanism without fake data: π = Pr[the memo supports v] for a person drawn at random, p₂ and q₂ of
        `rounds`."""
        memo_p, memo_q, p2, q2 = self.rounds()
        return frequencies * memo_p + (1 - frequencies) * memo_q, p2, q2

    @abstractmethod
    def rounds(self) -> tuple[float, float, float, float]:
        """(a, b, p₂, q₂): a = Pr[memo supports v | value is v], b = Pr[memo supports v | value is not v],
        p₂ = Pr[report supports v | memo supports v], q₂ = Pr[report supports v | memo does not support v].

        The memo of a one-time mechanism is the value itself: (1, 0, p, q).
        """

    def noise(self, variance: FloatArray, n: int, steps: int, everyone: float) -> Variance | FloatArray:
        """Returns the variance of the inversion's noise for given people, as if the estimates of the values were independent.

        Args:
            variance: (k,) variances of the inversion at its own shares, for random people.
            everyone: number of people of all groups, each group's number divided by its `concentration`.

        Returns:
            A function of the shares, or (k,) fixed variances, which include the random choice of the people.
        """
        return lambda f: self._noise_at(f, n, steps, everyone)

    def sampled_variances(self, f: FloatArray, n: int, steps: int, everyone: float) -> FloatArray:
        """Returns the variances at the shares f for random people, (k,); the other arguments are as for `noise`."""
        return np.asarray(self._noise_at(f, n, steps, everyone) + f * (1 - f) / everyone)

    def _noise_at(self, f: FloatArray, n: int, steps: int, everyone: float) -> FloatArray:
        people = n / steps
        own = self.unshared_variances(f, steps)
        scale = people * (steps * (self.p - self.q)) ** 2
        return np.asarray(np.maximum(own / scale - f / everyone, SMALLEST / people))

    def values_variance(self, shares: FloatArray, steps: int) -> float:
        """For sets, the variance of the number of one random person's reports that name a value, not a dummy.

        Args:
            shares: (k,) shares of the drawn members, as the inversion estimates them.

        Raises:
            ValueError: for mechanisms that are not of sets.
        """
        raise ValueError(f"{self.signature} is no mechanism of sets")

    def concentration(self, steps: int) -> float:
        """E[u²] / E[u], u being the share of a person's reports that encode v. The person makes `steps` reports of one value.

        1 if all reports of a person encode the same value. So u has the variance f (c - f), c being this number.
        """
        return 1.0

    @property
    def largest_contribution(self) -> float:
        """Largest difference between the contributions of two reports to n times an inverted share: 1 / |p - q|."""
        return 1 / abs(self.p - self.q)

    def fresh_moments(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """Returns the least variance of fresh noise that a filter assumes, and the third central moments of one report's noise,
        (k,).

        All numbers are for n times a share.
        """
        hit, p2, q2 = self.device.given_memo(self.encoded(shares))
        if self.every_steps > 1:  # other people at each step: the value and the memo vary, too
            chance = hit * p2 + (1 - hit) * q2
            third = chance * (1 - chance) * (1 - 2 * chance)
        else:
            third = hit * p2 * (1 - p2) * (1 - 2 * p2) + (1 - hit) * q2 * (1 - q2) * (1 - 2 * q2)
        return 1 / (self.p - self.q) ** 2, np.asarray(third / (self.p - self.q) ** 3)
