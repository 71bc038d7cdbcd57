"""Geometric mechanisms.

Both mechanisms are ε-geo-indistinguishable: the loss between values x and x' is at most ε d(x, x'), with the distance in cells.
A report is distributed like a random cell z of the infinite lattice, moved to the domain's nearest cell:

    line: Pr[cell z | x] ∝ e^{-ε |z - x|}        grid: Pr[cell z | x] ∝ e^{-ε ‖z - x‖₂}

Sources: Ghosh, Roughgarden and Sundararajan 2009 (line); Chatzikokolakis, ElSalamouny and Palamidessi 2017 (grid);
ElSalamouny and Palamidessi, "Reconstruction of the distribution of sensitive data under free-will privacy", §2.2 and §2.3.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.papers.location.base import MAX_CELLS, LocationMechanism, StoredChannel
from lab.papers.location.dense import DenseReading
from ldpstream.mechanisms.arguments import (
    MAX_EPS,
    MAX_K,
    FloatArray,
    IntArray,
    Reports,
    epsilon,
    integer,
    real,
    user_values,
)
from ldpstream.mechanisms.counts.terms import ChannelTerm
from ldpstream.mechanisms.table import CountTable

MIN_PLANAR_EPS = 0.01  # for smaller ε the noise spans hundreds of cells, and lattice sums have tens of millions of terms
ROWS_AT_ONCE = 256  # rows of lattice cells in one block, to keep memory small


class GeometricTerm(ChannelTerm):
    def __init__(self, factors: FloatArray, eps: float, counts: IntArray) -> None:
        super().__init__(factors.size, counts)
        self._factors, self._ratio = factors, math.exp(-eps)

    def _forward(self, f: FloatArray) -> FloatArray:
        return self._factors * self._decay(f)

    def _adjoint(self, x: FloatArray) -> FloatArray:
        return self._decay(self._factors * x)

    def _decay(self, x: FloatArray) -> FloatArray:
        from lab.papers.location.decay_kernel import two_sided_decay

        out = np.empty(self.k)
        two_sided_decay(x, self._ratio, out)
        return out


class LineReading(DenseReading):
    m: "TruncatedGeometric"

    def _channel_term(self, counts: IntArray) -> GeometricTerm:
        return GeometricTerm(self.m.column_factors(), self.m.eps, counts)

    def inversion(self, table: CountTable) -> FloatArray:
        """Exact: the inverse of the matrix e^{-ε|z-x|} is tridiagonal (Kac, Murdock and Szegő 1953)."""
        self.m.require(table)
        a, scaled = math.exp(-self.m.eps), table.counts / table.n / self.m.column_factors()
        return self.decoded(_three_diagonals(scaled, 1 + a * a, 1.0, -a) / -math.expm1(-2 * self.m.eps))

    def _inversion_variances(self, frequencies: FloatArray, n: int, steps: int) -> FloatArray:
        from scipy.signal import lfilter  # scipy.signal is slow to load; only estimates need it

        f, a = frequencies, math.exp(-self.m.eps)
        powers = lfilter([1.0], [1.0, -a], f) + lfilter([1.0], [1.0, -a], f[::-1])[::-1] - f  # Σ_x f_x e^{-ε|z-x|}
        single = (
            _three_diagonals(powers / self.m.column_factors(), (1 + a * a) ** 2, 1.0, a * a) / math.expm1(-2 * self.m.eps) ** 2
        )
        return np.asarray(np.maximum((single - f) / steps + f - f**2, 0) / n)


class TruncatedGeometric(LocationMechanism):
    """Truncated geometric mechanism on a line of k cells. The parameter ε is a loss per cell of distance, not an LDP ε.

        P(z|x) = c_z e^{-ε|z-x|},   c_z = 1/(1+e^{-ε}) at both ends, (1-e^{-ε})/(1+e^{-ε}) between them

    The mechanism is geo-indistinguishable with ε, and with no value below ε. The LDP ε of a report, `eps_1`, is (k-1) ε.

    Args:
        k: number of cells, in [2, 2^31).
        eps: loss per cell of distance, in [1e-9, 700] nats.

    Raises:
        ValueError: if an argument is invalid; the message names the argument, the given value and the allowed values.

    >>> m = TruncatedGeometric(k=100, eps=0.5)
    >>> m.eps_distance, m.eps_1
    (0.5, 49.5)
    """

    name = "truncated-geometric"
    read_by = LineReading

    def __init__(self, k: int, eps: float) -> None:
        self._set_domain(integer("k", k, 2, MAX_K))
        self.eps = epsilon("eps", eps)
        self.eps_1 = self.eps * (self.k - 1)
        self.signature = f"{self.name}(k={self.k}, eps={self.eps!r})"

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        """Adds two-sided geometric noise, and clips the sum to the domain.

        The noise is the difference of two geometric variables, each drawn as ⌊Exponential/ε⌋.
        """
        checked = user_values(values, self.k)
        up, down = (-np.log1p(-rng.random((2, checked.size))) / self.eps).astype(np.int64)
        return np.asarray(np.clip(checked + up - down, 0, self.k - 1), self.report_dtype)

    def column_factors(self) -> FloatArray:
        """(k,) the c_z of the formula."""
        factors = np.full(self.k, -math.expm1(-self.eps))
        factors[[0, -1]] = 1.0
        return factors / (1 + math.exp(-self.eps))

    def _channel(self) -> FloatArray:
        return np.asarray(self.column_factors() * np.exp(-self.eps * self.distances()))

    def distances(self) -> FloatArray:
        cells = np.arange(self.k, dtype=np.float64)
        return np.abs(cells[:, None] - cells)

    @cached_property
    def eps_distance(self) -> float:
        """Returns exactly ε: the report z = x has a loss of ε |x - x'| between x and any x'."""
        return self.eps


def _three_diagonals(x: FloatArray, inner: float, corner: float, beside: float) -> FloatArray:
    result = inner * x
    result[[0, -1]] = corner * x[[0, -1]]
    result[1:] += beside * x[:-1]
    result[:-1] += beside * x[1:]
    return result


class PlanarTerm(ChannelTerm):
    def __init__(self, shape: tuple[int, int], channel: FloatArray, counts: IntArray) -> None:
        super().__init__(counts.size, counts)
        (width, height), self._tall = shape, shape[0] < shape[1]
        channel = channel.reshape(height, width, height, width)
        if self._tall:
            channel = channel.transpose(1, 0, 3, 2)
        self._rows, (lines, length) = height, channel.shape[:2]
        to_edge, inside = channel[:, :, 0], channel[1:, :, 1]  # axes: x's line, x's cell, z's cell; z on line 0 or 1
        self._to_edge = to_edge.reshape(-1, length)
        self._from_edge = to_edge.transpose(2, 0, 1).reshape(length, -1)
        self._to_inside = inside.transpose(1, 0, 2).reshape(length, -1)
        self._from_inside = inside.transpose(2, 0, 1).reshape(length, -1)
        self._line = np.arange(lines)
        self._distance = np.abs(self._line[:, None] - self._line[1:-1])  # of any line from each inner line

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


class GridReading(DenseReading):
    m: "PlanarGeometric"

    def _channel_term(self, counts: IntArray) -> ChannelTerm:
        return PlanarTerm(self.m.shape, self.m.channel(), counts) if min(self.m.shape) > 1 else super()._channel_term(counts)


class PlanarGeometric(StoredChannel):
    """Truncated planar geometric mechanism on a grid of square cells. ε is a loss per cell of distance, not an LDP ε.

        P(z|x) = λ Σ_{y ∈ R(z)} e^{-ε ‖y - x‖₂},   1/λ = Σ_{y ∈ Z²} e^{-ε ‖y‖₂}

    R(z) is the set of lattice cells whose nearest grid cell is z.

    Args:
        shape: (width, height) of the grid in cells, each at least 1, with 2 to 4096 cells in total. The values are the cells'
            numbers, row by row: the cell in column i and row j is i + width · j.
        eps: loss per cell of distance, in nats, at least 0.01 and at most 700 / the distance between opposite corners.

    Raises:
        ValueError: if an argument is invalid; the message names the argument, the given value and the allowed values.

    >>> m = PlanarGeometric(shape=(24, 16), eps=0.5)
    >>> m.k, round(m.eps_distance, 9)
    (384, 0.5)
    """

    name = "planar-geometric"
    read_by = GridReading

    def __init__(self, shape: tuple[int, int], eps: float) -> None:
        self.shape = width, height = grid_shape(shape)
        self._set_domain(width * height)
        self.eps = real("eps", eps, MIN_PLANAR_EPS, MAX_EPS / math.hypot(width - 1, height - 1))
        self.signature = f"{self.name}(shape={self.shape}, eps={self.eps!r})"
        sums = lattice_sums(width, height, self.eps)
        columns = _regions(width)[None, :, None, :]
        rows = _regions(height)[:, None, :, None]
        self._set_channel((sums[columns, rows] / sums[-1, -1]).reshape(self.k, self.k))

    def distances(self) -> FloatArray:
        """(k, k) Euclidean distance between the cells' centres, in cells."""
        y, x = np.divmod(np.arange(self.k), self.shape[0])
        return np.asarray(np.hypot(x[:, None] - x, y[:, None] - y))


def grid_shape(shape: Any) -> tuple[int, int]:
    """Checks `shape` and returns it as (width, height) of a grid of 2 to 4096 cells."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise ValueError(f"shape must be (width, height), got {shape!r}")
    width, height = (integer("each side of shape", side, 1, MAX_CELLS) for side in shape)
    integer("the number of cells of shape", width * height, 2, MAX_CELLS)
    return width, height


def _regions(side: int) -> IntArray:
    reach = max(side, 2)
    if side == 1:
        return np.array([[2 * reach]])
    cells = np.arange(side)
    index = np.abs(cells[:, None] - cells)
    index[:, 0] = reach + cells
    index[:, -1] = reach + cells[::-1]
    return np.asarray(index)


def lattice_sums(width: int, height: int, eps: float) -> FloatArray:
    """Sums of e^{-ε ‖(i, j)‖₂} for i in one of the sets I₀, I₁, … and j in one of the sets J₀, J₁, …

    With reach r = max(side, 2), an axis has the 2r + 1 sets {0}, …, {r-1}, then {0, 1, …}, {1, 2, …}, …, {r-1, r, …}, then all
    integers.

    Returns:
        (2 max(width, 2) + 1, 2 max(height, 2) + 1) float64.
    """
    if width < height:  # saves memory: `rows` stores the sums over the shorter axis for every offset of the longer axis
        return lattice_sums(height, width, eps).T
    long, short = max(width, 2), max(height, 2)
    offsets = np.arange(math.ceil(45 / eps) + 2 * long, dtype=np.float64)
    blocks = [offsets[start : start + ROWS_AT_ONCE] for start in range(0, offsets.size, ROWS_AT_ONCE)]
    rows = np.concatenate([_sets(np.exp(-eps * np.hypot(block[:, None], offsets)), short) for block in blocks])
    return _sets(np.ascontiguousarray(rows.T), long).T


def _sets(terms: FloatArray, reach: int) -> FloatArray:
    single = terms[:, :reach]
    beyond = terms[:, reach:].sum(axis=1, keepdims=True)
    tails = np.cumsum(np.hstack([beyond, single[:, ::-1]]), axis=1)[:, :0:-1]
    return np.hstack([single, tails, tails[:, :1] + tails[:, 1:2]])
