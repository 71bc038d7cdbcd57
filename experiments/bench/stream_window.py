"""The window level on a stream: every device reports once in every w steps, with the whole ε, and a filter smooths the curve.

A device draws a phase φ in 0 … w-1 once and reports at the steps t ≡ φ (mod w). This is LPU's collection without coordination:
the devices draw the groups themselves, and the sizes of the groups differ by chance.
"""

import numpy as np

from experiments.bench.stream_data import Stream
from experiments.bench.stream_rivals import oracle
from mechanisms.arguments import FloatArray

GRID = np.geomspace(1e-6, 10, 22)  # q relative to the first step's mean variance


def window_level(stream: Stream, eps: float, w: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """The raw histograms of the window level.

    Args:
        stream: people by value and step.
        eps: loss of a report, in nats.
        w: number of steps between two reports of a device, at least 1.
        rng: source of randomness.

    Returns:
        Shares and their variances, both (T, k). The variances include the random choice of the reporting people. They use the
        shares' estimates, cut to [0, 1]. A step without reports has the variance infinity.
    """
    phases = rng.multinomial(stream.n, np.full(w, 1 / w))
    fo = oracle(stream.k, eps)
    raw, variances = np.zeros((len(stream.people), stream.k)), np.full((len(stream.people), stream.k), np.inf)
    for t, people in enumerate(stream.people):
        reporting = rng.multivariate_hypergeometric(people, phases[t % w], method="marginals")[:-1]
        if n := int(reporting.sum()):
            raw[t] = (fo.supports(reporting, rng) / n - fo.q) / (fo.p - fo.q)
            hit = fo.q + np.clip(raw[t], 0, 1) * (fo.p - fo.q)
            variances[t] = hit * (1 - hit) / (n * (fo.p - fo.q) ** 2)
    return raw, variances


def filtered(raw: FloatArray, variances: FloatArray) -> FloatArray:
    """(T, k) shares from a local-level filter: a random walk with steps of variance q, observed with known variances.

    A filter runs for every q of a grid. The result of a step is the mean of the filters' levels, weighted by their likelihoods
    from all steps so far, over all values together.

    Args:
        raw: (T, k) unbiased shares; the first step needs finite variances.
        variances: (T, k) their variances; infinity if a step has no reports.
    """
    q = GRID[:, None] * variances[0].mean()
    level, spread = np.tile(raw[0], (GRID.size, 1)), np.tile(variances[0], (GRID.size, 1))
    fit = np.zeros(GRID.size)
    smooth = raw.copy()
    for t in range(1, len(raw)):
        spread = spread + q
        if np.isfinite(variances[t]).all():
            surprise, total = raw[t] - level, spread + variances[t]
            fit -= (np.log(total) + surprise**2 / total).sum(axis=1) / 2
            gain = spread / total
            level, spread = level + gain * surprise, (1 - gain) * spread
        weights = np.exp(fit - fit.max())
        smooth[t] = weights @ level / weights.sum()
    return smooth
