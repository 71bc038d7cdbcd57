"""True likelihood of stored reports of unary encodings and subsets, which counts of ones do not determine.

Given the value x, a report y of k bits has the probability

    P(y | x) = b(y) (1 if y_x else e^{-ε}),   so   L(f) = Σ_y ln b(y) + Σ_y ln(e^{-ε} Σf + (1 - e^{-ε}) Σ_{x: y_x = 1} f_x)

with ε the loss of the report. For a unary encoding with bits (p, q), b(y) = p/q · q^{ones} (1-q)^{k-ones}. For subsets of size
ω, b(y) = p / C(k-1, ω-1).
"""

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Mechanism, Reports
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.terms import ChannelTerm, FakeDataTerm
from ldpstream.mechanisms.families.subset import SubsetSelection
from ldpstream.mechanisms.families.unary import LongitudinalUnary, UnaryEncoding
from ldpstream.mechanisms.kernels.bits import row_bytes

Table = npt.NDArray[Any]
BYTES_AT_ONCE = 64  # bytes of a row; 64 tables of 256 sums fill 128 KiB


class ReportsTerm(ChannelTerm):
    """Log-likelihood of n stored reports of SUE, OUE, THE, SS or a memoized unary encoding, without fake data.

    A report is a row of ⌈k/8⌉ bytes.

    Raises:
        ValueError: if a row is not a report of this mechanism.
    """

    def __init__(self, m: UnaryEncoding | LongitudinalUnary | SubsetSelection, reports: Reports) -> None:
        ones, n = int(m.tabulate(reports).counts.sum()), len(reports)
        if isinstance(m, SubsetSelection):
            eps = m.eps_1
            sets = math.lgamma(m.k) - math.lgamma(m.omega) - math.lgamma(m.k - m.omega + 1)
            log_b = n * (math.log(m.p) - sets)
        else:
            bit = m.report_round
            eps = bit.eps()
            log_b = n * (math.log(bit.p) - math.log(bit.q)) + ones * math.log(bit.q) + (n * m.k - ones) * math.log(bit.not_q)
        counts = np.ones(n, np.int64)
        if 2 ** min(m.k, 63) < n:
            reports, counts = np.unique(reports, axis=0, return_counts=True)
        super().__init__(m.k, counts, log_b)
        self._rows, self._other, self._excess = reports, math.exp(-eps), -math.expm1(-eps)

    def _forward(self, f: FloatArray) -> FloatArray:
        padded = np.zeros(8 * row_bytes(self.k))
        padded[: self.k] = f
        sums = np.zeros(len(self._rows))
        bit_sums(self._rows, padded, sums)
        return np.asarray(self._other * f.sum() + self._excess * sums)

    def _adjoint(self, x: FloatArray) -> FloatArray:
        sums = np.zeros(8 * row_bytes(self.k))
        bit_spread(self._rows, x, sums)
        return np.asarray(self._other * x.sum() + self._excess * sums[: self.k])


def reports_term(m: Mechanism, reports: Reports) -> ReportsTerm | FakeDataTerm:
    """The true likelihood of stored reports of a unary encoding or of subsets, with or without fake data.

    Raises:
        ValueError: for any other mechanism, or if a row is not a report of `m`.
    """
    if not isinstance(m.device, (UnaryEncoding, LongitudinalUnary, SubsetSelection)):
        raise ValueError(f"m must be a unary encoding or a subset selection, got {m.signature}")
    term = ReportsTerm(m.device, reports)
    return term if m.fakes == 1 else FakeDataTerm(term, m.fakes)


@numba.njit(cache=True)
def bit_sums(rows: Table, f: Table, out: Table) -> None:
    sums = np.zeros((BYTES_AT_ONCE, 256))
    for begin in range(0, rows.shape[1], BYTES_AT_ONCE):
        part = rows[:, begin : begin + BYTES_AT_ONCE]
        for j in range(part.shape[1]):
            for bit in range(8):
                for low in range(1 << bit):
                    sums[j, low + (1 << bit)] = sums[j, low] + f[8 * (begin + j) + bit]
        for i in range(rows.shape[0]):
            total = 0.0
            for j in range(part.shape[1]):
                total += sums[j, part[i, j]]
            out[i] += total


@numba.njit(cache=True)
def bit_spread(rows: Table, x: Table, out: Table) -> None:
    for begin in range(0, rows.shape[1], BYTES_AT_ONCE):
        part = rows[:, begin : begin + BYTES_AT_ONCE]
        sums = np.zeros((BYTES_AT_ONCE, 256))
        for i in range(rows.shape[0]):
            for j in range(part.shape[1]):
                sums[j, part[i, j]] += x[i]
        for j in range(part.shape[1]):
            for byte in range(256):
                for bit in range(8):
                    if byte >> bit & 1:
                        out[8 * (begin + j) + bit] += sums[j, byte]
