"""Tests whether a report supports a value, for symbols, bits, sets, hashes and cells near the value alike."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Longitudinal, Mechanism, Reports
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.square_wave import SquareWave

Bools = npt.NDArray[np.bool_]


def hashed(m: Mechanism) -> LocalHashing | LongitudinalHashing | None:
    """The mechanism, if it hashes values; with fake data, the mechanism on the device."""
    device = m.device
    return device if isinstance(device, (LocalHashing, LongitudinalHashing)) else None


def support_one(m: Mechanism, rows: Reports, values: IntArray) -> Bools:
    """(n,) true where row i supports value i.

    The value's bit is set, the symbol is the value or the value's hash, or the cell is near the value.
    """
    if isinstance(m, SquareWave):
        offset = rows.astype(np.int64) - values
        return np.asarray((offset >= 0) & (offset < m.width))
    if (hashing := hashed(m)) is not None:
        return np.asarray(hashing.pool.hash(rows["function"].astype(np.int64), values) == rows["symbol"])
    if m.report_dtype.shape:
        byte = rows[np.arange(len(rows)), values >> 3]
        return np.asarray((byte >> (values & 7).astype(np.uint8)) & 1 == 1)
    return np.asarray(rows == values)


def support_chances(m: Mechanism) -> tuple[FloatArray, FloatArray]:
    """(k,) Pr[a report supports v], for each value v: if the device encoded v, and if it encoded a uniform fake value."""
    if isinstance(m, SquareWave):
        near = near_chances(m)
        return near.diagonal(), near.mean(axis=0)
    p, q = m.device.p, m.device.q
    return np.full(m.k, p), np.full(m.k, q + (p - q) / m.k)


def near_chances(m: SquareWave) -> FloatArray:
    """(k, k) Pr[a report of value u is one of the L cells near value v], at [u, v]."""
    below = np.pad(np.cumsum(m.device.channel(), axis=1), ((0, 0), (1, 0)))
    return np.asarray(below[:, m.width : m.width + m.k] - below[:, : m.k])


def memo_keys(m: Mechanism, rows: Reports, values: IntArray) -> IntArray:
    """(n,) keys of the memos behind the reports: the value, or its hash by the report's own function."""
    if (hashing := hashed(m)) is not None and isinstance(hashing, Longitudinal):
        return np.asarray(hashing.pool.hash(rows["function"].astype(np.int64), values), np.int64)
    return values


@dataclass(frozen=True, slots=True)
class Symbols:
    """Reports of symbols 0 … m-1, and the symbol that each device encoded."""

    sent: IntArray
    encoded: IntArray
    m: int


def symbols(m: Mechanism, rows: Reports, values: IntArray) -> Symbols | None:
    """The reported and encoded symbols: of GRR, or the hashes of local hashing; None if a report is bits."""
    if (hashing := hashed(m)) is not None:
        encoded = hashing.pool.hash(rows["function"].astype(np.int64), values)
        return Symbols(rows["symbol"].astype(np.int64), np.asarray(encoded, np.int64), hashing.g)
    return None if m.report_dtype.shape else Symbols(rows.astype(np.int64), values, m.k)
