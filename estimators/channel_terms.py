"""True log-likelihoods of count tables, for expectation maximisation (EM), optimizers and information matrices.

A group of reports with counts c and a channel A of shape (k, outputs) has this log-likelihood of the frequencies f:

    L(f) = Σ_z c_z ln m_z,   m = Aᵀ f        gradient A (c/m)        minus the Hessian times d: A (c/m² · Aᵀ d)

A term needs only products A x and Aᵀ f. Each mechanism has its own method for these products: dense products, one recursion
from each end (truncated geometric), running sums (Square Wave), blocks (planar geometric), or the Radon transform (local
hashing). Calling a term with f returns L and the gradient of L. The gradient times f, normalised, is one EM step. The formulas
do not assume Σ f = 1.

For a memoizing mechanism, L(f) is the likelihood of single reports. Over several steps, this likelihood treats one person's
reports as reports of several people with the same distribution. The estimate stays consistent, but its errors are larger.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import ChannelMechanism, CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray, integer
from ldpstream.mechanisms.geometric import PlanarGeometric, TruncatedGeometric
from ldpstream.mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.square_wave import SquareWave

FLOOR = 1e-140  # smallest m in the gradient and the curvature, so that c/m² cannot overflow


class ChannelTerm(ABC):
    """Log-likelihood of the counts of a channel's outputs.

    A subclass computes the products with the channel, and may scale each column of the channel. Scaling adds only a constant to
    L; `offset` corrects for this constant.

    Args:
        k: domain size.
        counts: (outputs,) number of reports of each output, at least 0.
        offset: constant added to Σ c ln m to give L, in nats.

    Attributes:
        n: number of reports, Σ c.
    """

    def __init__(self, k: int, counts: npt.NDArray[np.integer], offset: float = 0.0) -> None:
        self.k = k
        self.n = int(counts.sum())
        self._counts = counts.astype(np.float64)
        self._offset = offset

    @abstractmethod
    def _forward(self, f: FloatArray) -> FloatArray:
        """Returns Aᵀ f, linear in f: from (k,) to (outputs,)."""

    @abstractmethod
    def _adjoint(self, x: FloatArray) -> FloatArray:
        """Returns A x: from (outputs,) to (k,)."""

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        """Returns L(f) in nats and its gradient, (k,).

        L is -inf if f makes a received report impossible. The gradient replaces any m below 1e-140 by 1e-140, so the gradient
        stays finite.
        """
        m = self._forward(f)
        gradient = self._adjoint(self._counts / np.maximum(m, FLOOR))
        never = m <= 0
        if (self._counts[never] > 0).any():
            return -math.inf, gradient
        m[never] = 1.0
        return float(self._counts @ np.log(m)) + self._offset, gradient

    def curvature(self, f: FloatArray, direction: FloatArray) -> FloatArray:
        """Returns minus the Hessian of L at f, times a direction; both (k,)."""
        m = np.maximum(self._forward(f), FLOOR)
        return self._adjoint(self._counts / m * (self._forward(direction) / m))


class DenseTerm(ChannelTerm):
    """Term of any channel, computed by dense products, in O(k · outputs) per step.

    Args:
        channel: (k, outputs); row v is Pr[output | v]; each row sums to 1 to within 1e-9.
        counts: (outputs,) integers, at least 0.

    Raises:
        ValueError: if the channel is not stochastic, or the counts are not counts of its outputs.

    >>> term = DenseTerm(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([2, 1]))
    >>> value, gradient = term(np.array([0.5, 0.5]))
    >>> round(value, 4), gradient.tolist()
    (-2.0794, [3.5, 2.5])
    """

    def __init__(self, channel: FloatArray, counts: npt.NDArray[np.integer]) -> None:
        if channel.ndim != 2 or not ((channel >= 0).all() and np.allclose(channel.sum(axis=1), 1, rtol=0, atol=1e-9)):
            raise ValueError(f"channel must be a matrix with rows of probabilities that sum to 1, got shape {channel.shape}")
        if counts.shape != channel.shape[1:] or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise ValueError(
                f"counts must be {channel.shape[1]} integers of at least 0, got {counts.dtype} of shape {counts.shape}"
            )
        super().__init__(channel.shape[0], counts)
        self._channel = channel

    def _forward(self, f: FloatArray) -> FloatArray:
        return np.asarray(f @ self._channel)

    def _adjoint(self, x: FloatArray) -> FloatArray:
        return np.asarray(self._channel @ x)


class HashingTerm(ChannelTerm):
    """Term of local hashing's (S, g) count table. A step uses two Radon transforms over GF(g) (`mechanisms.linear_pool`).

        P(a, y | v) = p/S if H_a(v) = y, q'/S for each of the g - 1 other symbols y

    Reports (a, y) and (ca, cy) are equivalent, so the term adds their counts. A step needs O(m S g²/(g-1)) additions; the dense
    channel would need O(k S) operations. A memoized mechanism has the same channel; p is then the probability over both rounds.

    Args:
        m: BLH, OLH, L-BLH or L-OLH, without fake data.
        table: the mechanism's count table.
    """

    def __init__(self, m: LocalHashing | LongitudinalHashing, table: CountTable) -> None:
        m.require(table)
        super().__init__(m.k, m.pool.fold(table.counts), -table.n * math.log(m.pool.size))
        self._pool, self._other, self._excess = m.pool, m.other_symbol, m.p - m.other_symbol

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


class GeometricTerm(ChannelTerm):
    """Term of the truncated geometric mechanism on a line. A step is one O(k) recursion from each end, over e^{-ε|z-x|}."""

    def __init__(self, m: TruncatedGeometric, table: CountTable) -> None:
        m.require(table)
        super().__init__(m.k, table.counts)
        self._factors = m.column_factors()
        self._ratio = math.exp(-m.eps)

    def _forward(self, f: FloatArray) -> FloatArray:
        return self._factors * self._decay(f)

    def _adjoint(self, x: FloatArray) -> FloatArray:
        return self._decay(self._factors * x)

    def _decay(self, x: FloatArray) -> FloatArray:
        from ldpstream.mechanisms.kernels import two_sided_decay

        out = np.empty(self.k)
        two_sided_decay(x, self._ratio, out)
        return out


class WaveTerm(ChannelTerm):
    """Term of Square Wave. A step is two running sums, O(k): a wave is a block of neighbouring cells.

    Where the wave is wider than one cell, q/p is above 1e-5, so differences of running sums lose no more than five digits.
    """

    def __init__(self, m: SquareWave, table: CountTable) -> None:
        m.require(table)
        super().__init__(m.k, table.counts)
        self._width, self._far, self._gap = m.width, m.far, m.far * math.expm1(m.eps_1)

    def _forward(self, f: FloatArray) -> FloatArray:
        if self._width == 1:
            return np.asarray(self._far * f.sum() + self._gap * f)
        sums = np.zeros(self.k + 2 * self._width - 1)  # L zeros, then the running sum, then its last value
        np.cumsum(f, out=sums[self._width : self._width + self.k])
        sums[self._width + self.k :] = sums[self._width + self.k - 1]
        waves = sums[self._width :] - sums[: -self._width]
        return np.asarray(self._far * f.sum() + self._gap * waves)

    def _adjoint(self, x: FloatArray) -> FloatArray:
        if self._width == 1:
            return np.asarray(self._far * x.sum() + self._gap * x)
        sums = np.concatenate([[0.0], np.cumsum(x)])
        return np.asarray(self._far * sums[-1] + self._gap * (sums[self._width :] - sums[: -self._width]))


class PlanarTerm(ChannelTerm):
    """Term of the planar geometric mechanism on a grid with both sides at least 2.

    The channel has few distinct blocks. A block is the channel from one line of cells to another, along the longer side. A
    block depends on the distance between the two lines, and on whether the second line is at an edge. An edge line also
    receives all outputs beyond the edge. A step is a few small matrix products and sums over pairs of lines. At k = 4096 a step
    is 4 times faster than the dense product. A fast Fourier transform would be faster, but its error is 1e-16 of the largest m,
    so far cells would lose all digits. The sums over pairs of lines have only positive terms, so no digits are lost.
    """

    def __init__(self, m: PlanarGeometric, table: CountTable) -> None:
        m.require(table)
        super().__init__(m.k, table.counts)
        (width, height), self._tall = m.shape, m.shape[0] < m.shape[1]
        channel = m.channel().reshape(height, width, height, width)
        if self._tall:
            channel = channel.transpose(1, 0, 3, 2)
        self._rows, (lines, length) = height, channel.shape[:2]
        to_edge, inside = channel[:, :, 0], channel[1:, :, 1]  # axes: x's line, x's cell, z's cell; z on line 0 or 1
        self._to_edge = to_edge.reshape(-1, length)
        self._from_edge = to_edge.transpose(2, 0, 1).reshape(length, -1)
        self._to_inside = inside.transpose(1, 0, 2).reshape(length, -1)
        self._from_inside = inside.transpose(2, 0, 1).reshape(length, -1)
        self._line = np.arange(lines)
        self._distance = np.abs(self._line[:, None] - self._line[1:-1])  # from any line to each inner line

    def _forward(self, f: FloatArray) -> FloatArray:
        lines = self._as_lines(f)
        products = (lines @ self._to_inside).reshape(len(lines), len(lines) - 1, lines.shape[1])
        inside = products[self._line[:, None], self._distance].sum(axis=0)
        return self._as_cells(np.vstack([lines.ravel() @ self._to_edge, inside, lines[::-1].ravel() @ self._to_edge]))

    def _adjoint(self, x: FloatArray) -> FloatArray:
        lines = self._as_lines(x)
        products = (lines[1:-1] @ self._from_inside).reshape(len(lines) - 2, len(lines) - 1, lines.shape[1])
        first, last = (lines[[0, -1]] @ self._from_edge).reshape(2, *lines.shape)
        return self._as_cells(first + last[::-1] + products[self._line[:-2], self._distance].sum(axis=1))

    def _as_lines(self, cells: FloatArray) -> FloatArray:
        lines = cells.reshape(self._rows, -1)
        return lines.T if self._tall else lines

    def _as_cells(self, lines: FloatArray) -> FloatArray:
        return np.ravel(lines.T if self._tall else lines)


class FakeDataTerm:
    """A term under fake data: one device in d reports the person's value; the other devices report a uniform value.

        L(f) = term((f + (d-1)/k Σf) / d)

    Source: `Mechanism.with_fake_data`.
    """

    def __init__(self, term: ChannelTerm, d: int) -> None:
        self.k, self.n = term.k, term.n
        self._term, self._d = term, integer("d", d, 1, 10**6)

    def __call__(self, f: FloatArray) -> tuple[float, FloatArray]:
        """Returns L(f) in nats and its gradient, (k,)."""
        value, gradient = self._term(self._mixed(f))
        return value, self._mixed(gradient)

    def curvature(self, f: FloatArray, direction: FloatArray) -> FloatArray:
        """Returns minus the Hessian of L at f, times a direction; both (k,)."""
        return self._mixed(self._term.curvature(self._mixed(f), self._mixed(direction)))

    def _mixed(self, f: FloatArray) -> FloatArray:
        """Mixes in uniform values. The mixing matrix is symmetric: the matrix is its own transpose."""
        return np.asarray((f + (self._d - 1) / self.k * f.sum()) / self._d)


def exact_term(m: Mechanism, table: CountTable) -> ChannelTerm | FakeDataTerm | None:
    """Returns the true likelihood of a count table, if the true likelihood needs more than the support counts.

    Returns:
        A term for local hashing, Square Wave and the location mechanisms, with or without fake data. For other mechanisms
        None: use the likelihood of the support counts, Σ c ln(q + (p-q) f). For GRR and L-GRR the likelihood of the support
        counts is the true likelihood. For unary encodings and subsets, bit counts do not determine the true likelihood;
        `estimators.reports_term` computes it from the reports.

    Raises:
        ValueError: if the table belongs to another mechanism.
    """
    m.require(table)
    device = m.device
    own = CountTable(device.signature, table.n, table.counts)
    term: ChannelTerm
    if isinstance(device, (LocalHashing, LongitudinalHashing)):
        term = HashingTerm(device, own)
    elif isinstance(device, TruncatedGeometric):
        term = GeometricTerm(device, own)
    elif isinstance(device, SquareWave):
        term = WaveTerm(device, own)
    elif isinstance(device, PlanarGeometric) and min(device.shape) > 1:
        term = PlanarTerm(device, own)
    elif isinstance(device, ChannelMechanism):
        term = DenseTerm(device.channel(), table.counts)
    else:
        return None
    return term if m.fakes == 1 else FakeDataTerm(term, m.fakes)
