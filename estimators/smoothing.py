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

from estimators.local_level import DRIFTS, FLOOR, fresh_variance
from mechanisms.arguments import FloatArray

BoolArray = npt.NDArray[np.bool_]

PRIOR_ROUNDS = 100  # rounds of expectation maximization that fit the prior
MAX_NUMBERS = 2e7  # limit of the numbers that a pass keeps in memory
NEGLIGIBLE = 1e-4  # a q is left out if its weight is below this limit for every value
LEVEL, NOISE, VARIANCE, COVARIANCE, NOISE_VARIANCE = range(5)  # rows of a state: θ, u, Var θ, Cov(θ, u), Var u


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
    scale: FloatArray
    kept: FloatArray
    anew: BoolArray


def smooth(
    observed: FloatArray,
    variance: FloatArray,
    memo_variance: FloatArray | None = None,
    kept: FloatArray | None = None,
    anew: BoolArray | None = None,
) -> Smoothed:
    """Estimates every step's shares from all steps.

    Args:
        observed: (n_steps, k) raw inversions; a row of NaN for a step without reports.
        variance: (n_steps, k) variances of `observed`, above 0 where `observed` is given.
        memo_variance: (n_steps, k) the parts of `variance` that come from memos; None without memos.
        kept: (n_steps,) correlation of the memo noise between each step and the previous one, 0 to 1; None without memos.
        anew: (n_steps, k) bool, true where the level starts anew. For a `Change` found at step t, set row t - `age` to `moved`.

    Raises:
        ValueError: if the shapes differ, a variance is not positive, or the memos' part is outside 0 to `variance`.
    """
    history = _check(observed, variance, memo_variance, kept, anew)
    k = observed.shape[1]
    likelihood = np.zeros((DRIFTS.size, k))
    state = _first((DRIFTS.size, k))
    for t in range(len(observed)):
        state, gained = _forward(state, DRIFTS, history, t)
        likelihood += gained
    weights = _mixed(likelihood)

    mean, square = np.zeros(observed.shape), np.zeros(observed.shape)
    matter = np.flatnonzero(weights.any(axis=1))
    for group in np.array_split(matter, min(matter.size, math.ceil(5 * observed.size * matter.size / MAX_NUMBERS))):
        level, spread = _pass(DRIFTS[group], history)
        mean += (weights[group] * level).sum(axis=1)
        square += (weights[group] * (spread + level**2)).sum(axis=1)
    return Smoothed(mean, np.sqrt(np.maximum(square - mean**2, 0)))


def _check(
    observed: FloatArray,
    variance: FloatArray,
    memo_variance: FloatArray | None,
    kept: FloatArray | None,
    anew: BoolArray | None,
) -> _History:
    if observed.ndim != 2 or not observed.size:
        raise ValueError(f"observed must have the shape (n_steps, k), got {observed.shape}")
    part = np.zeros(observed.shape) if memo_variance is None else memo_variance
    rho = np.ones(len(observed)) if kept is None else kept
    starts = np.zeros(observed.shape, dtype=bool) if anew is None else anew.copy()
    for name, array, shape in (
        ("variance", variance, observed.shape),
        ("memo_variance", part, observed.shape),
        ("kept", rho, observed.shape[:1]),
        ("anew", starts, observed.shape),
    ):
        if array.shape != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {array.shape}")
    given = ~np.isnan(observed)
    if not (variance[given] > 0).all() or not ((part[given] >= 0) & (part[given] <= variance[given])).all():
        raise ValueError("variance must be positive, and memo_variance from 0 to variance")
    if not ((rho >= 0) & (rho <= 1)).all():
        raise ValueError("kept must be from 0 to 1")
    starts[0] = True
    fresh = np.where(given, fresh_variance(variance, part), 1.0)
    return _History(observed, fresh, np.sqrt(np.where(given, part, 0.0)), rho, starts)


def _first(shape: tuple[int, ...]) -> FloatArray:
    state = np.zeros((5, *shape))
    state[NOISE_VARIANCE] = 1
    return state


def _predict(state: FloatArray, q: FloatArray, kept: float, anew: BoolArray) -> FloatArray:
    level, noise, variance, covariance, noise_variance = state
    return np.stack([
        level, kept * noise, np.where(anew, np.inf, variance + q), np.where(anew, 0, kept * covariance),
        noise_variance + (1 - kept**2) * (1 - noise_variance),
    ])  # fmt: skip


def _forward(state: FloatArray, q: FloatArray, history: _History, t: int) -> tuple[FloatArray, FloatArray]:
    """Predicts and observes one step. Returns the new state and the log-likelihood of the observation."""
    observed, fresh, scale = history.observed[t], history.fresh[t], history.scale[t]
    new = _predict(state, q, float(history.kept[t]), history.anew[t])
    level, noise, variance, covariance, noise_variance = new.copy()
    seen, diffuse = ~np.isnan(observed), np.isinf(variance)
    along = np.where(diffuse, 0, variance) + scale * covariance
    noise_along = covariance + scale * noise_variance
    total = along + scale * noise_along + fresh
    error = np.where(seen, observed, 0) - level - scale * noise

    known = seen & ~diffuse
    steps = (along * error, noise_along * error, -(along**2), -along * noise_along, -(noise_along**2))
    for row, change in zip(new, steps):
        np.add(row, change / total, out=row, where=known)
    start = seen & diffuse
    new[LEVEL] = np.where(start, observed - scale * noise, new[LEVEL])
    new[VARIANCE] = np.where(start, fresh + scale**2 * noise_variance, new[VARIANCE])
    new[COVARIANCE] = np.where(start, -scale * noise_variance, new[COVARIANCE])
    return new, np.where(known, -0.5 * (np.log(total) + error**2 / total), 0)


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
    state = _first((q.size, history.observed.shape[1]))
    filtered = np.empty((len(history.observed), *state.shape))
    for t in range(len(filtered)):
        state, _ = _forward(state, q, history, t)
        filtered[t] = state
    smoothed = filtered  # in place: no filtered state is needed once its smoothed state is known
    with np.errstate(invalid="ignore"):  # infinity minus infinity, in places that np.where leaves out
        for t in range(len(filtered) - 2, -1, -1):
            smoothed[t] = _backward(filtered[t], smoothed[t + 1], q, float(history.kept[t + 1]), history.anew[t + 1])
    never = np.isinf(smoothed[:, VARIANCE])
    return np.where(never, np.nan, smoothed[:, LEVEL]), np.where(never, np.nan, smoothed[:, VARIANCE])


def _backward(filtered: FloatArray, after: FloatArray, q: FloatArray, kept: float, anew: BoolArray) -> FloatArray:
    """One step of the pass: filtered + J (smoothed - predicted), with J = (filtered covariance) Fᵀ (predicted covariance)⁻¹.

    F = diag(1, kept). If the level starts anew at the next step, the level's predicted variance is infinite. If the level has
    not been observed yet, its filtered variance is infinite. The smoothed level is then the next step's smoothed level, with a
    variance larger by q.
    """
    predicted = _predict(filtered, q, kept, anew)
    p, c, n = predicted[VARIANCE:]
    unseen = np.isinf(filtered[VARIANCE])
    scalar = unseen | anew  # level and memo noise are uncorrelated in the prediction
    determinant = np.where(scalar, 1, np.where(scalar, 1, p) * n - c**2)
    p_inverse = np.where(scalar, 0, n / determinant)
    c_inverse = np.where(scalar, 0, -c / determinant)
    least = np.finfo(np.float64).tiny
    n_inverse = np.where(scalar, 1 / np.maximum(n, least), np.where(scalar, 1, p) / determinant)
    variance = np.where(unseen, 0, filtered[VARIANCE])
    covariance, noise_variance = filtered[COVARIANCE], filtered[NOISE_VARIANCE]
    j11 = np.where(unseen & ~anew, 1, variance * p_inverse + kept * covariance * c_inverse)
    j12 = variance * c_inverse + kept * covariance * n_inverse
    j21 = covariance * p_inverse + kept * noise_variance * c_inverse
    j22 = covariance * c_inverse + kept * noise_variance * n_inverse

    wait = unseen & ~anew
    infinite = np.isinf(predicted[VARIANCE])
    predicted[VARIANCE] = np.where(infinite, 0, predicted[VARIANCE])
    gap = after - predicted
    gap[VARIANCE] = np.where(infinite, 0, gap[VARIANCE])
    new = filtered.copy()
    new[LEVEL] += j11 * gap[LEVEL] + j12 * gap[NOISE]
    new[NOISE] += j21 * gap[LEVEL] + j22 * gap[NOISE]
    a, b, d = gap[VARIANCE], gap[COVARIANCE], gap[NOISE_VARIANCE]
    new[VARIANCE] = np.where(wait, after[VARIANCE] + q, new[VARIANCE]) + j11**2 * a + 2 * j11 * j12 * b + j12**2 * d
    new[COVARIANCE] += j11 * j21 * a + (j11 * j22 + j12 * j21) * b + j12 * j22 * d
    new[NOISE_VARIANCE] += j21**2 * a + 2 * j21 * j22 * b + j22**2 * d
    return new
