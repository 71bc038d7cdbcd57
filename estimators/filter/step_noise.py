"""Noise of a step's raw inversion, for the filter (`estimators.filter.local_level`)."""

from dataclasses import dataclass

import numpy as np

from ldpstream.estimators.matrix_inversion import inversion_weight
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray

LONG = 2**31  # number of steps after which only lasting noise is left


@dataclass(frozen=True, slots=True)
class StepNoise:
    """Noise of one step's raw inversion, (k,) each.

    Attributes:
        fresh: variance of the noise that is independent between steps.
        lasting: variance of the noise that is the same at every step: from the memos, and from the choice of the people.
        skewness: skewness of the fresh noise; the third moment counts as 0 for mechanisms that are not pure.
    """

    fresh: FloatArray
    lasting: FloatArray
    skewness: FloatArray


def step_noise(levels: list[tuple[Mechanism, int]], shares: FloatArray) -> StepNoise:
    """Returns the noise of `matrix_inversion` at one step.

    The calculation assumes that the same people report at every step, with unchanged values. At a level with `every_steps` = w,
    the lasting noise is that of w times as many people.

    Args:
        levels: each level's mechanism and number of reports at this step; at least one level has reports and distinguishes the
            values.
        shares: (k,) expected shares of all values; `Reading.possible` corrects impossible shares.

    Source: the variance of the mean of W steps, `Reading.inversion_variances`, is fresh / W + lasting.
    """
    fresh, lasting, third, weights = np.zeros((4, shares.size))
    for m, reports in levels:
        if not reports or m.p == m.q:
            continue
        weight = inversion_weight(m, reports)
        f = m.reading.possible(shares)
        least, third_moment = m.reading.fresh_moments(f)
        total, kept = m.reading.inversion_variances(f, 1), m.reading.inversion_variances(f, 1, LONG) / m.every_steps
        fresh += weight**2 * np.maximum(total - kept, least / reports) / reports
        lasting += weight**2 * kept / reports
        third += weight**3 * third_moment / reports**2
        weights += weight
    fresh /= weights**2
    return StepNoise(fresh, lasting / weights**2, third / weights**3 / fresh**1.5)
