"""Covariances of the score of a likelihood, as matrices: exact where no formula of a few vectors is.

A report of local hashing that supports one value supports others with it, in a pattern that the pool of functions fixes. So
the scores of its support counts, and those of its true likelihood, depend on each other in threes; their covariance is added
up over all functions and symbols, and that of a location mechanism over its outputs. O(outputs · k²): for small domains.
"""

from functools import lru_cache

import numpy as np

from mechanisms import ChannelMechanism, Mechanism
from mechanisms.arguments import FloatArray
from mechanisms.local_hashing import LocalHashing, LongitudinalHashing

MAX_DENSE_K = 128
LEAST_CHANCE = 1e-9  # of an output: one that is rarer says all but surely that a value is there, and its weight is held so low


def is_dense(m: Mechanism) -> bool:
    """Whether a mechanism's covariances are computed here."""
    return m.k <= MAX_DENSE_K and (
        isinstance(m, ChannelMechanism) or (isinstance(m, (LocalHashing, LongitudinalHashing)) and m.fakes == 1)
    )


def score_moments(m: Mechanism, f: FloatArray, steps: int, exact: bool) -> tuple[FloatArray, FloatArray]:
    """What one report, and one person's reports over some steps, do to the score at f.

    Scores of the true likelihood are given without what is the same for all values, which no frequencies that sum to 1 can
    tell, and which at a small budget is all that double precision would keep.

    Args:
        m: a mechanism for which `is_dense` holds.
        f: (k,) true frequencies.
        steps: reports of the same person of an unchanged value.
        exact: whether the score is the true likelihood's, else that of the support counts.

    Returns:
        Minus the expected Hessian of one report, (k, k); and the covariance of the sum of the scores of one person, (k, k).
    """
    if isinstance(m, ChannelMechanism):
        given = m.channel()  # [value, output]
        likely = f @ given
        tilts = (given - given.mean(axis=0)).T
        score = tilts / np.maximum(likely, LEAST_CHANCE)[:, None]
        return tilts.T @ score, _person(likely, score, f, given, steps)
    assert isinstance(m, (LocalHashing, LongitudinalHashing))
    hit, weight = _hits(m)  # [symbol, function, value]
    k = m.k
    tilt = (m.p - m.other_symbol) * hit
    given = m.other_symbol + tilt
    chance = given @ f  # of a symbol under a function
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
    memo = weight * (m.q1 + (m.p1 - m.q1) * (hit @ f))  # of a memo under a function
    known = m.q2 * score.sum(axis=0) + (m.p2 - m.q2) * score  # the score's mean given function and memo
    kept = _covariance(memo.ravel(), known.reshape(-1, k))
    once = _covariance(likely.ravel(), score.reshape(-1, k))
    return hessian, steps * (once - kept) + steps**2 * kept


def _person(likely: FloatArray, score: FloatArray, f: FloatArray, given: FloatArray, steps: int) -> FloatArray:
    """Covariance of a person's scores, with fresh noise in every report: only the value stays."""
    kept = _covariance(f, given @ score)
    return np.asarray(steps * (_covariance(likely, score) - kept) + steps**2 * kept)


def _covariance(chance: FloatArray, vectors: FloatArray) -> FloatArray:
    """Of a vector that is a row of `vectors` with the given chances."""
    mean = chance @ vectors
    return np.asarray((chance[:, None] * vectors).T @ vectors - np.outer(mean, mean))


@lru_cache(maxsize=64)
def _hits(m: LocalHashing | LongitudinalHashing) -> tuple[FloatArray, FloatArray]:
    """[symbol, function, value] 1 where the function hashes the value to the symbol, for one of each set of functions that are
    multiples of each other; and the chance of each such set, for a device that draws its function uniformly."""
    pool, g = m.pool, m.g
    columns = np.array([pool.radon(unit) for unit in np.eye(m.k)]).T  # [cell, value]
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
