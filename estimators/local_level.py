"""Local-level filter: the curve of every value's frequency from the raw inversions of all steps so far.

For each of the k values of an attribute, with the level θ_t and the step's raw inversion z_t:

    θ_t = θ_{t-1} + η_t    Var η = q                 the true share moves
    z_t = θ_t + e_t        Var e = v_t, known        without memos
    z_t = θ_t + s_t u_t + e_t                        with memos: s_t² the variance of the memo noise, Var e = v_t - s_t²
    u_t = ρ u_{t-1} + ξ_t  Var u = 1                 ρ: correlation between two steps; 1 if nobody leaves and no value changes

q is unknown. A Kalman filter runs for each q of the grid `DRIFTS`. The estimate is the weighted mean of the filters' levels.
The estimate's variance includes the spread between the filters. The grid is absolute. A grid relative to a typical variance
would need this variance before the first report, and the variance changes with the number of reports.

The weight of q for value j is proportional to π(q) L_j(q). The likelihood L_j of the value's innovations has a memory of 100
steps: the filter adapts if a quiet value begins to move. The prior π is the mean of all values' weights (empirical Bayes).

Mean squared errors of steps 100 to 600 in a trial, divided by those of filters that know every q: k = 100 values with normal
observations. In a step, a drifting value moves by 0.3 standard errors of an observation (0.1 if all drift alike):

    likelihood               five values drift   no value drifts   all drift alike   small shares drift less
    one for all values                    3.96              1.00              1.00                      1.71
    one per value                         1.13              1.56              1.09                      1.14
    per value, shared prior               1.03              1.01              1.00                      1.15

If `estimators.changes` detects a jump, the levels of the values that moved start anew: the jump has an infinite prior variance.

Sources: Harvey 1989, Forecasting, Structural Time Series Models and the Kalman Filter (local level, exact initialization);
Willsky and Jones 1976 (jumps).
"""

import json
import math
from dataclasses import dataclass

import numpy as np

from estimators.changes import RUN_LENGTH, Change, Evidence, normalized, threshold
from estimators.estimate import normal_interval
from mechanisms.arguments import FloatArray, integer, real

DRIFTS = np.concatenate([[0.0], 4.0 ** np.arange(-20, -2)])[:, None]  # q, variance of a share's change in a step: 0 to 0.016
MEMORY = 0.99  # factor by which a step's log-likelihood shrinks with every later step
FLOOR = 0.01  # share of the prior that stays uniform, so that no weight of a q falls to zero
LEAST_VARIANCE = 1e-18
LEAST_FRESH = 1e-6  # smallest share of an observation's variance that is independent of the memos; avoids cancellation


@dataclass(frozen=True, slots=True)
class Filtered:
    """The filter's estimate after a step.

    Attributes:
        frequencies: (k,) estimated shares; may be negative, and sum to 1 only approximately. NaN before the first observation.
        standard_errors: (k,) standard errors of `frequencies`.
        scores: (k,) standardized innovations: observation minus prediction, in standard deviations; NaN at a step without
            reports and at the first observation.
        change: the jump detected at this step, or None.
    """

    frequencies: FloatArray
    standard_errors: FloatArray
    scores: FloatArray
    change: Change | None

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Returns lower and upper ends of the normal intervals, (k,) each, for a level in (0, 1); not clipped to [0, 1]."""
        return normal_interval(self.frequencies, self.standard_errors, level)


def fresh_variance(variance: FloatArray, memo_variance: FloatArray) -> FloatArray:
    """Returns the part of the variances that does not come from memos, with a lower limit against cancellation."""
    return np.asarray(np.maximum(np.maximum(variance - memo_variance, LEAST_FRESH * variance), LEAST_VARIANCE))


class LocalLevel:
    """Filter of one attribute. `step` changes the state; `to_bytes` and `from_bytes` copy the state exactly.

    Args:
        k: number of values, at least 1.
        memo: true if the reports come from memos.
        run_length: mean number of steps to a false alarm; `math.inf` for a filter without detection of jumps.

    >>> level = LocalLevel(2)
    >>> level.step(np.array([0.4, 0.6]), np.full(2, 0.01)).frequencies
    array([0.4, 0.6])
    """

    def __init__(self, k: int, memo: bool = False, run_length: float = RUN_LENGTH) -> None:
        self.k, self.memo, self.run_length = integer("k", k, 1, 2**31), memo, run_length
        self._limit = math.inf if run_length == math.inf else threshold(k, real("run_length", run_length, 100.0, 1e12))
        self.steps, self.started = 0, False
        shape = (DRIFTS.size, k)
        self._log_weights = np.zeros(shape)
        self._prior = np.full((DRIFTS.size, 1), 1 / DRIFTS.size)
        self._level = np.full(shape, np.nan)
        self._variance = np.full(shape, np.nan)
        memo_shape = (DRIFTS.size, k if memo else 0)
        self._noise = np.zeros(memo_shape)  # u
        self._noise_variance = np.ones(memo_shape)
        self._covariance = np.zeros(memo_shape)  # covariance of θ and u
        self._evidence = Evidence(k, memo)

    @property
    def predicted(self) -> FloatArray:
        """(k,) shares expected at the next step; NaN before the first observation."""
        return np.asarray((self._weights() * self._level).sum(axis=0))

    def step(
        self,
        observed: FloatArray,
        variance: FloatArray,
        memo_variance: FloatArray | None = None,
        kept: float = 1.0,
        skewness: FloatArray | None = None,
    ) -> Filtered:
        """Adds the raw inversion of one step. Call this method once for every step, including steps without reports.

        Args:
            observed: (k,) raw inversion; NaN if the step has no reports; the filter then only predicts.
            variance: (k,) variance of `observed`, above 0, computed at the shares `predicted` (clipped to [0, 1]). Do not
                compute the variance at `observed`: low observations would get a small variance and too much weight. For GRR
                with 4 reports per value and step, 5 % of the 95 % intervals then cover the truth, instead of 97 %.
            memo_variance: (k,) the part of `variance` that comes from memos; None without memos.
            kept: correlation ρ of the memo noise between this step and the previous one, 0 to 1; unused without memos.
            skewness: (k,) skewness of `observed`, for the detection of jumps; None for 0. For a pure mechanism that supports a
                value with probability γ, the skewness is (1 - 2γ) / √(nγ(1 - γ)). The skewness matters if few reports support a
                value. Without the skewness, at 4 reports, false alarms were 5 times as frequent as stated.

        Raises:
            ValueError: if an array has a wrong shape, a variance is not positive, the memos' part is negative or above the
                variance, or `memo_variance` is missing for a filter with memos.
        """
        kept = real("kept", kept, 0.0, 1.0)
        fresh, scale = self._check(observed, variance, memo_variance)
        self.steps += 1
        self._variance += DRIFTS
        if self.memo:
            self._noise *= kept
            self._covariance *= kept
            self._noise_variance += (1 - kept**2) * (1 - self._noise_variance)
        self._evidence.skip(kept)
        if np.isnan(observed).any():
            return self._publish(np.full(self.k, np.nan), None)
        if not self.started:
            self._start(observed, fresh, scale)
            return self._publish(np.full(self.k, np.nan), None)
        return self._observe(observed, fresh, scale, skewness)

    def to_bytes(self) -> bytes:
        """Returns the exact state: one line of JSON, then all numbers as little-endian float64."""
        head = {"k": self.k, "memo": self.memo, "run_length": self.run_length, "steps": self.steps, "started": self.started}
        return json.dumps(head).encode() + b"\n" + b"".join(array.astype("<f8").tobytes() for array in self._arrays())

    @classmethod
    def from_bytes(cls, data: bytes) -> "LocalLevel":
        """Returns a filter that continues with exactly the same numbers as the filter that wrote the state.

        Raises:
            ValueError: if `data` is not such a state.
        """
        head, _, body = data.partition(b"\n")
        try:
            fields = json.loads(head)
            new = cls(fields["k"], fields["memo"], fields["run_length"])
            new.steps, new.started = fields["steps"], fields["started"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"expected the state of a local-level filter, got {head[:80]!r}") from error
        expected = 8 * sum(array.size for array in new._arrays())
        if len(body) != expected:
            raise ValueError(f"the state of a filter of {new.k} values has {expected} bytes, got {len(body)}")
        place = 0
        for array in new._arrays():
            array[...] = np.frombuffer(body, "<f8", array.size, place).reshape(array.shape)
            place += array.nbytes
        return new

    def _arrays(self) -> list[FloatArray]:
        own = [self._log_weights, self._prior, self._level, self._variance]
        return [*own, self._noise, self._noise_variance, self._covariance, *self._evidence.arrays()]

    def _check(
        self, observed: FloatArray, variance: FloatArray, memo_variance: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Returns the variance of the noise that is fresh in this step, and the standard deviation of the memo noise."""
        if self.memo != (memo_variance is not None):
            raise ValueError(f"memo_variance must be given exactly if the filter has memos, got memo={self.memo}")
        part = np.zeros(self.k) if memo_variance is None else memo_variance
        for name, array in (("observed", observed), ("variance", variance), ("memo_variance", part)):
            if np.shape(array) != (self.k,):
                raise ValueError(f"{name} must have the shape ({self.k},), got {np.shape(array)}")
        if np.isnan(observed).any():
            return variance, part
        if not (np.isfinite(observed).all() and np.isfinite(variance).all() and (variance > 0).all()):
            raise ValueError("observed must be finite (or NaN for a step without reports), and variance finite and positive")
        if not ((part >= 0) & (part <= variance)).all():
            raise ValueError("memo_variance must be from 0 to variance")
        return fresh_variance(variance, part), np.sqrt(part)

    def _start(self, observed: FloatArray, fresh: FloatArray, scale: FloatArray) -> None:
        """Starts the filter by exact initialization: the limit for an infinite prior variance of the level."""
        self.started = True
        self._level[...], self._variance[...] = observed, fresh
        if self.memo:
            self._level -= scale * self._noise
            self._variance += scale**2 * self._noise_variance
            self._covariance[...] = -scale * self._noise_variance

    def _observe(self, observed: FloatArray, fresh: FloatArray, scale: FloatArray, skewness: FloatArray | None) -> Filtered:
        before = self._weights()
        self._prior = (1 - FLOOR) * before.mean(axis=1, keepdims=True) + FLOOR / DRIFTS.size
        predicted, along, noise_along = self._level, self._variance, self._covariance
        if self.memo:
            predicted = self._level + scale * self._noise
            along = self._variance + scale * self._covariance  # covariance of θ and the observation
            noise_along = self._covariance + scale * self._noise_variance
        total = along + fresh + (scale * noise_along if self.memo else 0)
        errors = observed - predicted
        mean = (before * predicted).sum(axis=0)
        spread = np.sqrt((before * (total + (predicted - mean) ** 2)).sum(axis=0))
        scores = (observed - mean) / spread

        gain = along / total
        gains = [gain]
        self._level += gain * errors
        if self.memo:
            noise_gain = noise_along / total
            gains.append(noise_gain)
            self._noise += noise_gain * errors
            self._variance -= gain * along
            self._covariance -= gain * noise_along
            self._noise_variance -= noise_gain * noise_along
        else:
            self._variance = gain * fresh
        self._log_weights *= MEMORY
        self._log_weights -= 0.5 * (np.log(total) + errors**2 / total)
        self._log_weights -= self._log_weights.max(axis=0)

        after = self._weights()
        normal = scores if skewness is None else normalized(scores, skewness * ((fresh + scale**2) / spread**2) ** 1.5)
        self._evidence.add(self.steps, normal, spread, [(after * each).sum(axis=0) for each in gains], scale)
        found = self._evidence.alarm(self.steps, self._limit)
        if found is not None:
            self._start_anew(*found, after)
        return self._publish(scores, found[0] if found else None)

    def _start_anew(self, change: Change, slot: int, weights: FloatArray) -> None:
        """Gives the jump an infinite prior variance, for all values that moved. The weights of q stay the same.

        The posterior of a jump of size δ is N(δ̂, 1/D). The level lags behind by `lag` δ. With new weights, alarms would
        cluster if a value drifts strongly: in a trial, the mean run length to a false alarm fell from 0.85 to 0.7 of the stated
        run length (k = 2).
        """
        moved, evidence = change.moved, self._evidence
        numerator, precision = evidence.sums[:, slot, moved]
        size = numerator / precision
        w = weights[:, moved]
        states = [(self._level, evidence.level[slot, moved])]
        if self.memo:
            states.append((self._noise, evidence.memo[slot, moved]))
        means = [(w * state[:, moved]).sum(axis=0) for state, _ in states]
        away = [state[:, moved] - mean for (state, _), mean in zip(states, means)]
        lags = [lag for _, lag in states]

        def posterior(matrix: FloatArray, a: int, b: int) -> FloatArray:
            inside = (w * (matrix[:, moved] + away[a] * away[b])).sum(axis=0)
            return np.asarray(inside + lags[a] * lags[b] / precision)

        self._variance[:, moved] = posterior(self._variance, 0, 0)
        if self.memo:
            self._covariance[:, moved] = posterior(self._covariance, 0, 1)
            self._noise_variance[:, moved] = posterior(self._noise_variance, 1, 1)
        for (state, lag), mean in zip(states, means):
            state[:, moved] = mean + lag * size
        evidence.forget(moved)

    def _weights(self) -> FloatArray:
        weights = self._prior * np.exp(self._log_weights)
        return np.asarray(weights / weights.sum(axis=0))

    def _publish(self, scores: FloatArray, change: Change | None) -> Filtered:
        weights = self._weights()
        mean = (weights * self._level).sum(axis=0)
        variance = (weights * (self._variance + (self._level - mean) ** 2)).sum(axis=0)
        return Filtered(mean, np.sqrt(variance), scores, change)
