"""Synthetic populations: the five of Arcolezi, Cerna and Palamidessi 2023, §4.1."""

from collections.abc import Callable

import numpy as np

from ldpstream.mechanisms.arguments import FloatArray, IntArray

POOL = 10_000  # different people of a population with several answers

SHAPES: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "gaussian": lambda rng, n: rng.normal(1000, 10, n),
    "exponential": lambda rng, n: rng.exponential(1, n),
    "uniform": lambda rng, n: rng.uniform(100, 10_000, n),
    "poisson": lambda rng, n: rng.poisson(5, n).astype(float),
    "triangular": lambda rng, n: rng.triangular(100, 4500, 10_000, n),
}


def population(shape: str, k: int, n: int, rng: np.random.Generator) -> IntArray:
    """(n,) values in [0, k): samples of a shape, cut into k bins of equal width from the smallest to the largest."""
    samples = SHAPES[shape](rng, n)
    width = np.ptp(samples) / k or 1.0
    return np.asarray(np.minimum((samples - samples.min()) / width, k - 1).astype(np.int64))


def population_of_sets(shape: str, k: int, choices: int, n: int, rng: np.random.Generator) -> IntArray:
    """(n,) codes of sets (`mechanisms.sets`): every number of values from 0 to `choices` is equally likely."""
    popular = np.log(1 + np.bincount(population(shape, k, POOL, rng), minlength=k))
    order = np.argsort(-popular - rng.gumbel(size=(POOL, k)), axis=1)
    chosen = np.arange(k) < rng.integers(0, choices + 1, POOL)[:, None]
    return np.asarray(rng.choice((chosen << order).sum(axis=1), n))
