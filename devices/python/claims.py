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
    last = math.inf if survey.n_steps is None else survey.n_steps
    losses = []
    for a, chosen in enumerate(levels):
        level = survey.attributes[a].levels[chosen]
        reports = _reports_in(survey.mechanisms[a][chosen].device, last)
        losses.append((reports * level.eps if level.eps is not None else level.eps_inf or 0.0) / survey.share)
    return together(losses, survey.collection == "spl")


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
