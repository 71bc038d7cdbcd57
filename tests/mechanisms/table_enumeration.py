"""Distributions of count tables by enumeration, and the losses between them, as references for `ledger.shuffled`."""

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from ldpstream.mechanisms.arguments import FloatArray

Distribution = Mapping[Hashable, float]
LOSSES = (0.0, 0.05, 0.2, 0.5, 1.0)


def with_report(distribution: Distribution, row: FloatArray) -> Distribution:
    """Distribution of the table that has one more report, with these probabilities."""
    after: Counter[Hashable] = Counter()
    for counts, chance in distribution.items():
        assert isinstance(counts, tuple)
        for output in np.flatnonzero(row).tolist():
            after[(*counts[:output], counts[output] + 1, *counts[output + 1 :])] += chance * float(row[output])  # type: ignore[assignment]  # a Counter of floats
    return after


def table_distribution(channels: Iterable[FloatArray]) -> Distribution:
    """Distribution of the numbers of reports with each output; each report has the probabilities of one row."""
    rows = list(channels)
    distribution: Distribution = {(0,) * rows[0].size: 1.0}
    for row in rows:
        distribution = with_report(distribution, row)
    return distribution


def delta(p: Distribution, q: Distribution, eps: float) -> float:
    return sum(max(p.get(x, 0.0) - math.exp(eps) * q.get(x, 0.0), 0.0) for x in p)


def exact(channel: FloatArray, n: int, losses: Iterable[float] = LOSSES) -> list[float]:
    """The largest δ of a table of n reports, over all values of a person and of the others."""
    k, found = len(channel), [0.0 for _ in losses]
    for others in itertools.combinations_with_replacement(range(k), n - 1):
        crowd = table_distribution(channel[list(others)])
        for p, q in itertools.permutations([with_report(crowd, row) for row in channel], 2):
            found = [max(old, delta(p, q, eps)) for old, eps in zip(found, losses, strict=True)]
    return found
