"""A mechanism's statements for the audit and the conformance check: which values a report supports, and known distributions."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, IntArray, Reports
from ldpstream.mechanisms.claims.ratios import Ratios


class Checked(ABC):
    """Statements for checks.

    Attributes:
        pure: true if p and q describe the reports.
        independent_bits: true if a report is k bits, which are independent given the value.
    """

    k: int
    p: float
    q: float
    pure: bool = True
    independent_bits: bool = False

    @abstractmethod
    def rounds(self) -> tuple[float, float, float, float]: ...

    @abstractmethod
    def supports(self, reports: Reports, values: IntArray) -> npt.NDArray[np.bool_]:
        """(n,) true where report i supports values[i]."""

    @abstractmethod
    def ratios(self) -> Ratios:
        """The likelihood ratios of the numbers of reports that support two values, for a mechanism without fake data."""

    def audited(self) -> list[int]:
        """Returns the inputs of the mechanism that the audit tells apart: the values; for sets, some sets."""
        return list(range(self.k))

    def memo_ratios(self) -> Ratios | None:
        """The same likelihood ratios of a memo, as if the device sent the memo; None for a one-time mechanism."""
        return None

    def support_chances(self, reports: int = 1) -> tuple[FloatArray, FloatArray]:
        """Probabilities that all `reports` reports of one memo support a value, for a mechanism without fake data.

        Returns:
            (k,) for each value, the probability if the device encoded this value; and (k,) the probability if the device
            encoded a uniformly drawn value.
        """
        a, b, p2, q2 = self.rounds()
        own, other = a * p2**reports + (1 - a) * q2**reports, b * p2**reports + (1 - b) * q2**reports
        return np.full(self.k, own), np.full(self.k, other + (own - other) / self.k)

    def own_chances(self, values: IntArray, reports: int = 1) -> FloatArray:
        return self.support_chances(reports)[0][values]

    def symbol_chances(self) -> tuple[float, float] | None:
        """Pr[a report is s] for a member s of the padded set, and for another symbol s; None except for mechanisms of sets."""
        return None

    @property
    def contrast(self) -> float:
        """Pr[a report supports the device's value] minus the smallest Pr[it supports another value], or an upper bound."""
        return self.p - self.q

    def pair_chances(self) -> tuple[float, float] | None:
        """Pr[a report supports the device's value and another value], Pr[it supports two other values]; None if unknown."""
        return None

    def equal_chances(self) -> tuple[float, float] | None:
        """Pr[two reports of one memo are equal], Pr[two reports of two memos of one key are equal]; None if unknown."""
        return None

    def functions(self, reports: Reports) -> tuple[IntArray, int] | None:
        """(n,) the number of the hash function of each report, and the number of functions; None without hashing."""
        return None

    def uniform_parts(self, reports: Reports, values: IntArray) -> list[tuple[str, IntArray, int]]:
        """Parts of reports that are uniform in [0, m) for devices with these values: (name of the part, its numbers, m)."""
        return []

    def outcomes(self, reports: Reports) -> IntArray | None:
        """(n,) the column of `Mechanism.channel` of each report; None if the checks need not compare all columns."""
        return None
