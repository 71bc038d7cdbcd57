"""The spaced level on a stream: every device reports once in w steps, with the whole ε, and a filter smooths each share."""

import numpy as np

from lab.bench.stream_data import Stream
from lab.bench.stream_rivals import oracle
from ldpstream.estimators.filter.local_level import LocalLevel
from ldpstream.mechanisms.arguments import FloatArray, IntArray


def spaced_level(stream: Stream, eps: float, w: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """The raw histograms of the spaced level: (T, k) shares, NaN at a step without reports, and (T,) numbers of reports."""
    phases = rng.multinomial(stream.n, np.full(w, 1 / w))
    fo = oracle(stream.k, eps)
    raw, reports = np.full((len(stream.people), stream.k), np.nan), np.zeros(len(stream.people), np.int64)
    for t, people in enumerate(stream.people):
        reporting = rng.multivariate_hypergeometric(people, phases[t % w], method="marginals")[:-1]
        if n := int(reporting.sum()):
            raw[t], reports[t] = (fo.supports(reporting, rng) / n - fo.q) / (fo.p - fo.q), n
    return raw, reports


def filtered(raw: FloatArray, reports: IntArray, p: float, q: float) -> FloatArray:
    level, curve = LocalLevel(raw.shape[1]), np.empty(raw.shape)
    for t, (step, n) in enumerate(zip(raw, reports, strict=True)):
        if not n:
            curve[t] = level.skip().frequencies
            continue
        expected = level.predicted
        hit = q + np.clip(np.where(np.isnan(expected), step, expected), 0, 1) * (p - q)
        variance, skewness = hit * (1 - hit) / (n * (p - q) ** 2), (1 - 2 * hit) / np.sqrt(n * hit * (1 - hit))
        curve[t] = level.step(step, variance, skewness=skewness).frequencies
    return curve
