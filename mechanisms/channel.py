"""Base class of mechanisms that are defined by a channel.

A[x, z] = Pr[report z | value x]
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NoReturn

from ldpstream.mechanisms.arguments import MAX_COUNT, FloatArray, IntArray, Reports, integer
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.counts.reading import SMALLEST, Reading
from ldpstream.mechanisms.counts.terms import ChannelTerm, DenseTerm, Term
from ldpstream.mechanisms.devices import least_bytes
from ldpstream.mechanisms.families.score_moments import MAX_DENSE_K, channel_moments
from ldpstream.mechanisms.kinds import OneTime
from ldpstream.mechanisms.table import CountTable


class ChannelReading(Reading):
    """Reads the counts of the outputs of any channel. There are no support counts."""

    unbiased = False

    @property
    def true(self) -> ChannelReading:
        found = super().true
        assert isinstance(found, ChannelReading)
        return found

    def inverse(self) -> FloatArray:
        """Pseudo-inverse B of the channel, (outputs, k): the least-squares inversion of a count table is ``counts / n @ B``.

        If the channel is invertible, the inversion is unbiased and sums to 1. Otherwise the result is the least-squares vector
        with the smallest norm, which is biased for some distributions. SW inverts under Σ f = 1 instead.

        Raises:
            ValueError: if the channel is too large to be dense.
        """
        return self.decoded(self.true._pseudo_inverse)

    @cached_property
    def _pseudo_inverse(self) -> FloatArray:
        found = np.asarray(np.linalg.pinv(self.m.channel(), rcond=1e-13))
        found.setflags(write=False)
        return found

    def likelihood(self, table: CountTable, exact: bool = True) -> Term:
        return super().likelihood(table)

    def _channel_term(self, counts: IntArray) -> ChannelTerm:
        return DenseTerm(self.m.channel(), counts)

    @property
    def has_score_moments(self) -> bool:
        return self.m.k <= MAX_DENSE_K

    def _score_moments(self, f: FloatArray, steps: int, exact: bool) -> tuple[FloatArray, FloatArray]:
        return channel_moments(self.m.channel(), f, steps)

    def inversion(self, table: CountTable) -> FloatArray:
        self.m.require(table)
        return self.decoded(self.true._invert(table.counts / table.n))

    def _invert(self, observed: FloatArray) -> FloatArray:
        return np.asarray(observed @ self._pseudo_inverse)

    def possible(self, shares: FloatArray) -> FloatArray:
        return project(shares)

    def noise(self, variance: FloatArray, n: int, steps: int, everyone: float) -> FloatArray:
        return np.maximum(variance, SMALLEST / n)

    def fresh_moments(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """Returns 1 as the least variance, and 0 for the third moments."""
        return 1.0, np.zeros(shares.size)

    def outweighs(self, values: int) -> float:
        """With w_v(y) = B_yv."""
        ascending = np.sort(self.inverse(), axis=1)
        return float(max(ascending[:, self.m.k - values :].sum(axis=1).max(), -ascending[:, :values].sum(axis=1).min()))

    def inversion_variances(self, frequencies: npt.ArrayLike, n: int = 10_000, steps: int = 1) -> FloatArray:
        """Exact variances of the k bins of the least-squares inversion.

            Var f̂_v = [ W (Σ_z γ_z B_zv² - Σ_x f_x H_xv²) + W² (Σ_x f_x H_xv² - (Σ_z γ_z B_zv)²) ] / (n W²)

        with f the frequencies, γ = f A, B = `inverse()` and H = A B, without fake data. The people and their reports are as in
        `Mechanism.variance`, with new noise at each step.

        Args:
            frequencies: (k,) true frequencies of all values.
            n: number of people, at least 1.
            steps: number of steps W that are averaged, at least 1.

        Source: covariance of multinomial counts; within a step diag(γ) - γγᵀ, between steps Aᵀ diag(f) A - γγᵀ.
        """
        n, steps = integer("n", n, 1, MAX_COUNT), integer("steps", steps, 1, 2**31)
        return super().inversion_variances(distribution("frequencies", frequencies, self.m.k), n, steps)

    def _inversion_variances(self, frequencies: FloatArray, n: int, steps: int) -> FloatArray:
        f, a, b = frequencies, self.m.channel(), self._pseudo_inverse
        gamma = f @ a
        single, same_value, mean = gamma @ b**2, f @ (a @ b) ** 2, gamma @ b
        return np.asarray(np.maximum((single - same_value) / steps + same_value - mean**2, 0) / n)

    def _support(self, table: CountTable) -> NoReturn:
        self._refuse("support counts")

    def support_covariance(self, frequencies: FloatArray, steps: int = 1) -> NoReturn:
        self._refuse("covariance of support counts")

    def bin_variance(self, f: float, n: int, steps: int) -> NoReturn:
        self._refuse("variance that depends on one bin's frequency only (see inversion_variances)")

    @property
    def largest_contribution(self) -> NoReturn:
        self._refuse("bound of one report's contribution")

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(f"{self.m.signature} is not a pure mechanism and has no {what}: use its counts and its channel")


class ChannelMechanism(OneTime):
    """A one-time mechanism defined by its channel. p and q are NaN.

    `support`, `variance` and `rounds` raise ValueError.

    Attributes:
        eps_1: exact worst-case loss ln A[x, z]/A[x', z] over all values x, x' and reports z, in nats, where A is the channel of
            `device`; infinite if some value can produce a report that another value cannot produce.
    """

    read_by = ChannelReading
    pure = False
    p = math.nan
    q = math.nan

    def _set_domain(self, k: int, outputs: int | None = None) -> None:
        self.k = k
        self.table_shape = (outputs or k,)
        self.row_bytes = least_bytes(outputs or k)

    # ---- on the server

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        return np.asarray(reports < self.table_shape[0])

    def _count(self, reports: Reports) -> IntArray:
        return np.bincount(reports, minlength=self.table_shape[0]).astype(np.int64)

    def _log2_outputs(self) -> float:
        return math.log2(self.table_shape[0])

    def rounds(self) -> NoReturn:
        raise ValueError(f"{self.signature} is not a pure mechanism and has no p and q: use its counts and its channel")


def project(x: FloatArray) -> FloatArray:
    """The Euclidean projection of numbers onto the simplex: non-negative numbers with the sum 1.

    Source of the algorithm: Duchi et al. 2008.
    """
    x = x - x.max()  # avoids rounding errors from numbers much larger than 1
    descending = np.sort(x)[::-1]
    excess = np.cumsum(descending) - 1
    kept = np.arange(1, descending.size + 1)
    last = np.flatnonzero(descending * kept > excess)[-1]
    return np.asarray(np.maximum(x - excess[last] / kept[last], 0))


def distribution(name: str, values: npt.ArrayLike, k: int | None = None) -> FloatArray:
    """Checks a (k,) distribution (non-negative numbers with sum 1 to within 1e-9), and returns it divided by its sum."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or (k is not None and array.size != k):
        raise ValueError(
            f"{name} must be a one-dimensional array of {'at least 2' if k is None else k} numbers, "
            f"got {array.dtype} of shape {array.shape}"
        )
    array = array.astype(np.float64)
    good = (array >= 0) & (array <= 1 + 1e-9)  # this comparison is False for NaN
    if not good.all():
        i = int(good.argmin())
        raise ValueError(f"{name} must hold probabilities in [0, 1], got {float(array[i])!r} at position {i}")
    if not abs(array.sum() - 1) <= 1e-9:
        raise ValueError(f"{name} must sum to 1 to within 1e-09, got {float(array.sum())!r}")
    return np.asarray(array / array.sum())
