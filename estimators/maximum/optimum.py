"""The maximum of a sum of terms on the simplex: by Newton's method if the sum is separable, otherwise by projected L-BFGS."""

from collections import deque

import numpy as np

from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.terms import TINY, SupportTerm, Term

PAIRS = 20  # number of past steps that L-BFGS keeps
POWERS = np.array([-3.0, -2.0, -1.0, 0.0])  # of k, for b in `_background`
SHORTEST = 1e-9  # smallest fraction of a quasi-Newton step to try
FARTHEST = 1e6  # largest change of a bin by a direction; `_nearest` loses the last digits of far points
ROUNDING = 1e-14  # log-likelihoods with a smaller relative difference are treated as equal


def evaluate(terms: list[Term], f: FloatArray) -> tuple[float, FloatArray]:
    """Returns the log-likelihood Σ_A L_A(f) in nats and its gradient (k,)."""
    parts = [term(f) for term in terms]
    return sum(value for value, _ in parts), np.asarray(sum(gradient for _, gradient in parts))


def duality_gap(f: FloatArray, gradient: FloatArray) -> float:
    """Returns max_v g_v - Σ f_v g_v, in nats. No distribution's log-likelihood exceeds that of f by more than this gap."""
    return max(float(gradient.max() - (f * gradient).sum()), 0.0)


def separable_maximum(terms: list[SupportTerm]) -> tuple[FloatArray, int]:
    """Returns the distribution that maximises a sum of support terms, and the number of passes.

    At least one term must have a positive slope and a positive support count.

    With Σ f = 1 the sum is Σ_v φ_v(f_v). At the maximum φ'_v(f_v) = 1/μ for every f_v > 0, and φ'_v(0) <= 1/μ for every
    f_v = 0:

        φ'_v(x) = Σ_A c_Av / (x + b_A),  b = q/(p-q)        f_v(μ) = the x >= 0 with φ'_v(x) = 1/μ, or 0
    """
    k = terms[0].k
    told = [term for term in terms if term.slope and term.support.any()]
    support = np.array([term.support for term in told])
    b = np.array([[max(term.q / term.slope, TINY)] for term in told])
    bins = np.flatnonzero(support.any(axis=0))
    support = support[:, bins]
    mu = float(1 / (support / (1 + b)).sum(axis=0).max())  # with this μ, one bin alone is at least 1
    x = np.ones(bins.size)
    passes = 0
    while passes < 200:
        passes += 1
        x, slope = _solve_bins(support, b, mu, x)
        kept = x > 0
        bins, support, x = bins[kept], support[:, kept], x[kept]
        after = mu - float((x.sum() - 1) / (1 / slope[kept]).sum())
        if not after < mu:
            break
        mu = after
    f = np.zeros(k)
    f[bins] = x / x.sum()
    return f, passes


def _solve_bins(support: FloatArray, b: FloatArray, mu: float, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    if len(support) == 1:
        return np.maximum(mu * support[0] - b[0], 0.0), 1 / support[0]
    for attempt in range(200):
        r = support / (x + b)
        gradient = r.sum(axis=0)
        slope = (r / (x + b)).sum(axis=0) / gradient**2
        after = np.maximum(x + (mu - 1 / gradient) / slope, 0.0)
        done = attempt and (after <= x * (1 + 1e-15)).all()
        x = after
        if done:
            break
    return x, slope


def projected_maximum(terms: list[Term], start: FloatArray, target: float, max_evaluations: int) -> tuple[FloatArray, int]:
    """Approximates the maximum of a sum of terms by projected L-BFGS; returns the distribution and the number of evaluations.

    From the distribution f, a step of length a in the direction d goes to the distribution nearest to f + a d (`_nearest`). For
    bins near zero that the gradient lowers, d is a scaled gradient. For all other bins, d is the quasi-Newton direction.

    Args:
        start: (k,) distribution; bins at zero may become positive.
        target: the iteration stops when the duality gap is at most `target`, in nats.
        max_evaluations: largest number of evaluations of the terms.

    Source: Bertsekas 1982 (two-metric projection); Liu and Nocedal 1989 (L-BFGS); Hager and Zhang 2005 (acceptance of steps
    between values that differ only by rounding).
    """
    f, evaluations = start, 1
    value, gradient = evaluate(terms, f)
    total = float((f * gradient).sum())
    pairs: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=PAIRS)
    while evaluations < max_evaluations and duality_gap(f, gradient) > target:
        ascent = gradient - total
        metric = (f + (_background(f, *pairs[-1]) if pairs else 1 / f.size)) / total
        direction = metric * ascent
        nearly_zero = min(1e-3, float(np.abs(_nearest(f + direction, metric) - f).sum())) / f.size
        free = (f > nearly_zero) | (ascent >= 0)
        direction[free] = _quasi_newton(ascent[free], metric[free], [(s[free], y[free]) for s, y in pairs])
        direction *= FARTHEST / max(FARTHEST, float(np.abs(direction).max()))
        length = 1.0
        while length > SHORTEST and evaluations < max_evaluations:
            after = _nearest(f + length * direction, metric)
            step = after - f
            promised = float((ascent * step).sum())
            length /= 2
            if promised <= 0:
                continue
            value_after, gradient_after = evaluate(terms, after)
            evaluations += 1
            gain = value_after - value
            left = float(((gradient_after - total) * step).sum())  # far below zero if the step was much too long
            if left >= -0.8 * promised and (gain >= 1e-4 * promised or abs(gain) <= ROUNDING * (abs(value) + total)):
                bend = gradient - gradient_after
                if (step * bend).sum() > 1e-14 * np.sqrt((step**2).sum() * (bend**2).sum()):
                    pairs.append((step, bend))
                f, value, gradient = after, value_after, gradient_after
                break
        else:
            if not pairs and evaluations < max_evaluations:  # the scaled gradient failed too; EM never lowers the value
                f = f * gradient / total
                value, gradient = evaluate(terms, f)
                evaluations += 1
            pairs.clear()
    return f, evaluations


def _background(f: FloatArray, step: FloatArray, bend: FloatArray) -> float:
    """The b (k to a power of `POWERS`) for which the metric f + b best predicts the direction of the last step.

    EM has b = 0. If every value explains every outcome nearly as well, a large b makes far longer steps.
    """
    step, bend = step / np.abs(step).max(), bend / np.abs(bend).max()
    best, found = 0.0, 1.0
    for b in float(f.size) ** POWERS:
        metric = f + b
        rest = bend - (metric @ bend) / metric.sum()
        product, scale = (step @ rest) ** 2, (step**2 / metric).sum() * (metric @ rest**2)
        if product > best * scale:
            best, found = float(product / scale), float(b)
    return found


def _nearest(x: FloatArray, metric: FloatArray) -> FloatArray:
    """The distribution y with the least Σ (y - x)² / metric, (k,): y = max(0, x - μ metric), μ by Newton's method."""
    mu = (x.sum() - 1) / metric.sum()
    for _ in range(x.size):
        on = x > mu * metric
        after = (x[on].sum() - 1) / metric[on].sum()
        if not after > mu:
            break
        mu = after
    y = np.maximum(x - mu * metric, 0.0)
    return np.asarray(y / y.sum())


def _quasi_newton(ascent: FloatArray, metric: FloatArray, pairs: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    def scaled(x: FloatArray) -> FloatArray:
        return np.asarray(metric * (x - (metric * x).sum() / metric.sum()))

    used = []
    for step, bend in pairs:
        product = float((step * bend).sum())
        if product > 1e-12 * np.sqrt((step**2).sum() * (bend**2).sum()):
            used.append((step, bend, product))
    result, weights = ascent, []
    for step, bend, product in reversed(used):
        weights.append(float((step * result).sum()) / product)
        result = result - weights[-1] * bend
    result = scaled(result)
    if used:
        step, bend, product = used[-1]
        expected = float((bend * scaled(bend)).sum())
        if expected > 1e-12 * float((bend * metric * bend).sum()):
            result = result * (product / expected)
    for (step, bend, product), weight in zip(used, reversed(weights), strict=True):
        result = result + step * (weight - float((bend * result).sum()) / product)
    return np.asarray(result)
