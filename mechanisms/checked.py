"""What a mechanism tells the audit and the conformance check: the supports of reports, and numbers with a known distribution.

The checks compare reports with these statements. `Checked` has defaults for a pure mechanism. A mechanism with more structure,
such as symbols or a hash function, overrides more methods; the checks then find more faults.
"""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, IntArray, Reports
from ldpstream.mechanisms.ratios import Ratios


class Checked(ABC):
    """What a mechanism tells checks. `Mechanism` describes the other attributes.

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
        """(n,) true where report i supports value i: a device with this value supports it with a higher probability."""

    @abstractmethod
    def ratios(self) -> Ratios:
        """The likelihood ratios of the supports of reports, without fake data."""

    def memo_ratios(self) -> Ratios | None:
        """The likelihood ratios of the supports of a memo, as if the memo were sent; None for a one-time mechanism."""
        return None

    def support_chances(self, reports: int = 1) -> tuple[FloatArray, FloatArray]:
        """Probabilities that reports of one memo support a value, (k,) for each value, without fake data.

        Args:
            reports: number of reports, which all support the value: 1 or 2.

        Returns:
            The probabilities if the device encoded the value, and if the device encoded a uniform value.
        """
        a, b, p2, q2 = self.rounds()
        own, other = a * p2**reports + (1 - a) * q2**reports, b * p2**reports + (1 - b) * q2**reports
        return np.full(self.k, own), np.full(self.k, other + (own - other) / self.k)

    @property
    def contrast(self) -> float:
        """Probability that a report supports the device's value, less the smallest one that it supports another value."""
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
        """Numbers that are uniform in [0, m) for devices with these values: (what the number is, numbers, m).

        The numbers come from some of the reports, which are independent.
        """
        return []

    def outcomes(self, reports: Reports) -> IntArray | None:
        """(n,) the column of `Mechanism.channel` of each report; None if the checks need not compare all columns."""
        return None
