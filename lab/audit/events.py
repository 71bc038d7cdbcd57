"""Events of a report, such as "it supports the device's value", and their exact chances.

The audit and the conformance check of devices count these events.
"""

import math

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Mechanism, Reports
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.families.grr import Symbols
from ldpstream.mechanisms.families.local_hashing import Hashing
from ldpstream.mechanisms.families.memoized_subset import LongitudinalSubset
from ldpstream.mechanisms.families.padded_sampling import LongitudinalPaddedSampling, SetMechanism
from ldpstream.mechanisms.families.square_wave import SquareWave
from ldpstream.mechanisms.families.subset import Subsets
from ldpstream.mechanisms.families.unary import Bits
from ldpstream.mechanisms.sets import members

UniformPart = tuple[str, IntArray, int]  # name of the part, its numbers, and m: the numbers are uniform in [0, m)


class Events:
    """Events of the reports of one mechanism.

    All chances are those of the mechanism without fake data. A new mechanism may keep the defaults, which are slow and compare
    less.

    Attributes:
        independent_bits: true if a report is k bits, which are independent given the value.
        symmetric: true only if every permutation of the values permutes the reports.
    """

    independent_bits: bool = False
    symmetric: bool = False

    def __init__(self, m: Mechanism) -> None:
        self.m = m

    def supports(self, reports: Reports, values: IntArray) -> npt.NDArray[np.bool_]:
        """(n,) true where report i supports values[i]; here from the support counts, and for a channel if both are equal."""
        if not self.m.pure:
            return np.asarray(reports == values)
        rows, places = np.unique(reports, axis=0 if reports.ndim > 1 else None, return_inverse=True)
        device = self.m.device
        supported = np.array([device.support(device.tabulate(rows[i : i + 1])) for i in range(len(rows))]).reshape(-1, device.k)
        return np.asarray(supported[places.ravel(), values] == 1)

    def audited(self) -> list[int]:
        """Returns the inputs of the mechanism that the audit tells apart: the values; for sets, some sets."""
        return list(range(self.m.k))

    def support_chances(self, reports: int = 1) -> tuple[FloatArray, FloatArray]:
        """Probabilities that all `reports` reports of one memo support a value.

        Returns:
            (k,) for each value, the probability if the device encoded this value; and (k,) the probability if the device
            encoded a uniformly drawn value.
        """
        a, b, p2, q2 = self.m.device.rounds()
        own, other = a * p2**reports + (1 - a) * q2**reports, b * p2**reports + (1 - b) * q2**reports
        return np.full(self.m.k, own), np.full(self.m.k, other + (own - other) / self.m.k)

    def own_chances(self, values: IntArray, reports: int = 1) -> FloatArray:
        return self.support_chances(reports)[0][values]

    @property
    def contrast(self) -> float:
        """Pr[a report supports the device's value] minus the smallest Pr[it supports another value], or an upper bound."""
        return self.m.device.p - self.m.device.q

    def pair_chances(self) -> tuple[float, float] | None:
        """Pr[a report supports the device's value and another value], Pr[it supports two other values]; None if unknown."""
        return None

    def equal_chances(self) -> tuple[float, float] | None:
        """Pr[two reports of one memo are equal], Pr[two reports of two memos of one key are equal]; None if unknown."""
        return None

    def functions(self, reports: Reports) -> tuple[IntArray, int] | None:
        """(n,) the number of the hash function of each report, and the number of functions; None without hashing."""
        return None

    def uniform_parts(self, reports: Reports, values: IntArray) -> list[UniformPart]:
        """Parts of reports that are uniform for devices with these values."""
        return self._uniform_parts(reports, values) if self.symmetric or self.m.fakes == 1 else []

    def _uniform_parts(self, reports: Reports, values: IntArray) -> list[UniformPart]:
        return []

    def outcomes(self, reports: Reports) -> IntArray | None:
        """(n,) the column of `Mechanism.channel` of each report; None if the checks need not compare all columns."""
        return None


def other_symbols(sent: IntArray, encoded: IntArray, n_symbols: int) -> list[UniformPart]:
    """`Events.uniform_parts` of symbols: all symbols except the encoded one are equally likely."""
    if n_symbols < 3:
        return []
    wrong = sent != encoded
    sent, encoded = sent[wrong], encoded[wrong]
    return [
        ("which other symbol, from 0", sent - (sent > encoded), n_symbols - 1),
        ("which other symbol, from the encoded one", (sent - encoded) % n_symbols - 1, n_symbols - 1),
    ]


def equal_symbols(n_symbols: int, p: float, q: float) -> float:
    return p**2 + (n_symbols - 1) * q**2


class SymbolEvents(Events):
    symmetric = True

    def supports(self, reports: Reports, values: IntArray) -> npt.NDArray[np.bool_]:
        return np.asarray(reports == values)

    def equal_chances(self) -> tuple[float, float]:
        m = self.m.device
        _, _, p2, q2 = m.rounds()
        return equal_symbols(m.k, p2, q2), equal_symbols(m.k, m.p, m.q)

    def _uniform_parts(self, reports: Reports, values: IntArray) -> list[UniformPart]:
        return other_symbols(reports.astype(np.int64), values, self.m.k)


class BitEvents(Events):
    independent_bits = True

    def supports(self, reports: Reports, values: IntArray) -> npt.NDArray[np.bool_]:
        byte = reports[np.arange(len(reports)), values >> 3]
        return np.asarray((byte >> (values & 7).astype(np.uint8)) & 1 == 1)

    def pair_chances(self) -> tuple[float, float]:
        return self.m.device.p * self.m.device.q, self.m.device.q**2


class SubsetEvents(BitEvents):
    m: Subsets

    independent_bits = False

    def pair_chances(self) -> tuple[float, float]:
        return self.m.drawn.pair_chances()


class MemoizedSubsetEvents(SubsetEvents):
    m: LongitudinalSubset

    def equal_chances(self) -> tuple[float, float]:
        k, m, w, p = self.m.k, self.m.memo_size, self.m.omega, self.m.drawn.p
        ways = np.array([float(math.comb(m, j) * math.comb(k - m, w - j)) for j in range(min(m, w) + 1)])
        apart = p**2 / math.comb(k - 1, w - 1) + self.m.drawn.not_p**2 / math.comb(k - 1, w)
        return float((self.m.set_rounds.overlaps**2 / ways).sum()), apart


class HashEvents(Events):
    m: Hashing

    def supports(self, reports: Reports, values: IntArray) -> npt.NDArray[np.bool_]:
        return np.asarray(self.m.pool.hash(reports["function"].astype(np.int64), values) == reports["symbol"])

    def equal_chances(self) -> tuple[float, float] | None:
        return SymbolEvents(self.m.symbols).equal_chances() if self.m.memoized else None

    def functions(self, reports: Reports) -> tuple[IntArray, int]:
        return reports["function"].astype(np.int64), self.m.pool.size

    def _uniform_parts(self, reports: Reports, values: IntArray) -> list[UniformPart]:
        encoded = self.m.pool.hash(reports["function"].astype(np.int64), values)
        return other_symbols(reports["symbol"].astype(np.int64), encoded, self.m.g)


class SetEvents(Events):
    """A report supports a set if it names a member of the padded set."""

    m: SetMechanism

    def supports(self, reports: Reports, values: IntArray) -> npt.NDArray[np.bool_]:
        found, places = np.unique(values, return_inverse=True)
        padded = members(found, self.m.k - self.m.choices, self.m.choices)
        return np.asarray(padded[places, reports.astype(np.int64)])

    def audited(self) -> list[int]:
        """The sets of the first 0, 1, … m values, and the set of the last m values."""
        first = [(1 << size) - 1 for size in range(self.m.choices + 1)]
        return [*first, first[-1] << self.m.k - 2 * self.m.choices]

    def own_chances(self, values: IntArray, reports: int = 1) -> FloatArray:
        return np.full(len(values), (self.m.choices * self.m.symbol_chances()[0]) ** reports)

    def equal_chances(self) -> tuple[float, float]:
        inside, outside = self.m.symbol_chances()
        fresh = self.m.choices * inside**2 + (self.m.k - self.m.choices) * outside**2
        return fresh, fresh


class MemoizedSetEvents(SetEvents):
    m: LongitudinalPaddedSampling

    def own_chances(self, values: IntArray, reports: int = 1) -> FloatArray:
        of_set, p2, q2 = self.m.choices * self.m.member, self.m.p2, self.m.q2
        if_inside, if_outside = p2 + (self.m.choices - 1) * q2, self.m.choices * q2
        return np.full(len(values), of_set * if_inside**reports + (1 - of_set) * if_outside**reports)

    def equal_chances(self) -> tuple[float, float]:
        return equal_symbols(self.m.k, self.m.p2, self.m.q2), super().equal_chances()[1]


class WaveEvents(Events):
    """A report supports a value if its cell is near the value."""

    m: SquareWave

    def supports(self, reports: Reports, values: IntArray) -> npt.NDArray[np.bool_]:
        offset = reports.astype(np.int64) - values
        return np.asarray((offset >= 0) & (offset < self.m.width))

    def support_chances(self, reports: int = 1) -> tuple[FloatArray, FloatArray]:
        """The diagonal of N and the mean of N over u. N[u, v] is Pr[a report of u is near v], to the power `reports`."""
        below = np.pad(np.cumsum(self.m.device.channel(), axis=1), ((0, 0), (1, 0)))
        near = (below[:, self.m.width : self.m.width + self.m.k] - below[:, : self.m.k]) ** reports
        return near.diagonal(), near.mean(axis=0)

    @property
    def contrast(self) -> float:
        return self.m.keep - self.m.width * self.m.far

    def equal_chances(self) -> tuple[float, float]:
        equal = self.m.width * self.m.near**2 + (self.m.k - 1) * self.m.far**2
        return equal, equal

    def _uniform_parts(self, reports: Reports, values: IntArray) -> list[UniformPart]:
        cells, near = reports.astype(np.int64), self.supports(reports, values)
        other, held = cells[~near], values[~near]
        other -= self.m.width * (other >= held)
        return [
            ("which cell near the value", (cells - values)[near], self.m.width),
            ("which other cell, from 0", other, self.m.k - 1),
            ("which other cell, from the value", (other - held) % (self.m.k - 1), self.m.k - 1),
        ]

    def outcomes(self, reports: Reports) -> IntArray:
        return reports.astype(np.int64)


EVENTS: dict[type, type[Events]] = {
    Mechanism: Events,
    Symbols: SymbolEvents,
    Bits: BitEvents,
    Subsets: SubsetEvents,
    LongitudinalSubset: MemoizedSubsetEvents,
    Hashing: HashEvents,
    SetMechanism: SetEvents,
    LongitudinalPaddedSampling: MemoizedSetEvents,
    SquareWave: WaveEvents,
}


def events(m: Mechanism) -> Events:
    """Returns the events of a mechanism, by its class or the nearest base class in `EVENTS`."""
    return next(EVENTS[kind] for kind in type(m).__mro__ if kind in EVENTS)(m)
