"""Base class of mechanisms that are defined by a channel.

A[x, z] = Pr[report z | value x]
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import NoReturn

from ldpstream.mechanisms.arguments import FloatArray, IntArray, Reports
from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.counts.reading import SMALLEST, Reading
from ldpstream.mechanisms.counts.terms import Term
from ldpstream.mechanisms.devices import least_bytes
from ldpstream.mechanisms.families.score_moments import MAX_DENSE_K, channel_moments
from ldpstream.mechanisms.kinds import OneTime
from ldpstream.mechanisms.table import CountTable


class ChannelReading(Reading):
    """Reads the counts of the outputs of any channel. There are no support counts."""

    unbiased = False

    @cached_property
    @abstractmethod
    def own_inverse(self) -> FloatArray:
        """B of `Reading.inverse`, without fake data."""

    def inverse(self) -> FloatArray:
        return self.decoded(self.true.inverse()) if self.m.fakes > 1 else self.own_inverse

    def likelihood(self, table: CountTable, exact: bool = True) -> Term:
        return super().likelihood(table)

    @property
    def has_score_moments(self) -> bool:
        return self.m.k <= MAX_DENSE_K

    def _score_moments(self, f: FloatArray, steps: int, exact: bool) -> tuple[FloatArray, FloatArray]:
        return channel_moments(self.m.channel(), f, steps)

    def inversion(self, table: CountTable) -> FloatArray:
        self.m.require(table)
        return self.decoded(table.counts / table.n @ self.true.inverse())

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

    def _support(self, table: CountTable) -> NoReturn:
        raise ValueError(f"{self.m.signature} is not a pure mechanism and has no support counts: use its counts and channel")


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
