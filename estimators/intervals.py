"""Whether an estimate's normal intervals can be trusted to cover.

Standard errors describe noise, not bias. Matrix inversion has none, so its intervals cover. A likelihood's maximum, IBU and a
post-processed inversion keep every frequency at zero or above. Noise that would put rare values below zero then comes off the
frequent ones: with many values and few reports by several standard errors. IBU, stopped on its way from uniform, adds to that.
"""

import numpy as np

from estimators.estimate import Estimate, Group
from estimators.matrix_inversion import combined_inversion
from mechanisms.arguments import FloatArray

ROUNDING = 1e-7  # standard errors below this are taken for it: iterations end about so near to their limit
CLEAR = 2.0  # standard errors above zero: a frequent value
MAX_BIAS = 0.4  # standard errors; a normal interval of 95 % that is off by so much still covers 93 %


def free_maximum(groups: list[Group], raw: Estimate, steps: int = 1) -> FloatArray:
    """Where the maximum of the likelihood of the support counts would lie if frequencies might be negative, to first order.

    The mean of the groups' inversions with the weights h = n (p-q)² / γ of the likelihood, made to sum to 1 by shares of 1/h.
    For many reports the maximum lies there.

    Args:
        groups: mechanisms with their tables; no location mechanisms.
        raw: their matrix inversion.
        steps: as in `matrix_inversion`.

    Returns:
        (k,) frequencies; NaN where the counts tell nothing.
    """
    weights, weighted = np.zeros(raw.frequencies.size), np.zeros(raw.frequencies.size)
    for m, table in groups:
        if table.n and m.p != m.q:
            gamma = m.q + (m.p - m.q) * np.clip(raw.frequencies, 0, 1)
            h = table.n * (m.p - m.q) ** 2 / np.maximum(gamma, 1e-100)
            weights += h
            own = raw if len(groups) == 1 else combined_inversion([(m, table)], steps=steps)
            weighted += h * own.frequencies
    if not weights.any():
        return raw.frequencies
    frequencies = weighted / weights
    return np.asarray(frequencies - (frequencies.sum() - 1) / weights / (1 / weights).sum())


def bias(estimate: Estimate, raw: Estimate, free: FloatArray) -> float:
    """How far the frequent values of an estimate lie from where they would be if frequencies might be negative.

    Args:
        estimate: any estimate from some counts.
        raw: the matrix inversion of the same counts, not post-processed.
        free: (k,) their `free_maximum`.

    Returns:
        The distance to the nearer one of the two, in the estimate's standard errors: the largest one among the most frequent
        value and all that are at least 2 standard errors above zero. NaN where the counts tell nothing.
    """
    if np.isnan(free).any() or np.isnan(estimate.frequencies).any():
        return float("nan")
    errors = np.maximum(estimate.standard_errors, ROUNDING)
    frequent = free >= CLEAR * errors
    frequent[free.argmax()] = True
    moved = np.minimum(np.abs(estimate.frequencies - free), np.abs(estimate.frequencies - raw.frequencies))
    return float((moved / errors)[frequent].max())
