"""Detects jumps by a generalized likelihood ratio (GLR) of a filter's innovations (observation minus prediction).

A jump of size δ in the level of a value at step τ shifts the innovations from τ on by δ c_τ, …, δ c_t. The signature c follows
from the filter's gains (Willsky and Jones 1976). For standardized innovations ν, the best size and its score are

    N = Σ c_s ν_s    D = Σ c_s²    δ̂ = N / D, with the standard error 1/√D    score U = N / √D

An alarm needs a normal score above a threshold, for any of the k values and any of the last `STARTS` observed steps τ. The
normal score comes from |U|, by Student's t with DEGREES / gain² degrees of freedom (Wallace 1959).
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from ldpstream.estimators.estimate import PUBLISHED_LEVEL
from ldpstream.mechanisms.arguments import FloatArray, integer, real

STARTS = 32  # observed steps that are tested as the jump's step
FOUND = 0.6  # a jump of FOUND * threshold standard errors of a step is found within five steps in 9 of 10 cases
RUN_LENGTH = 10_000.0  # default mean number of steps between two false alarms: 14 months if a step is an hour
DEGREES = 12  # degrees of freedom of the score of a value that only drifts, by simulation
OPTIMISM = 0.9  # simulated run length divided by the formula's run length: 0.88 to 0.94 for thresholds from 3 to 4.75
NODES = 20  # nodes of the Gauss-Legendre quadrature; its relative error is below 1e-12
MOVED = 2.0  # if a value jumps, the levels of all values with scores above this limit start anew


@dataclass(frozen=True, slots=True)
class Change:
    """A detected jump.

    Attributes:
        value: index of the value with the highest normal score.
        step: estimate of the first time step at the new level.
        size: estimated jump of the value's frequency.
        standard_error: standard error of `size`, if `step` is right.
        score: |size| / standard_error.
        moved: (k,) bool, true for the values whose score for a jump at this `step` is above `MOVED`.
    """

    value: int
    step: int
    size: float
    standard_error: float
    score: float
    moved: npt.NDArray[np.bool_]

    def interval(self) -> tuple[float, float]:
        """Returns the ends of the interval of `size`."""
        outside = (1 - PUBLISHED_LEVEL) / max(1, int(self.moved.sum()))
        half = -float(ndtri(outside / 2)) * self.standard_error
        return self.size - half, self.size + half


def normalized(scores: FloatArray, skewness: FloatArray) -> FloatArray:
    """Turns standardized numbers with this skewness into approximately normal scores.

    Source: Wilson and Hilferty 1931 (cube root of a gamma variable).
    """
    straight = np.abs(skewness) < 1e-6
    bent = np.where(straight, 1.0, skewness)
    return np.where(straight, scores, 6 / bent * (np.cbrt(1 + bent * scores / 2) - 1) + bent / 6)


def run_length(score: float, k: int = 1) -> float:
    """Approximate mean number of steps until the first false alarm, for k independent values with constant levels.

        √(2π) e^(b²/2) / (b k ∫ x ν(x)² dx), x from b/√STARTS to b    b: the threshold, `score`

    The result is this formula times `OPTIMISM`.

    Source: Siegmund and Venkatraman 1995, Annals of Statistics 23(1), theorem 1; ν as approximated by Siegmund and Yakir 2007.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = score * (1 - 1 / math.sqrt(STARTS)) / 2
    x = score - half + half * nodes
    below, density = ndtr(x / 2), np.exp(-(x**2) / 8) / math.sqrt(2 * math.pi)
    overshoot = 2 / x * (below - 0.5) / (x / 2 * below + density)
    area = half * weights @ (x * overshoot**2)
    return OPTIMISM * math.sqrt(2 * math.pi) * math.exp(score**2 / 2) / (score * float(area) * k)


@cache
def threshold(k: int, steps: float = RUN_LENGTH) -> float:
    """Score above which there is an alarm, for a stated mean number of steps between two false alarms of an attribute.

    Args:
        k: number of values, at least 1.
        steps: mean number of steps between two false alarms of any of the values, 100 to 1e12.

    >>> [round(threshold(k), 2) for k in (2, 10, 1000)]
    [4.48, 4.84, 5.73]
    """
    k, steps = integer("k", k, 1, 2**31), real("steps", steps, 100, 1e12)
    low, high = 1.5, 12.0
    while low < (score := (low + high) / 2) < high:
        low, high = (score, high) if run_length(score, k) < steps else (low, score)
    return score


def detectable(k: int, standard_error: float) -> float:
    """Size of a jump that a filter with the default run length finds within five steps in about 9 of 10 cases.

    The size assumes constant shares before the jump.

    Args:
        k: number of values.
        standard_error: standard error of a step's unbiased estimate of the value.

    >>> round(detectable(10, 0.01), 4)
    0.029
    """
    return FOUND * threshold(k) * standard_error


class JumpScores:
    """Scores of all values and of the last `STARTS` observed steps.

    Attributes:
        begun: (STARTS,) step of the jump; -1 if the slot is empty.
        lag: (STARTS, k) the part of a jump that the filter's level has not followed yet.
        sums: (2, STARTS, k) N and D of the module's docstring.
    """

    def __init__(self, k: int) -> None:
        self.begun = np.full(STARTS, -1.0)
        self.lag = np.zeros((STARTS, k))
        self.sums = np.zeros((2, STARTS, k))

    def arrays(self) -> list[FloatArray]:
        return [self.begun, self.lag, self.sums]

    def add(self, step: int, innovations: FloatArray, spread: FloatArray, gain: FloatArray) -> None:
        """Adds one observed step.

        Args:
            step: number of the step.
            innovations: (k,) observation minus prediction, divided by `spread` and made nearly normal (`normalized`).
            spread: (k,) standard deviation of observation minus prediction.
            gain: (k,) the filter's gain.
        """
        slot = int(np.argmin(self.begun))
        self.begun[slot], self.lag[slot], self.sums[:, slot] = step, 1, 0
        signature = self.lag * (1 / spread)
        self.sums[0] += signature * innovations
        self.sums[1] += signature**2
        self.lag *= 1 - gain

    def normal_scores(self, gain: FloatArray) -> FloatArray:
        """Returns the highest score of every value, mapped to a normal score, (k,)."""
        degrees = DEGREES / np.maximum(gain, 1e-6) ** 2
        return np.asarray(np.sqrt(degrees * np.log1p(self._squares().max(axis=0) / degrees)))

    def alarm(self, limit: float, gain: FloatArray) -> tuple[Change, int] | None:
        """Returns the jump with the highest normal score and its slot, or None if no normal score exceeds `limit`."""
        normal = self.normal_scores(gain)
        value = int(normal.argmax())
        if normal[value] <= limit:
            return None
        squares = self._squares()
        slot = int(squares[:, value].argmax())
        size, error = self.sums[0, slot, value] / self.sums[1, slot, value], 1 / math.sqrt(self.sums[1, slot, value])
        moved = squares[slot] > MOVED**2
        return Change(value, int(self.begun[slot]), float(size), error, abs(float(size)) / error, moved), slot

    def _squares(self) -> FloatArray:
        """The squares of all scores, (STARTS, k); 0 for a score without observations."""
        squares: FloatArray = self.sums[0] ** 2
        squares /= self.sums[1] + np.finfo(float).tiny
        return squares

    def forget(self, moved: npt.NDArray[np.bool_]) -> None:
        self.lag[:, moved] = 0
        self.sums[:, :, moved] = 0
