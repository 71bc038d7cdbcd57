"""The streams of `python -m lab.bench streams`: how many people have each value at each time step.

The synthetic streams of two values come from LDP-IDS (Ren et al., SIGMOD 2022, arXiv:2204.00526, §7). The share of value 1 at
step t = 1 … T is

    LNS   a random walk from 0.05 with steps of standard deviation 0.0025, kept within [0, 1]
    Sin   0.05 sin(0.01 t) + 0.075
    Log   0.25 / (1 + e^{-0.01 t})

For k > 2 values, value j has a stream of its own: another walk (LNS), the phase 2πj/k (Sin), the delay T j/(k-1) (Log). The
shares are these streams divided by their sum.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab import datasets
from ldpstream.mechanisms.arguments import FloatArray, IntArray

SYNTHETIC = ("LNS", "Sin", "Log")


@dataclass(frozen=True, slots=True)
class Stream:
    """A population's values over time.

    `people` is (T, k+1) int64, the number of people with each value at each step; the last column counts absent people.
    """

    name: str
    people: IntArray

    @property
    def k(self) -> int:
        return int(self.people.shape[1]) - 1

    @property
    def n(self) -> int:
        return int(self.people[0].sum())

    @property
    def shares(self) -> FloatArray:
        """(T, k) true share of each value among the people present at each step."""
        present = self.people[:, :-1]
        return np.asarray(present / present.sum(axis=1, keepdims=True))


def synthetic(name: str, k: int, n: int, steps: int, rng: np.random.Generator) -> Stream:
    """One of the `SYNTHETIC` streams with k values and n people; only LNS uses `rng`."""
    j = np.arange(1 if k == 2 else k)
    t = np.arange(1, steps + 1)[:, None]
    if name == "LNS":
        weights = _walk(steps, j.size, rng)
    elif name == "Sin":
        weights = 0.05 * np.sin(0.01 * t + 2 * np.pi * j / k) + 0.075
    elif name == "Log":
        weights = 0.25 / (1 + np.exp(-0.01 * (t - steps * j / (k - 1))))
    else:
        raise ValueError(f"name must be one of {', '.join(SYNTHETIC)}, got {name!r}")
    if k == 2:  # value 0 has the complement
        return of_shares(name, np.hstack([1 - weights, weights]), n)
    return of_shares(name, weights / weights.sum(axis=1, keepdims=True), n)


def of_shares(name: str, shares: FloatArray, n: int) -> Stream:
    bounds = np.rint(np.cumsum(shares, axis=1) * n).astype(np.int64)
    bounds[:, -1] = n
    people = np.diff(bounds, axis=1, prepend=0)
    return Stream(name, np.hstack([people, np.zeros((len(people), 1), np.int64)]))


def real(folder: Path | None) -> list[Stream]:
    visits, weights = (datasets.load(name, folder) for name in ("ms_fimu", "pwgtp"))
    found = [_of_values("MS-FIMU", visits.values, visits.sizes[0])] if visits.real else []
    if weights.real:
        ranks = np.searchsorted(np.sort(weights.values, axis=None), weights.values)
        found += [_of_values("PWGTP", ranks * k // ranks.size, k) for k in (10, 100)]
    return found


def _of_values(name: str, values: IntArray, k: int) -> Stream:
    coded = np.where(values == datasets.ABSENT, k, values)
    return Stream(name, np.array([np.bincount(column, minlength=k + 1) for column in coded.T]))


def _walk(steps: int, walks: int, rng: np.random.Generator) -> FloatArray:
    path = np.empty((steps, walks))
    at = np.full(walks, 0.05)
    for t in range(steps):
        path[t] = at
        at = np.clip(at + rng.normal(0, 0.0025, walks), 0, 1)
    return path
