"""Covariance matrices of a likelihood's score, for mechanisms whose covariance has no exact formula in a few vectors."""

from __future__ import annotations

from functools import lru_cache

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.arrays import np
from ldpstream.mechanisms.families.linear_pool import LinearPool

MAX_DENSE_K = 128
Chain = tuple[float, float, float, float]
LEAST_CHANCE = 1e-9  # limits the weight of rarer outputs, which nearly prove that somebody has a value


def channel_moments(given: FloatArray, f: FloatArray, steps: int) -> tuple[FloatArray, FloatArray]:
    """`Reading.score_moments` of a channel; `given` has the axes value and output."""
    likely = f @ given
    tilts = (given - given.mean(axis=0)).T
    score = tilts / np.maximum(likely, LEAST_CHANCE)[:, None]
    once, kept = _covariance(likely, score), _covariance(f, given @ score)
    return tilts.T @ score, _of_steps(once, kept, steps)


def hashing_moments(
    pool: LinearPool, p: float, other: float, rounds: Chain | None, f: FloatArray, steps: int, exact: bool
) -> tuple[FloatArray, FloatArray]:
    """`Reading.score_moments` of local hashing.

    Args:
        pool: the hash functions.
        p, other: Pr[report is y | hashed symbol is y] and Pr[report is y | hashed symbol is not y].
        rounds: p1, q1, p2 and q2 of the symbols, for a memoized mechanism; None for a one-time mechanism.
    """
    k, g = f.size, pool.g
    hit, weight = _hits(pool)  # axes: symbol, function, value
    tilt = (p - other) * hit
    given = other + tilt
    chance = given @ f  # probability of a symbol under a function
    likely = weight * chance
    if exact:
        score = tilt / np.maximum(chance, LEAST_CHANCE)[..., None]
        hessian = np.einsum("yau,yav->uv", weight[:, None] * tilt, score, optimize=True)
    else:
        slope = (p - 1 / g) / (1 / g + (p - 1 / g) * f)
        score = hit * slope
        hessian = np.diag((p - 1 / g) * slope)
    once = _covariance(likely.ravel(), score.reshape(-1, k))
    if steps == 1:
        return hessian, once
    if rounds is None:
        kept = _covariance(f, (weight[:, None] * given).reshape(-1, k).T @ score.reshape(-1, k))
    else:
        p1, q1, p2, q2 = rounds
        memo = weight * (q1 + (p1 - q1) * (hit @ f))  # probability of a memo under a function
        known = q2 * score.sum(axis=0) + (p2 - q2) * score  # the score's mean, given the function and the memo
        kept = _covariance(memo.ravel(), known.reshape(-1, k))
    return hessian, _of_steps(once, kept, steps)


def lines(pool: LinearPool, f: FloatArray) -> FloatArray:
    """(k, k) L_uv, the mass f of the values on the line through two different values u and v: Pr[u, v and a value drawn from f
    have one symbol] is 1/g² + (g-1) L_uv / g²."""
    hit, weight = _hits(pool)
    columns = hit.reshape(-1, f.size)
    together = (columns * (weight * (hit @ f)).reshape(-1, 1)).T @ columns
    return np.asarray((pool.g**2 * together - 1) / (pool.g - 1))


def _of_steps(once: FloatArray, kept: FloatArray, steps: int) -> FloatArray:
    return np.asarray(steps * (once - kept) + steps**2 * kept)


def _covariance(chance: FloatArray, vectors: FloatArray) -> FloatArray:
    mean = chance @ vectors
    return np.asarray((chance[:, None] * vectors).T @ vectors - np.outer(mean, mean))


@lru_cache(maxsize=64)
def _hits(pool: LinearPool) -> tuple[FloatArray, FloatArray]:
    k, g = pool.k, pool.g
    columns = np.array([pool.radon(unit) for unit in np.eye(k)]).T  # axes: cell, value
    blocks, start = [], 0
    for j in reversed(range(pool.m)):
        end = start + g ** (j + 1)
        blocks.append(columns[start:end].reshape(g, g**j, k))
        start = end
    zero = np.zeros((g, 1, k))
    zero[0] = 1.0
    hit = np.concatenate([*blocks, zero], axis=1)
    weight = np.full(hit.shape[1], (g - 1) / pool.size)
    weight[-1] = 1 / pool.size
    return hit, weight
