"""Base classes of location mechanisms, whose reports are values.

The parameter of a location mechanism, an ε or a bound, is **not** an LDP ε. The attribute `eps_1` is the mechanism's true
worst-case loss, and is infinite if a report excludes a value.

Sources: Andrés, Bordenabe, Chatzikokolakis and Palamidessi 2013 (geo-indistinguishability); ElSalamouny and Palamidessi,
"Reconstruction of the distribution of sensitive data under free-will privacy", §2 and §8.2.4 (the mechanisms).
"""

import math
from abc import abstractmethod
from functools import cached_property
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from lab.papers.location.dense import DenseReading
from ldpstream.mechanisms.arguments import FloatArray, Reports, user_values
from ldpstream.mechanisms.base import MAX_CHANNEL_ENTRIES
from ldpstream.mechanisms.channel import ChannelMechanism

MAX_CELLS = math.isqrt(MAX_CHANNEL_ENTRIES)  # largest domain of a mechanism that stores its channel


class LocationMechanism(ChannelMechanism):
    read_by = DenseReading

    def coins(self) -> NoReturn:
        raise self._no_device()

    @property
    def randomizer(self) -> NoReturn:
        raise self._no_device()

    def _no_device(self) -> TypeError:
        return TypeError(f"devices have no randomizer for {self.name}")

    @abstractmethod
    def distances(self) -> FloatArray:
        """(k, k) distance between every two values, in the unit of the geo-indistinguishability guarantee."""

    @cached_property
    def eps_distance(self) -> float:
        """Loss per unit of distance: max over x ≠ x' and z of ln(A[x, z]/A[x', z]) / d(x, x').

        The mechanism is geo-indistinguishable with this ε, and with no smaller ε.
        """
        with np.errstate(divide="ignore"):
            logs = np.log(self.channel())
        distances, worst = self.distances(), 0.0
        for x in range(self.k - 1):
            with np.errstate(invalid="ignore"):  # -inf - -inf is NaN if neither value can produce a report; fmax ignores NaN
                ratios = np.fmax.reduce(np.abs(logs[x + 1 :] - logs[x]), axis=1)
            worst = max(worst, float((ratios / distances[x, x + 1 :]).max()))
        return worst


class StoredChannel(LocationMechanism):
    """A mechanism that stores its channel, and draws a report by inverting the distribution function of the value's row."""

    def _set_channel(self, channel: FloatArray) -> None:
        self._matrix = channel
        self._matrix.setflags(write=False)
        self.eps_1 = worst_loss(channel)
        cumulative = np.cumsum(channel, axis=1)
        self._cumulative = cumulative / cumulative[:, -1:]  # from the last non-zero entry on, the sum is exactly 1

    def _channel(self) -> FloatArray:
        return self._matrix

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        checked = user_values(values, self.k)
        uniform = rng.random(checked.size)
        order = np.argsort(checked.astype(self.report_dtype), kind="stable")  # NumPy uses a radix sort for small integers
        ends = np.cumsum(np.bincount(checked, minlength=self.k))
        reports = np.empty(checked.size, self.report_dtype)
        start = 0
        for row, end in zip(self._cumulative, ends):
            if end > start:
                people = order[start:end]
                reports[people] = row.searchsorted(uniform[people], side="right")
            start = end
        return reports


def worst_loss(channel: FloatArray) -> float:
    """max over x, x', z of ln A[x, z]/A[x', z], in nats. Ignores reports that no value can produce."""
    high, low = channel.max(axis=0), channel.min(axis=0)
    high, low = high[high > 0], low[high > 0]
    return float(np.log(high / low).max()) if low.all() else math.inf
