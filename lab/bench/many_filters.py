from dataclasses import replace

import numpy as np

from ldpstream.estimators.filter.changes import Change, JumpScores, threshold
from ldpstream.estimators.filter.local_level import DRIFTS, LocalLevel
from ldpstream.mechanisms.arguments import FloatArray


class ManyFilters(LocalLevel):
    """`n` independent filters of `own` values; arrays have n · own values, those of the first filter first."""

    def __init__(self, n: int, own: int, run_length: float) -> None:
        super().__init__(n * own)
        self._n, self._own, self._limit = n, own, threshold(own, run_length)
        self._prior = np.full((DRIFTS.size, n * own), 1 / DRIFTS.size)
        self.alarms, self.latest = np.zeros(n, np.int64), np.zeros(n, np.int64)

    def _shared(self, weights: FloatArray) -> FloatArray:
        return np.repeat(weights.reshape(DRIFTS.size, self._n, self._own).mean(axis=2), self._own, axis=1)

    def _react(self, gain: FloatArray) -> Change | None:
        highest = self._evidence.normal_scores(gain).reshape(self._n, self._own).max(axis=1)
        for i in np.flatnonzero(highest > self._limit):
            values = slice(i * self._own, (i + 1) * self._own)
            part = JumpScores(self._own)
            part.begun = self._evidence.begun
            part.lag, part.sums = self._evidence.lag[:, values], self._evidence.sums[..., values]
            found = part.alarm(self._limit, gain[values])
            assert found is not None
            moved = np.zeros(self.k, dtype=bool)
            moved[values] = found[0].moved
            self._start_anew(replace(found[0], moved=moved), found[1])
            self.alarms[i] += 1
            self.latest[i] = self.observed
        return None
