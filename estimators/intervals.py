"""Bias of an estimate.

For a pure mechanism, matrix inversion without post-processing has no bias.
"""

import numpy as np

from ldpstream.estimators.estimate import Estimate, Group
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.mechanisms.arguments import FloatArray

ROUNDING = 1e-7  # smallest standard error that `bias` uses: an iteration ends at about this distance from its limit
CLEAR = 2.0  # a frequent value is at least this many standard errors above zero
MAX_BIAS = 0.4  # in standard errors; a 95 % normal interval with this bias still has 93 % coverage


def free_maximum(groups: list[Group], raw: Estimate) -> FloatArray:
    """First-order approximation of the frequencies that maximise the likelihood of the support counts.

    The frequencies have the sum 1. They may be negative.

    Returns:
        (k,) frequencies; NaN if the counts carry no information.
    """
    weights, weighted = np.zeros(raw.frequencies.size), np.zeros(raw.frequencies.size)
    for m, table in groups:
        if table.n and m.p != m.q:
            gamma = m.q + (m.p - m.q) * np.clip(raw.frequencies, 0, 1)
            h = table.n * (m.p - m.q) ** 2 / np.maximum(gamma, 1e-100)
            weights += h
            own = raw if len(groups) == 1 else matrix_inversion(m, table)
            weighted += h * own.frequencies
    if not weights.any():
        return raw.frequencies
    frequencies = weighted / weights
    return np.asarray(frequencies - (frequencies.sum() - 1) / weights / (1 / weights).sum())


def bias(estimate: Estimate, raw: Estimate, free: FloatArray) -> float:
    """Largest distance of an estimate's frequent values from the raw inversion or the free maximum, whichever is nearer.

    Args:
        free: (k,) the `free_maximum` of the same counts.

    Returns:
        The distance in the estimate's standard errors. Only the most frequent value and values at least 2 standard errors above
        zero count. NaN if the counts carry no information.
    """
    if np.isnan(free).any() or np.isnan(estimate.frequencies).any():
        return float("nan")
    errors = np.maximum(estimate.standard_errors, ROUNDING)
    frequent = free >= CLEAR * errors
    frequent[free.argmax()] = True
    moved = np.minimum(np.abs(estimate.frequencies - free), np.abs(estimate.frequencies - raw.frequencies))
    return float((moved / errors)[frequent].max())
