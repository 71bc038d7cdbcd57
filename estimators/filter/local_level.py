"""Local-level filter of every value's frequency, from the raw inversions of the steps so far.

For each of the k values of an attribute, with the level θ_t and the step's raw inversion z_t:

    θ_t = θ_{t-1} + η_t    Var η = q                 the true share moves
    z_t = θ_t + m + e_t    Var e = v_t, known        e_t: fresh noise, independent between steps
                           Var m = s², known         m: lasting noise, the same at every step (memos, choice of the people)

The filter follows θ + m, and the estimate's variance is the filter's variance plus s². If s² changes, the filter adds |change
of s²| to its variance.

A Kalman filter runs for each q of the grid `DRIFTS`. The estimate is the weighted mean of the filters' levels; its variance
includes the spread between the filters. Its interval reaches further on one side, by the distance of a share that drifts
steadily (`_behind`).

The weight of q for value j is proportional to π(q) L_j(q). The likelihood L_j of the value's innovations has a memory of 100
steps (`MEMORY`). The prior π is nearly the mean of all values' weights at the step before. If `changes` detects a
jump, the levels of the values that moved start anew.

Sources: Harvey 1989, Forecasting, Structural Time Series Models and the Kalman Filter (local level, exact initialization);
Willsky and Jones 1976 (jumps).
"""

import json
import math
from dataclasses import dataclass

import numpy as np

from ldpstream.estimators.estimate import NORMAL
from ldpstream.estimators.filter.changes import RUN_LENGTH, Change, JumpScores, normalized, threshold
from ldpstream.mechanisms.arguments import FloatArray, integer, real

DRIFTS = np.concatenate([[0.0], 4.0 ** np.arange(-20, -2)])[:, None]  # q, variance of a share's change in a step: 0 to 0.016
MEMORY = 0.99  # factor by which a step's log-likelihood shrinks with every later step
FLOOR = 0.01  # share of the prior that stays uniform, so that no weight of a q falls to zero
FORMAT = 1  # format of the state in `LocalLevel.to_bytes`; raise it if the arrays or the grid `DRIFTS` change
NEXT_LAG = 0.75  # largest lag of the filter that shows the drift, in lags of the estimate
LEAST_VARIANCE = 1e-18  # smallest variance of the fresh noise, which is 0 if every report repeats the memo exactly


@dataclass(frozen=True, slots=True)
class Filtered:
    """The filter's estimate after a step.

    Attributes:
        frequencies: (k,) estimated shares, NaN before the first observation; may be negative, and need not sum to 1.
        low, high: (k,) ends of the 95 % intervals; may be outside [0, 1].
        lasting: (k,) variances of the lasting noise, which the intervals include.
        change: the jump detected at this step, or None.
    """

    frequencies: FloatArray
    low: FloatArray
    high: FloatArray
    lasting: FloatArray
    change: Change | None

    @property
    def standard_errors(self) -> FloatArray:
        """(k,) standard errors of `frequencies`, from the widths of the intervals."""
        return (self.high - self.low) / (2 * NORMAL)


class LocalLevel:
    """Filter of one attribute.

    Args:
        run_length: mean number of steps between two false alarms, 100 to 1e12; `math.inf` for a filter without detection of
            jumps.
        next_step: number of the first time step.

    Attributes:
        next_step: number of the next time step.
        observed: number of steps with reports so far.

    >>> level = LocalLevel(2)
    >>> level.step(np.array([0.4, 0.6]), np.full(2, 0.01)).frequencies
    array([0.4, 0.6])
    """

    def __init__(self, k: int, run_length: float = RUN_LENGTH, next_step: int = 0) -> None:
        self.k, self.run_length = integer("k", k, 1, 2**31), run_length
        self.next_step, self.observed = integer("next_step", next_step, 0, 2**53), 0
        self._limit = math.inf if run_length == math.inf else threshold(k, real("run_length", run_length, 100.0, 1e12))
        shape = (DRIFTS.size, k)
        self._log_weights = np.zeros(shape)
        self._prior = np.full((DRIFTS.size, 1), 1 / DRIFTS.size)
        self._level = np.full(shape, np.nan)
        self._variance = np.full(shape, np.nan)
        self._lasting = np.zeros(k)
        self._evidence = JumpScores(k)
        self._weights = self._weighed()

    @property
    def predicted(self) -> FloatArray:
        """(k,) shares expected at the next step; NaN before the first observation."""
        return self._averaged(self._level)

    def skip(self, steps: int = 1) -> Filtered:
        """Advances over steps without an observation."""
        self._variance += integer("steps", steps, 0, 2**53) * DRIFTS
        self.next_step += steps
        return self._publish(None)

    def step(
        self, observed: FloatArray, fresh: FloatArray, lasting: FloatArray | None = None, skewness: FloatArray | None = None
    ) -> Filtered:
        """Adds the raw inversion of the next step.

        Args:
            observed: (k,) raw inversion.
            fresh: (k,) variance of the fresh noise, computed at the shares `predicted` (clipped to [0, 1]).
            lasting: (k,) variance s² of the lasting noise; None for 0.
            skewness: (k,) skewness of the fresh noise, for the detection of jumps; None for 0.

        Raises:
            ValueError: if an array has a wrong shape, a number is not finite, or a variance is negative.
        """
        lasting = np.zeros(self.k) if lasting is None else lasting
        skewness = np.zeros(self.k) if skewness is None else skewness
        for name, array in (("observed", observed), ("fresh", fresh), ("lasting", lasting), ("skewness", skewness)):
            if np.shape(array) != (self.k,) or not np.isfinite(array).all():
                raise ValueError(f"{name} must be {self.k} finite numbers, got {np.shape(array)}: {array}")
        if not ((fresh >= 0) & (lasting >= 0)).all():
            raise ValueError(f"variances must be at least 0, got {min(fresh.min(), lasting.min())}")
        self._variance += DRIFTS
        if self.observed and (change := np.abs(lasting - self._lasting)).any():
            self._variance += change
        self.next_step += 1
        self.observed += 1
        self._lasting = np.array(lasting)
        fresh = np.maximum(fresh, LEAST_VARIANCE)
        if self.observed == 1:  # exact initialization: the limit for an infinite prior variance
            self._level[...], self._variance[...] = observed, fresh
            return self._publish(None)
        return self._observe(observed, fresh, skewness)

    def to_bytes(self) -> bytes:
        """Returns the exact state: one line of JSON, then all numbers as little-endian float64."""
        head = {
            "format": FORMAT,
            "k": self.k,
            "run_length": self.run_length,
            "next_step": self.next_step,
            "observed": self.observed,
        }
        numbers = (array.astype("<f8", copy=False).data for array in self._arrays())
        return b"".join([json.dumps(head).encode() + b"\n", *numbers])

    @classmethod
    def from_bytes(cls, data: bytes) -> "LocalLevel":
        """Returns a filter that continues with exactly the same numbers as the filter that wrote the state.

        Raises:
            ValueError: if `data` is not such a state.
        """
        place = data.find(b"\n") + 1
        head = data[:place]
        try:
            fields = json.loads(head)
            if fields["format"] != FORMAT:
                raise ValueError(f"format {fields['format']!r}")
            new = cls(fields["k"], fields["run_length"], fields["next_step"])
            new.observed = integer("observed", fields["observed"], 0, 2**53)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"expected the state of a local-level filter, got {head[:80]!r}") from error
        expected = 8 * sum(array.size for array in new._arrays())
        if len(data) - place != expected:
            raise ValueError(f"the state of a filter of {new.k} values has {expected} bytes, got {len(data) - place}")
        for array in new._arrays():
            array[...] = np.frombuffer(data, "<f8", array.size, place).reshape(array.shape)
            place += array.nbytes
        if new.observed and not all(np.isfinite(array).all() for array in new._arrays()):
            raise ValueError(f"the state of a filter of {new.k} values has numbers that are not finite")
        new._weights = new._weighed()
        return new

    def _arrays(self) -> list[FloatArray]:
        return [self._log_weights, self._prior, self._level, self._variance, self._lasting, *self._evidence.arrays()]

    def _observe(self, observed: FloatArray, fresh: FloatArray, skewness: FloatArray) -> Filtered:
        self._prior = (1 - FLOOR) * self._shared(self._weights) + FLOOR / DRIFTS.size
        mean, total = self.predicted, self._variance + fresh
        spread = np.sqrt(self._averaged((self._level - mean) ** 2 + total))
        scores = (observed - mean) / spread

        errors, precision = observed - self._level, 1 / total
        gain = self._variance * precision
        expected = self._averaged(gain)
        np.multiply(gain, fresh, out=self._variance)
        self._level += gain * errors
        self._log_weights *= MEMORY
        self._log_weights -= 0.5 * (np.log(total) + errors**2 * precision)
        self._log_weights -= self._log_weights.max(axis=0)

        self._weights, step = self._weighed(), self.next_step - 1
        part = fresh / spread**2
        normal = normalized(scores, skewness * part * np.sqrt(part))
        self._evidence.add(step, normal, spread, self._averaged(gain))
        return self._publish(self._react(expected))

    def _shared(self, weights: FloatArray) -> FloatArray:
        return np.asarray(weights.mean(axis=1, keepdims=True))

    def _react(self, gain: FloatArray) -> Change | None:
        found = self._evidence.alarm(self._limit, gain)
        if found is None:
            return None
        self._start_anew(*found)
        return found[0]

    def _start_anew(self, change: Change, slot: int) -> None:
        moved, evidence = change.moved, self._evidence
        numerator, precision = evidence.sums[:, slot, moved]
        w, lag, level = self._weights[:, moved], evidence.lag[slot, moved], self._level[:, moved]
        mean = (w * level).sum(axis=0)
        inside = (w * (self._variance[:, moved] + (level - mean) ** 2)).sum(axis=0)
        self._variance[:, moved] = inside + lag**2 / precision
        self._level[:, moved] = mean + lag * numerator / precision
        evidence.forget(moved)

    def _weighed(self) -> FloatArray:
        weights: FloatArray = np.exp(self._log_weights)
        weights *= self._prior
        weights /= weights.sum(axis=0)
        return weights

    def _publish(self, change: Change | None) -> Filtered:
        mean = self.predicted
        variance = self._averaged((self._level - mean) ** 2 + self._variance)
        half, behind = NORMAL * np.sqrt(variance + self._lasting), self._behind(mean)
        low, high = mean - half + np.minimum(behind, 0), mean + half + np.maximum(behind, 0)
        return Filtered(mean, low, high, self._lasting, change)

    def _behind(self, mean: FloatArray) -> FloatArray:
        """Returns a share that drifts steadily, minus its estimate, (k,).

        A filter with the steady gain g lags (1 - g) / g steps behind, and one that still averages all steps half as many. The
        drift of a step is the distance from a filter with a smaller lag (`NEXT_LAG`), divided by the difference of the lags.
        """
        last = self._evidence.begun.argmax()
        followed = np.maximum(1 - self._evidence.lag[last], LEAST_VARIANCE)  # the gain of the last observed step
        skipped = max(self.next_step - 1 - self._evidence.begun[last], 0)
        variance = np.clip(self._variance - skipped * DRIFTS, LEAST_VARIANCE, np.inf)
        precision = 1 / variance
        rest = np.clip(self._averaged(variance) / followed * precision, 1, np.inf) - 1  # (1 - g) / g
        lag = rest * (1 + np.clip(DRIFTS * precision * rest, 0, 1)) / 2
        own = self._averaged(lag)
        place = np.minimum((lag > NEXT_LAG * own).sum(axis=0, dtype=np.int8), DRIFTS.size - 1)
        level, least = self._level[place, np.arange(self.k)], lag[place, np.arange(self.k)]
        return np.asarray(np.where(own > 1, (level - mean) * (own + skipped) / np.maximum(own - least, 0.5), 0.0))

    def _averaged(self, numbers: FloatArray) -> FloatArray:
        """Returns the weighted means of (drifts, k) numbers, (k,)."""
        return np.asarray(np.einsum("ij,ij->j", self._weights, numbers))
