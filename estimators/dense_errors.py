"""Exact covariance matrices of a likelihood's score, for mechanisms whose covariance has no exact formula in a few vectors.

A local-hashing report that supports one value also supports other values, in a pattern that the pool of functions fixes. The
scores of three values are therefore dependent, both for the support counts and for the true likelihood. The covariance of the
scores is a sum over all functions and symbols. For a location mechanism the covariance is a sum over all outputs. The cost is
O(outputs · k²), so this module is for small domains only.
"""

from functools import lru_cache

import numpy as np

from ldpstream.mechanisms import ChannelMechanism, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.local_hashing import LocalHashing, LongitudinalHashing

MAX_DENSE_K = 128
LEAST_CHANCE = 1e-9  # limits the weight of rarer outputs: one such output nearly proves that somebody has a value


def is_dense(m: Mechanism) -> bool:
    """True if this module computes the mechanism's covariances."""
    return m.k <= MAX_DENSE_K and (
        isinstance(m, ChannelMechanism) or (isinstance(m, (LocalHashing, LongitudinalHashing)) and m.fakes == 1)
    )


def score_moments(m: Mechanism, f: FloatArray, steps: int, exact: bool) -> tuple[FloatArray, FloatArray]:
    """Returns the Hessian of one report, and the covariance of one person's scores over some steps, at f.

    Scores of the true likelihood omit the part that is the same for all values. If frequencies sum to 1, the common part has no
    effect. For small ε the common part would use up all digits of double precision.

    Args:
        m: a mechanism for which `is_dense` is true.
        f: (k,) true frequencies.
        steps: number of reports of one person with an unchanged value.
        exact: true for the score of the true likelihood, false for the score of the support counts.

    Returns:
        Two (k, k) matrices: minus the expected Hessian of one report, and the covariance of the sum of one person's scores.
    """
    if isinstance(m, ChannelMechanism):
        given = m.channel()  # axes: value, output
        likely = f @ given
        tilts = (given - given.mean(axis=0)).T
        score = tilts / np.maximum(likely, LEAST_CHANCE)[:, None]
        return tilts.T @ score, _person(likely, score, f, given, steps)
    assert isinstance(m, (LocalHashing, LongitudinalHashing))
    hit, weight = _hits(m)  # axes: symbol, function, value
    k = m.k
    tilt = (m.p - m.other_symbol) * hit
    given = m.other_symbol + tilt
    chance = given @ f  # probability of a symbol under a function
    likely = weight * chance
    if exact:
        score = tilt / np.maximum(chance, LEAST_CHANCE)[..., None]
        hessian = np.einsum("yau,yav->uv", weight[:, None] * tilt, score, optimize=True)
    else:
        slope = (m.p - m.q) / (m.q + (m.p - m.q) * f)
        score = hit * slope
        hessian = np.diag((m.p - m.q) * slope)
    if isinstance(m, LocalHashing):
        flat = (weight[:, None] * given).reshape(-1, k)
        return hessian, _person(likely.ravel(), score.reshape(-1, k), f, flat.T, steps)
    memo = weight * (m.q1 + (m.p1 - m.q1) * (hit @ f))  # probability of a memo under a function
    known = m.q2 * score.sum(axis=0) + (m.p2 - m.q2) * score  # the score's mean, given the function and the memo
    kept = _covariance(memo.ravel(), known.reshape(-1, k))
    once = _covariance(likely.ravel(), score.reshape(-1, k))
    return hessian, steps * (once - kept) + steps**2 * kept


def _person(likely: FloatArray, score: FloatArray, f: FloatArray, given: FloatArray, steps: int) -> FloatArray:
    """Covariance of the sum of a person's scores, if the value stays the same and every report has fresh noise."""
    kept = _covariance(f, given @ score)
    return np.asarray(steps * (_covariance(likely, score) - kept) + steps**2 * kept)


def _covariance(chance: FloatArray, vectors: FloatArray) -> FloatArray:
    """Covariance of a random row of `vectors`; a row is drawn with the given probabilities."""
    mean = chance @ vectors
    return np.asarray((chance[:, None] * vectors).T @ vectors - np.outer(mean, mean))


@lru_cache(maxsize=64)
def _hits(m: LocalHashing | LongitudinalHashing) -> tuple[FloatArray, FloatArray]:
    """Returns indicators [symbol, function, value] and the functions' probabilities.

    An indicator is 1 if the function hashes the value to the symbol.

    One function represents all its multiples. Its probability is the sum of the multiples' probabilities for a device that
    draws uniformly.
    """
    pool, g = m.pool, m.g
    columns = np.array([pool.radon(unit) for unit in np.eye(m.k)]).T  # axes: cell, value
    blocks, start = [], 0
    for j in reversed(range(pool.m)):
        end = start + g ** (j + 1)
        blocks.append(columns[start:end].reshape(g, g**j, m.k))
        start = end
    zero = np.zeros((g, 1, m.k))
    zero[0] = 1.0
    hit = np.concatenate([*blocks, zero], axis=1)
    weight = np.full(hit.shape[1], (g - 1) / pool.size)
    weight[-1] = 1 / pool.size
    return hit, weight
