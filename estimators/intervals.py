"""Whether an estimate's normal intervals can be trusted to cover.

Standard errors describe noise, not bias. Matrix inversion has none, so its intervals cover. A likelihood's maximum, IBU and a
post-processed inversion keep every frequency at zero or above. Noise that would put rare values below zero then comes off the
frequent ones: with many values and few reports by several standard errors. IBU, stopped on its way from uniform, adds to that.
"""

import numpy as np

from estimators.estimate import Estimate

ROUNDING = 1e-7  # standard errors below this are taken for it: iterations end about so near to their limit
CLEAR = 2.0  # standard errors above zero: a frequent value
MAX_BIAS = 0.4  # standard errors; a normal interval of 95 % that is off by so much still covers 93 %


def bias(estimate: Estimate, raw: Estimate) -> float:
    """How far the frequent values of an estimate lie from where they would be if frequencies might be negative.

    The comparison is the matrix inversion: as it is, or made to sum to 1 by shares of its variances, whichever is nearer. For
    many reports the maximum of the likelihood lies where the latter does, so the bias then is near 0.

    Args:
        estimate: any estimate from some counts.
        raw: the matrix inversion of the same counts, not post-processed.

    Returns:
        The largest distance, in standard errors of the inversion, among the most frequent value and all that are at least 2
        standard errors above zero; NaN where one of the two says nothing.
    """
    errors = np.maximum(raw.standard_errors, ROUNDING)
    variance = errors**2
    free = raw.frequencies - (raw.frequencies.sum() - 1) * variance / variance.sum()
    if np.isnan(free).any() or np.isnan(estimate.frequencies).any():
        return float("nan")
    frequent = free >= CLEAR * errors
    frequent[free.argmax()] = True
    moved = np.minimum(np.abs(estimate.frequencies - free), np.abs(estimate.frequencies - raw.frequencies))
    return float((moved / errors)[frequent].max())
