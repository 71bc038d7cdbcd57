"""A survey's claim on a wallet: bounds of the privacy loss that a device's answers can reach, known before the first answer.

If two histories differ only at steps with n reports of an attribute, the loss between them is at most n times
`Claims.eps_per_report`.

- A window of W seconds touches at most ⌈W / step⌉ + 1 steps.
- For ever, n is `lifetime_reports`, or the number of reports in all steps of the survey if that is less.

The attributes' bounds add up under spl; otherwise the largest one counts.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ldpstream.surveys import Survey

if TYPE_CHECKING:
    from ldpstream.mechanisms import Mechanism

MOST_REPORTS = 1000  # more reports of one-time levels count as certainty, or by their whole loss


@dataclass(frozen=True, slots=True)
class Claim:
    """Bounds of the loss of all reports of one survey, in nats.

    Attributes:
        per_window: between histories that differ only within the wallet's window; 0 for a wallet without a window.
        for_ever: between any two histories; infinite if the number of reports has no limit.
        losses: `eps_per_report` of each attribute, at the chosen level.
    """

    per_window: float
    for_ever: float
    losses: tuple[float, ...]


def claim(survey: Survey, levels: Sequence[int], window_s: int | None) -> Claim:
    """Returns a survey's claim.

    Args:
        window_s: length W of the wallet's window in seconds, at least 1; None for a wallet without a window.
    """
    chosen = [survey.mechanisms[a][level].device for a, level in enumerate(levels)]
    losses = tuple(m.claims.eps_per_report for m in chosen)
    adds_up = survey.collection == "spl"
    last = math.inf if survey.n_steps is None else survey.n_steps
    in_window = 0 if window_s is None else min(touched_steps(window_s, survey.step_seconds), last)
    per_window, for_ever = (
        together([_reports_in(m, steps) * eps for m, eps in zip(chosen, losses)], adds_up) for steps in (in_window, last)
    )
    return Claim(per_window, for_ever, losses)


def largest_loss(survey: Survey, levels: Sequence[int]) -> float:
    """Returns a bound of the loss of all reports while the values stay the same, in nats; infinite if nothing bounds it.

    If the values of a memoized level change, the loss can be larger.
    """
    return together([eps * n for eps, n in losses(survey, levels)], survey.collection == "spl")


def losses(survey: Survey, levels: Sequence[int]) -> list[tuple[float, float]]:
    """Returns for each attribute the loss ε of one report, and the largest number of reports while the value stays the same.

    All reports of a memoized level count as one report with the loss of its memo.
    """
    last, found = math.inf if survey.n_steps is None else survey.n_steps, []
    for a, chosen in enumerate(levels):
        level = survey.attributes[a].levels[chosen]
        if level.eps is None:
            found.append(((level.eps_inf or 0.0) / survey.share, 1.0))
        else:
            found.append((level.eps / survey.share, _reports_in(survey.mechanisms[a][chosen].device, last)))
    return found


def guess_bound(k: int, made: Sequence[tuple[float, float]], adds_up: bool) -> float:
    """Returns an upper bound of the chance of a right guess among k equally likely values.

    n reports with the loss ε reveal at most as much as n answers of yes or no, each right with probability h = e^ε / (1 + e^ε).
    If j of them are right, their loss is l_j = (2j-n) ε. Let p_j be the binomial probability of j. For every j,

        chance <= (A x + 1) / (x + 1),    x = (k-1) e^{-l_j},    A = Σ_{i>j} p_i (1 - e^{l_j - l_i})

    For j = n this is the bound e^{nε} / (e^{nε} + k - 1), which follows from the loss alone.

    Args:
        made: for each attribute, ε and n, as `losses` returns them.
        adds_up: true if the device answers all attributes; false if it answers one.

    Source: Kairouz, Oh and Viswanath 2015, Theorem 3.4 (these answers are the worst reports); `ledger.loss_distribution`.
    """
    worst = [(max(eps for eps, _ in made), sum(n for _, n in made))] if adds_up else made
    of_loss = 1 / (1 + (k - 1) * math.exp(-together([eps * n for eps, n in made], adds_up)))
    return min(of_loss, max(_guess_of_reports(k, eps, n) for eps, n in worst))


def _guess_of_reports(k: int, eps: float, n: float) -> float:
    if n > MOST_REPORTS:
        return 1.0
    h, back = 1 / (1 + math.exp(-eps)), math.exp(-eps)
    bound, chance, true, false = 1.0, h ** int(n), 0.0, 0.0  # p_j, and the two sums of A
    for j in range(int(n), (int(n) - 1) // 2, -1):  # the best j has a loss of 0 or more
        x = (k - 1) * math.exp((n - 2 * j) * eps)
        bound = min(bound, ((true - false) * x + 1) / (x + 1))
        true, false = true + chance, (false + chance) * back**2
        chance *= j / (n - j + 1) * back
    return bound


def touched_steps(window_s: int, step_seconds: int) -> int:
    """Returns the largest number of steps that a window of this length can touch."""
    return -(-window_s // step_seconds) + 1


def together(losses: Sequence[float], adds_up: bool) -> float:
    """Returns the loss of all attributes together: the sum under spl, else the largest."""
    return added(losses) if adds_up else max(losses)


def added(losses: Iterable[float]) -> float:
    total = 0.0
    for loss in losses:
        total += loss
    return total


def _reports_in(m: "Mechanism", steps: float) -> float:
    if steps == math.inf:
        return math.inf if m.lifetime_reports is None else m.lifetime_reports
    return m.reports_in(int(steps)) if steps else 0
