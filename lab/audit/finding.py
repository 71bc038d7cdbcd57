"""Results of one attack: an audited loss, and a mechanism broken on purpose."""

from dataclasses import dataclass
from typing import Literal

Loss = Literal["eps_1", "eps_t", "eps_inf", "eps_window", "eps_sequence", "eps_lifetime"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One audited loss.

    Attributes:
        t: number of reports; 0 for the memo.
        bound: audited lower bound, in nats.
        pair: the numbers of the two inputs a and b that the attack distinguished; (0, 1) for a spaced level.
        hits, false_hits: counts of the chosen event among the counted reports of a and of b.
    """

    path: str
    loss: Loss
    t: int
    claimed: float
    bound: float
    pair: tuple[int, int]
    hits: int
    false_hits: int
    n: int

    @property
    def kept(self) -> bool:
        return self.bound <= self.claimed


@dataclass(frozen=True, slots=True)
class Control:
    fault: str
    mechanism: str
    finding: Finding

    @property
    def caught(self) -> bool:
        return not self.finding.kept
