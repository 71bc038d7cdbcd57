"""Exact likelihood ratios of the supports of t reports. The loss is the largest logarithm of such a ratio.

Let a and b be two different values. Of t reports of an unchanged value, let i reports support a and j reports support b. For
every mechanism here, a Neyman-Pearson test between a and b uses (i, j):

    unary encodings   the bits are independent given the value, so all bits but those of a and b cancel:
                      L(i, j) = l(i) - l(j),  l(c) = ln Pr[c ones | the value's bit] - ln Pr[c ones | another bit]
    GRR, hashing      s symbols (k, or g for hashing): the memo is a, b or one of the s-2 other symbols. Given the memo, a
                      report is also a, b or another symbol. Pr[i, j | a] is therefore a sum of three trinomial terms
    SS                L(i, j) = ε (i - j): a set with the value is e^ε times as likely as a set without the value
    SW                L(i, j) = ε (i - j): a cell near the value is e^ε times as likely as another cell

For unary encodings, SS and SW the largest L(i, j) is the loss itself. With symbols, a report of any other symbol also carries a
little information about the memo. `enumerated_loss` therefore goes through all count vectors of the s symbols, up to
permutations of the symbols other than a and b.

A round is written (p₁, q₁), and a chain of two rounds (p₁, q₁, p₂, q₂). A one-time mechanism has the chain (1, 0, p, q).
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Longitudinal, Mechanism, Reports
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.square_wave import SquareWave
from ldpstream.mechanisms.subset import SubsetSelection

Chain = tuple[float, float, float, float]
Supports = npt.NDArray[np.uint8]  # (n, k)


def report_chain(m: Mechanism) -> Chain:
    """The chain that produces a report."""
    if isinstance(m, Longitudinal):
        return m.p1, m.q1, m.p2, m.q2
    return 1.0, 0.0, m.p, m.other_symbol if isinstance(m, LocalHashing) else m.q


def memo_chain(m: Longitudinal) -> Chain:
    """The chain that produces a memo, as if the memo were sent."""
    return 1.0, 0.0, m.p1, m.q1


def symbols_of(m: Mechanism) -> int | None:
    """Number of symbols that are randomized: k, or g for hashing; None if the report is bits or a cell of SW."""
    if isinstance(m, SquareWave):
        return None
    if isinstance(m, (LocalHashing, LongitudinalHashing)):
        return m.g
    return None if m.report_dtype.shape else m.k


def supports(m: Mechanism, reports: Reports) -> Supports:
    """(n, k), 1 where a report supports a value: the value's bit is set, the symbol is the value or the value's hash, or the
    cell is near the value."""
    if isinstance(m, (LocalHashing, LongitudinalHashing)):
        functions = reports["function"].astype(np.int64)
        columns = [m.pool.hash(functions, np.full(functions.size, v)) == reports["symbol"] for v in range(m.k)]
        return np.stack(columns, axis=1).astype(np.uint8)
    if isinstance(m, SquareWave):
        offset = reports.astype(np.int64)[:, None] - np.arange(m.k)
        return np.asarray((offset >= 0) & (offset < m.width)).astype(np.uint8)
    if m.report_dtype.shape:
        return np.unpackbits(reports, axis=1, count=m.k, bitorder="little")
    return np.asarray(reports[:, None] == np.arange(m.k)).astype(np.uint8)


def log_ratios(m: Mechanism, chain: Chain, t: int) -> FloatArray:
    """(t+1, t+1) ln Pr[i, j | a] - ln Pr[i, j | b]; 0 if (i, j) is impossible or i = j. If a and b share a symbol, i = j."""
    if isinstance(m, (SubsetSelection, SquareWave)):
        gain = m.near / m.far if isinstance(m, SquareWave) else m.p * (m.k - m.omega) / (m.omega * (1 - m.p))
        once = np.arange(t + 1) * math.log(gain)
        return np.asarray(once[:, None] - once)
    p1, q1, p2, q2 = chain
    c = np.arange(t + 1)
    ones, zeros = (p2**c * (1 - p2) ** (t - c)), (q2**c * (1 - q2) ** (t - c))
    s = symbols_of(m)
    if s is None:
        bit = np.log(p1 * ones + (1 - p1) * zeros) - np.log(q1 * ones + (1 - q1) * zeros)
        return np.asarray(bit[:, None] - bit)
    i, j = np.meshgrid(c, c, indexing="ij")
    rest = np.maximum(t - i - j, 0)
    memo_a, memo_b = (p2**x * q2**y * ((s - 2) * q2) ** rest for x, y in ((i, j), (j, i)))
    memo_other = (s - 2) * q2 ** (i + j) * (p2 + max(s - 3, 0) * q2) ** rest
    of_a, of_b = p1 * memo_a + q1 * (memo_b + memo_other), p1 * memo_b + q1 * (memo_a + memo_other)
    possible = (i + j <= t) & (of_a > 0)
    return np.asarray(np.log(of_a, where=possible, out=np.zeros(i.shape)) - np.log(of_b, where=possible, out=np.zeros(i.shape)))


def partitions(total: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yields each descending tuple of at most `parts` integers from 1 to `largest` whose sum is `total`."""
    if total == 0:
        yield ()
    elif parts > 0:
        for first in range(min(total, largest), 0, -1):
            for rest in partitions(total - first, parts - 1, first):
                yield (first, *rest)


def enumerated_loss(m: Mechanism, chain: Chain, t: int) -> float:
    """The largest |ln ratio| between two values for t reports of an unchanged value, in nats, by enumeration.

    Sequences of reports that differ only in order, or by a permutation of symbols other than the symbols of the two values,
    have the same ratio. The function therefore evaluates one sequence of each class: a few hundred sequences even for t = 10.
    """
    s = symbols_of(m)
    if s is None:
        return float(log_ratios(m, chain, t).max())
    p1, q1, p2, q2 = chain
    gain = math.log(p2) - math.log(q2)
    worst = 0.0
    for i in range(t + 1):
        for j in range(t - i + 1):
            for others in partitions(t - i - j, s - 2, t):
                unseen = s - 2 - len(others)
                rest = q1 * (sum(math.exp(c * gain) for c in others) + unseen)
                high, low = math.exp(i * gain), math.exp(j * gain)
                worst = max(worst, math.log((p1 * high + q1 * low + rest) / (p1 * low + q1 * high + rest)))
    return worst


def channel_loss(m: Mechanism) -> float:
    """The largest |ln ratio| of two rows of the dense channel, in nats; for small domains."""
    logs = np.log(m.channel())
    return float((logs.max(axis=0) - logs.min(axis=0)).max())
