"""Noise of a step's raw inversion: what the filter (`estimators.local_level`) must know about an observation."""

from dataclasses import dataclass

import numpy as np

from ldpstream.estimators.matrix_inversion import inversion_weight
from ldpstream.estimators.post_processing import norm_sub
from ldpstream.mechanisms import ChannelMechanism, Mechanism
from ldpstream.mechanisms.arguments import FloatArray

LONG = 2**31  # number of steps after which only lasting noise is left


@dataclass(frozen=True, slots=True)
class StepNoise:
    """Noise of one step's raw inversion, (k,) each.

    Attributes:
        fresh: variance of the noise that is independent between steps.
        lasting: variance of the noise that is the same at every step: from the memos, and from the choice of the people.
        skewness: skewness of the fresh noise; 0 for location mechanisms.
    """

    fresh: FloatArray
    lasting: FloatArray
    skewness: FloatArray


def step_noise(levels: list[tuple[Mechanism, int]], shares: FloatArray) -> StepNoise:
    """Returns the noise of `combined_inversion` at one step.

    The same people report at every step, with unchanged values. At a level with `every_steps` = w, the people of a step report
    again after w steps. Over many steps, their lasting noise is that of w times as many people. The rest is fresh.

    The fresh noise is at least that of one report more or less. Without this limit, a value that is expected in less than one
    report would have a tiny variance and a large skewness, and a single report would be a jump.

    Args:
        levels: each level's mechanism and number of reports at this step; some level has reports and distinguishes the values.
        shares: (k,) expected shares of all values; shares outside [0, 1] are clipped.

    Source: the variance of the mean of W steps, `Mechanism.inversion_variances`, is fresh / W + lasting.
    """
    fresh, lasting, third, weights = np.zeros((4, shares.size))
    for m, reports in levels:
        if not reports or m.p == m.q:
            continue
        weight = inversion_weight(m, reports)
        f = norm_sub(shares, 1.0) if isinstance(m, ChannelMechanism) else np.clip(shares, 0, 1)
        total, kept = m.inversion_variances(f, 1), m.inversion_variances(f, 1, LONG) / m.every_steps
        fresh += weight**2 * np.maximum(total - kept, _least(m) / reports) / reports
        lasting += weight**2 * kept / reports
        third += weight**3 * _third_moment(m, f) / reports**2
        weights += weight
    fresh /= weights**2
    return StepNoise(fresh, lasting / weights**2, third / weights**3 / fresh**1.5)


def _least(m: Mechanism) -> float:
    """Returns the square of what one report can add to a share, times the square of the number of reports."""
    return 1.0 if isinstance(m, ChannelMechanism) else 1 / (m.p - m.q) ** 2


def _third_moment(m: Mechanism, shares: FloatArray) -> FloatArray:
    """Returns the third central moment of the fresh noise of one person's contribution, (k,).

    A person's report supports the value with the probability p₂ or q₂ (`Mechanism.rounds`), and adds 1 / (p - q) to the share.
    A variable that is 1 with probability c and otherwise 0 has the third central moment c (1 - c) (1 - 2c).
    """
    if isinstance(m, ChannelMechanism):
        return np.zeros(shares.size)
    encoded = m.encoded(shares)
    memo_p, memo_q, p2, q2 = m.device.rounds()
    hit = encoded * memo_p + (1 - encoded) * memo_q
    if m.every_steps > 1:  # other people at each step: the value and the memo vary, too
        chance = hit * p2 + (1 - hit) * q2
        third = chance * (1 - chance) * (1 - 2 * chance)
    else:
        third = hit * p2 * (1 - p2) * (1 - 2 * p2) + (1 - hit) * q2 * (1 - q2) * (1 - 2 * q2)
    return np.asarray(third / (m.p - m.q) ** 3)
