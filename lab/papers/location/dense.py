"""The likelihood and the inversion of any channel, by dense products."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.channel import ChannelReading
from ldpstream.mechanisms.counts.terms import ChannelTerm


class DenseTerm(ChannelTerm):
    """Term of any channel.

    Args:
        channel: (k, outputs); row v is Pr[output | v].
        counts: (outputs,) integers, at least 0.

    >>> term = DenseTerm(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([2, 1]))
    >>> value, gradient = term(np.array([0.5, 0.5]))
    >>> round(value, 4), gradient.tolist()
    (-2.0794, [3.5, 2.5])
    """

    def __init__(self, channel: FloatArray, counts: npt.NDArray[np.integer]) -> None:
        super().__init__(len(channel), counts)
        self._channel = channel

    def _forward(self, f: FloatArray) -> FloatArray:
        return np.asarray(f @ self._channel)

    def _adjoint(self, x: FloatArray) -> FloatArray:
        return np.asarray(self._channel @ x)


class DenseReading(ChannelReading):
    """Inverts by the pseudo-inverse B of the channel: least squares.

    If the channel is invertible, the inversion is unbiased and sums to 1. Otherwise the result is the least-squares vector with
    the smallest norm, which is biased for some distributions.
    """

    def _channel_term(self, counts: IntArray) -> ChannelTerm:
        return DenseTerm(self.m.channel(), counts)

    @cached_property
    def own_inverse(self) -> FloatArray:
        found = np.asarray(np.linalg.pinv(self.m.channel(), rcond=1e-13))
        found.setflags(write=False)
        return found

    def _inversion_variances(self, frequencies: FloatArray, n: int, steps: int) -> FloatArray:
        """Exact variances of the k bins:

            Var f̂_v = [ W (Σ_z γ_z B_zv² - Σ_x f_x H_xv²) + W² (Σ_x f_x H_xv² - (Σ_z γ_z B_zv)²) ] / (n W²)

        with f the frequencies, γ = f A and H = A B.

        Source: covariance of multinomial counts; within a step diag(γ) - γγᵀ, between steps Aᵀ diag(f) A - γγᵀ.
        """
        f, a, b = frequencies, self.m.channel(), self.own_inverse
        gamma = f @ a
        single, same_value, mean = gamma @ b**2, f @ (a @ b) ** 2, gamma @ b
        return np.asarray(np.maximum((single - same_value) / steps + same_value - mean**2, 0) / n)
