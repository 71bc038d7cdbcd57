"""Smooths a stored history by the pass of Rauch, Tung and Striebel (RTS): estimates each step from all steps.

The model is that of `estimators.local_level`, with one q per value for the whole history. The result is the mixture over all q,
not the curve of the likeliest q: the intervals of the likeliest q ignore that q is uncertain. The mixture needs one pass for
every q whose weight is not negligible, and only the memory of one pass. The weight of q is proportional to π(q) L_j(q), with
the full likelihood of value j and the prior π fitted to all values.

Source: Rauch, Tung and Striebel 1965. A level that starts anew has an infinite variance before the observation; the formulas
are the exact limits.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldpstream.estimators.local_level import DRIFTS, FLOOR, LEAST_VARIANCE
from ldpstream.mechanisms.arguments import FloatArray

BoolArray = npt.NDArray[np.bool_]

PRIOR_ROUNDS = 100  # rounds of expectation maximization that fit the prior
MAX_NUMBERS = 2e7  # limit of the numbers that a pass keeps in memory
NEGLIGIBLE = 1e-4  # a q is left out if its weight is below this limit for every value


@dataclass(frozen=True, slots=True)
class Smoothed:
    """The smoothed curves.

    Attributes:
        frequencies: (n_steps, k) estimated shares; NaN for a level that was never observed.
        standard_errors: (n_steps, k) standard errors of `frequencies`.
    """

    frequencies: FloatArray
    standard_errors: FloatArray


@dataclass(frozen=True, slots=True)
class _History:
    observed: FloatArray
    fresh: FloatArray
    moves: FloatArray  # variance of the change of the lasting noise at each step, as in `estimators.local_level`
    anew: BoolArray


def smooth(
    observed: FloatArray, fresh: FloatArray, lasting: FloatArray | None = None, anew: BoolArray | None = None
) -> Smoothed:
    """Estimates every step's shares from all steps.

    Args:
        observed: (n_steps, k) raw inversions; a row of NaN for a step without reports.
        fresh: (n_steps, k) variances of the fresh noise, at least 0 where `observed` is given.
        lasting: (n_steps, k) variances of the lasting noise, unused in rows without reports; None for 0.
        anew: (n_steps, k) bool, true where the level starts anew. For a `Change`, set the row of its `step` to `moved`.

    Raises:
        ValueError: if the shapes differ or a variance is negative.
    """
    common = np.zeros(observed.shape) if lasting is None else lasting.copy()
    history = _check(observed, fresh, common, anew)
    k = observed.shape[1]
    likelihood = np.zeros((DRIFTS.size, k))
    level, variance = np.zeros((2, DRIFTS.size, k))
    for t in range(len(observed)):
        level, variance, gained = _forward(level, variance, DRIFTS, history, t)
        likelihood += gained
    weights = _mixed(likelihood)

    mean, square = np.zeros(observed.shape), np.zeros(observed.shape)
    matter = np.flatnonzero(weights.any(axis=1))
    for group in np.array_split(matter, min(matter.size, math.ceil(2 * observed.size * matter.size / MAX_NUMBERS))):
        level, variance = _pass(DRIFTS[group], history)
        mean += (weights[group] * level).sum(axis=1)
        square += (weights[group] * (variance + level**2)).sum(axis=1)
    return Smoothed(mean, np.sqrt(np.maximum(square - mean**2, 0) + common))


def _check(observed: FloatArray, fresh: FloatArray, lasting: FloatArray, anew: BoolArray | None) -> _History:
    """Checks the arguments. Rows of `lasting` without reports get the values of the row before."""
    if observed.ndim != 2 or not observed.size:
        raise ValueError(f"observed must have the shape (n_steps, k), got {observed.shape}")
    starts = np.zeros(observed.shape, dtype=bool) if anew is None else anew.copy()
    for name, array in (("fresh", fresh), ("lasting", lasting), ("anew", starts)):
        if array.shape != observed.shape:
            raise ValueError(f"{name} must have the shape {observed.shape}, got {array.shape}")
    seen = ~np.isnan(observed)
    if not ((fresh[seen] >= 0).all() and (lasting[seen] >= 0).all()):
        raise ValueError("fresh and lasting must be at least 0 where observed is given")
    for t in range(1, len(observed)):
        lasting[t] = np.where(seen[t], lasting[t], lasting[t - 1])
    starts[0] = True
    moves = np.abs(np.diff(lasting, axis=0, prepend=lasting[:1]))
    return _History(observed, np.where(seen, np.maximum(fresh, LEAST_VARIANCE), 1.0), moves, starts)


def _forward(
    level: FloatArray, variance: FloatArray, q: FloatArray, history: _History, t: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Predicts and observes one step. Returns level, variance, and the log-likelihood of the observation."""
    observed, fresh = history.observed[t], history.fresh[t]
    variance = np.where(history.anew[t], np.inf, variance + q + history.moves[t])
    seen, diffuse = ~np.isnan(observed), np.isinf(variance)
    known, start = seen & ~diffuse, seen & diffuse
    before = np.where(diffuse, 0, variance)
    total = before + fresh
    error = np.where(seen, observed, 0) - level
    gain = before / total
    level = np.where(known, level + gain * error, np.where(start, observed, level))
    variance = np.where(known, gain * fresh, np.where(start, fresh, variance))
    return level, variance, np.where(known, -0.5 * (np.log(total) + error**2 / total), 0)


def _mixed(likelihood: FloatArray) -> FloatArray:
    """Returns the weight of each q for each value, (DRIFTS.size, k)."""
    relative = np.exp(likelihood - likelihood.max(axis=0))
    prior = np.full((DRIFTS.size, 1), 1 / DRIFTS.size)
    for _ in range(PRIOR_ROUNDS):
        weights = prior * relative
        weights /= weights.sum(axis=0)
        prior = (1 - FLOOR) * weights.mean(axis=1, keepdims=True) + FLOOR / DRIFTS.size
    weights[(weights < NEGLIGIBLE).all(axis=1)] = 0
    return np.asarray(weights / weights.sum(axis=0))


def _pass(q: FloatArray, history: _History) -> tuple[FloatArray, FloatArray]:
    """Returns the smoothed level and its variance, (n_steps, g, k) each, for each of the g values in q, (g, 1)."""
    shape = (len(history.observed), q.size, history.observed.shape[1])
    levels, variances = np.empty(shape), np.empty(shape)
    level, variance = np.zeros((2, *shape[1:]))
    for t in range(len(levels)):
        level, variance, _ = _forward(level, variance, q, history, t)
        levels[t], variances[t] = level, variance
    with np.errstate(invalid="ignore"):  # infinity minus infinity, in places that np.where leaves out
        for t in range(len(levels) - 2, -1, -1):
            after = levels[t + 1], variances[t + 1]
            levels[t], variances[t] = _backward(levels[t], variances[t], after, q + history.moves[t + 1], history.anew[t + 1])
    never = np.isinf(variances)
    return np.where(never, np.nan, levels), np.where(never, np.nan, variances)


def _backward(
    level: FloatArray, variance: FloatArray, after: tuple[FloatArray, FloatArray], q: FloatArray, anew: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """One step of the pass: filtered + J (smoothed - predicted), with J = (filtered variance) / (predicted variance).

    If the level starts anew at the next step, J = 0. If the level has not been observed yet, its variance is infinite and J is
    1: the smoothed level is then the next step's smoothed level, with a variance larger by q.
    """
    next_level, next_variance = after
    unseen = np.isinf(variance)
    predicted = np.where(unseen, 1, np.maximum(variance + q, np.finfo(np.float64).tiny))
    gain = np.where(anew, 0, np.where(unseen, 1, variance / predicted))
    carried = np.where(unseen, next_variance + q, variance + gain**2 * (next_variance - predicted))
    return np.where(anew, level, level + gain * (next_level - level)), np.where(anew, variance, carried)
