"""The window level on a stream: every device reports once in every w steps, with the whole ε, and a filter smooths the curve.

A device draws a phase φ in 0 … w-1 once and reports at the steps t ≡ φ (mod w). This is LPU's collection without coordination:
the devices draw the groups themselves, and the sizes of the groups differ by chance.
"""

from collections.abc import Callable

import numpy as np

from experiments.bench.stream_data import Stream
from experiments.bench.stream_rivals import oracle
from mechanisms.arguments import FloatArray, IntArray

GRID = np.geomspace(1e-6, 10, 22)  # q relative to the first step's mean variance


def window_level(stream: Stream, eps: float, w: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """The raw histograms of the window level.

    Args:
        stream: people by value and step.
        eps: loss of a report, in nats.
        w: number of steps between two reports of a device, at least 1.
        rng: source of randomness.

    Returns:
        (T, k) shares, NaN at a step without reports, and (T,) numbers of reports.
    """
    phases = rng.multinomial(stream.n, np.full(w, 1 / w))
    fo = oracle(stream.k, eps)
    raw, reports = np.full((len(stream.people), stream.k), np.nan), np.zeros(len(stream.people), np.int64)
    for t, people in enumerate(stream.people):
        reporting = rng.multivariate_hypergeometric(people, phases[t % w], method="marginals")[:-1]
        if n := int(reporting.sum()):
            raw[t], reports[t] = (fo.supports(reporting, rng) / n - fo.q) / (fo.p - fo.q), n
    return raw, reports


def filtered(raw: FloatArray, reports: IntArray, variance: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """(T, k) shares from a local-level filter: a random walk with steps of variance q, observed with known variances.

    A filter runs for every q of a grid. The result of a step is the mean of the filters' levels, weighted by their likelihoods
    from all steps so far, over all values together.

    Args:
        raw: (T, k) unbiased shares; a step without reports repeats the result of the step before.
        reports: (T,) numbers of reports; the first step has some.
        variance: takes (k,) shares and returns the variance of one report's estimate, the random choice of the reporting person
            included. The filter predicts the shares, since a variance at `raw` would give low observations too much weight.
    """
    at_start = variance(np.clip(raw[0], 0, 1)) / reports[0]
    q = GRID[:, None] * at_start.mean()
    level, spread = np.tile(raw[0], (GRID.size, 1)), np.tile(at_start, (GRID.size, 1))
    fit = np.zeros(GRID.size)
    smooth = raw.copy()
    for t in range(1, len(raw)):
        spread = spread + q
        if reports[t]:
            noise = variance(np.clip(smooth[t - 1], 0, 1)) / reports[t]
            surprise, total = raw[t] - level, spread + noise
            fit -= (np.log(total) + surprise**2 / total).sum(axis=1) / 2
            gain = spread / total
            level, spread = level + gain * surprise, (1 - gain) * spread
        weights = np.exp(fit - fit.max())
        smooth[t] = weights @ level / weights.sum()
    return smooth
