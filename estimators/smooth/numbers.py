"""Empirical-Bayes estimate of the histogram of a number, if a level's mechanism is not pure, such as Square Wave.

The estimate is the mean over the models of `density_models`, weighted by prior odds and the probability of the
counts under each model.

The models have at most 128 cells of neighbouring bins. The counts are nearly normal with the variances n m, where m are the
probabilities of the reports after `PILOT_STEPS` steps of EM:

    ln p(counts | f) ≈ Σ_z c_z m_z(f) / m_z - n Σ_z m_z(f)² / (2 m_z)

Intervals of shares reach to the heaps that the counts do not exclude (`estimators.smooth.heaps`), but for these not beyond the
unbiased share's interval. The intervals of the mean and of percentiles come from the unbiased shares (`Unbiased`).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ldpstream.estimators.bayes.value_likelihood import Observation, informative, observations, people_of
from ldpstream.estimators.estimate import NORMAL, Estimate, Group, Steps
from ldpstream.estimators.matrix_inversion import inversion_weight, matrix_inversion
from ldpstream.estimators.maximum.likelihood import em, likelihood_terms
from ldpstream.estimators.smooth.density_models import DECADES, Likelihood, ModelFit, fits
from ldpstream.estimators.smooth.draws import Draws, Unbiased
from ldpstream.estimators.smooth.heaps import hidden_heaps
from ldpstream.estimators.smooth.smooth_prior import BIAS, DRAWS, SHARP, TINY, checked_widths, normal_numbers, weights_of
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray

MAX_CELLS = 128  # cells of the models; the time is proportional to the cube of this number
ODDS = {"flat": -3.0, "smooth": 0.0, "bell": 0.0, "heaps": 0.0, "irregular": -4.0, "jumps": 0.0}  # prior log-odds of a model
STEEPER = -0.5  # prior log-odds of a ten times smaller τ
FLATTEST = -1.4  # prior log-odds of the flattest model to all others together
DRAWN_ODDS = ODDS | {"bell": -np.inf, "irregular": 1.0}  # for intervals
ROUGH = 0.3  # part of the distance to the unbiased share's interval that irregular models and jumps add to an interval
SPANS = (1, 2, 4, 8, 16, 32)  # numbers of neighbouring edges; the mean over them bounds the distribution function
PILOT_STEPS = 50  # EM steps from equal shares, for the probabilities of the reports
LEAST_EXPECTED = 0.5  # smallest expected count of a report
MOST_REPORTS = 1e9  # more reports count as this number, because of rounding
ALL = np.zeros(1, int), np.ones((1, 1))  # one group of all values, with the factor 1
LARGEST_FACTOR = 50.0  # largest logarithm of a drawn share's ratio to its mode, against overflow


def number_posterior(groups: list[Group], widths: npt.ArrayLike | None, steps: Steps) -> Estimate:
    """Posterior means of the shares of a number's bins, with posterior draws for intervals, means and quantiles.

    Args:
        groups: checked groups, at least one with reports and a mechanism that is not pure.
        widths, steps: as in `empirical_bayes`.

    Returns:
        As `empirical_bayes`; `converged` is true if the searches for the models with a weight ended before their limits.

    Raises:
        ValueError: if the widths are not k positive finite numbers.
    """
    raw = matrix_inversion(groups, steps=steps)
    w = checked_widths(widths, raw.frequencies.size)
    if np.isnan(raw.frequencies).any():
        return raw
    cells = _Cells(w)
    likelihood = _likelihood(groups, steps, cells)
    found = fits(likelihood)
    weights = _weights(found, [ODDS[fit.kind] + STEEPER * fit.decades for fit in found], FLATTEST)
    shares = cells.spread(np.maximum(weights @ np.array([fit.shares for fit in found]), TINY))
    drawn_weights = _weights(found, [DRAWN_ODDS[fit.kind] for fit in found])
    drawn = cells.spread(np.maximum(_drawn(likelihood, found, drawn_weights), TINY))
    drawn = _of_fewer_people(drawn, raw.n, people_of(groups, steps)[0])
    rough = ROUGH * sum(x for x, fit in zip(drawn_weights.tolist(), found, strict=True) if fit.kind in ("irregular", "jumps"))
    bias = cells.parts * _bias(found, drawn_weights)[cells.of_bin]
    least = SHARP * np.minimum(drawn.std(axis=0), 1 / w.size)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0, method="weibull")
    reach = NORMAL * raw.standard_errors  # the ends move for the published level, and by the same numbers for others
    raw_low, raw_high = np.maximum(raw.frequencies - reach, 0), np.minimum(raw.frequencies + reach, 1)
    below = least + np.maximum(bias, 0) + rough * np.maximum(low - raw_low, 0)
    above = least + np.maximum(-bias, 0) + rough * np.maximum(raw_high - high, 0)
    mean = drawn.mean(axis=0)
    score = likelihood.linear - likelihood.curvature @ np.add.reduceat(mean, cells.first)
    larger, smaller = hidden_heaps(mean, cells.first, score, likelihood.curvature)
    below += np.clip(low - below - raw_low, 0, np.maximum(low - below, 0) * smaller) + TINY
    above += np.clip(raw_high - high - above, 0, larger)
    shares /= shares.sum()
    width = np.minimum(high + above, 1) - np.maximum(low - below, 0)
    errors = np.maximum(drawn.std(axis=0), width / (2 * NORMAL))  # a difference of two shares needs the bias, too
    unbiased = _unbiased(groups, steps, shares, cells)
    used = (weights > 0) | (drawn_weights > 0)
    converged = all(fit.converged for fit, has_weight in zip(found, used, strict=True) if has_weight)
    return Estimate(shares, errors, raw.n, converged=converged, posterior=Draws(drawn, shares, below, above, unbiased))


class _Cells:
    def __init__(self, bin_widths: FloatArray) -> None:
        k = bin_widths.size
        self.size = -(-k // MAX_CELLS)
        self.first, self.of_bin = np.arange(0, k, self.size), np.arange(k) // self.size
        self.widths = np.add.reduceat(bin_widths, self.first)
        self.parts = bin_widths / self.widths[self.of_bin]
        ends = np.concatenate([[0.0], np.cumsum(bin_widths)])
        middles = (ends[1:] + ends[:-1]) / 2
        of_cells = np.add.reduceat(self.parts * middles, self.first)
        place = np.interp(middles, of_cells, np.arange(of_cells.size))
        self._before = np.minimum(place.astype(int), max(of_cells.size - 2, 0))
        self._part = place - self._before

    def spread(self, shares: FloatArray) -> FloatArray:
        if self.first.size == self.of_bin.size:
            return shares
        density = np.log(shares / self.widths)
        inner = (1 - self._part) * density[..., self._before] + self._part * density[..., self._before + 1]
        inner = self.parts * np.exp(inner - density[..., self.of_bin])
        scale = shares / np.add.reduceat(inner, self.first, axis=-1)
        return np.asarray(inner * scale[..., self.of_bin])


def _likelihood(groups: list[Group], steps: Steps, cells: _Cells) -> Likelihood:
    k, size = cells.of_bin.size, cells.first.size
    linear, curvature = np.zeros(size), np.zeros((size, size))
    pilot = em(likelihood_terms(groups, "support"), np.full(k, 1 / k), PILOT_STEPS)[0]
    told = list(informative(groups, steps))
    seen_by: Sequence[Observation | None] = (
        observations(groups, steps) if any(m.pure for m, _, _ in told) else [None] * len(told)
    )
    for (m, table, _), seen in zip(told, seen_by, strict=True):
        scale = min(1.0, MOST_REPORTS / table.n)
        if seen is not None and m.pure:
            precision = scale * seen.precision(pilot)
            own = np.add.reduceat(precision * cells.parts**2, cells.first)
            linear += np.add.reduceat(precision * cells.parts * seen.z, cells.first)
            curvature[np.diag_indices(size)] += own
        else:
            channel, outputs = _channel(m, cells.parts.tobytes(), cells.size)
            counts = np.add.reduceat(table.counts, outputs)
            expected = np.maximum(table.n * (np.add.reduceat(pilot, cells.first) @ channel), LEAST_EXPECTED)
            linear += scale * (channel @ (counts * (table.n / expected)))
            curvature += scale * ((channel * (table.n**2 / expected)) @ channel.T)
    return Likelihood(linear, curvature, cells.widths)


@lru_cache(maxsize=32)
def _channel(m: Mechanism, parts: bytes, size: int) -> tuple[FloatArray, IntArray]:
    channel, of_bins = m.channel(), np.frombuffer(parts)
    rows = np.add.reduceat(of_bins[:, None] * channel, np.arange(0, of_bins.size, size), axis=0)
    outputs = np.arange(0, channel.shape[1], size)
    return np.add.reduceat(rows, outputs, axis=1), outputs


def _weights(found: list[ModelFit], odds: list[float], flattest: float | None = None) -> FloatArray:
    evidence = np.array([fit.log_evidence for fit in found]) + odds
    if flattest is not None:
        evidence[0] = found[0].log_evidence + flattest + np.log(len(found) - 1)
    return weights_of(evidence)


def _drawn(likelihood: Likelihood, found: list[ModelFit], weights: FloatArray) -> FloatArray:
    from scipy.linalg import solve_triangular  # slow to load; only estimates need it

    size = likelihood.widths.size
    normal, drawn = normal_numbers(size, 1)[:, 1:], np.empty((DRAWS, size))
    levels = np.eye(size)[:, 1:]
    last = np.floor(np.cumsum(weights) * DRAWS + 0.5).astype(int).tolist()
    for fit, start, end in zip(found, [0, *last[:-1]], last, strict=True):
        if end > start:
            centred = levels - fit.shares[1:]  # the log-density, relative to its mean over the people
            root = solve_triangular(fit.factor, centred.T, lower=True, check_finite=False)  # (K - 1, K)
            away = normal[start:end] @ root - 0.5 * (root**2).sum(axis=0)
            raw = fit.shares * np.exp(np.minimum(away, LARGEST_FACTOR))
            drawn[start:end] = raw / raw.sum(axis=1, keepdims=True)
    return drawn


def _bias(found: list[ModelFit], weights: FloatArray) -> FloatArray:
    bias = np.zeros(found[0].shares.size)
    for fit, weight in zip(found, weights, strict=True):
        if weight and fit.coarser is not None:
            bias += weight * BIAS / DECADES * (fit.coarser - fit.shares)
    return bias


def _of_fewer_people(drawn: FloatArray, reports: int, people: float) -> FloatArray:
    if people >= reports:
        return drawn
    size = 1 / (1 / people - 1 / reports)
    again = np.maximum(np.random.default_rng(5).standard_gamma(drawn * size), TINY)
    return np.asarray(again / again.sum(axis=1, keepdims=True))


def mean_variance(m: Mechanism, shares: FloatArray, numbers: FloatArray, reports: int = 1) -> float:
    """Returns n times the variance of the unbiased mean of n people's numbers, if each of them makes `reports` reports.

    If the sum of the inverted shares is not 1, all shares change by the same number.

    Args:
        shares: (k,) true shares.
        numbers: (k,) the number that each value stands for.
        reports: number of reports of each person, with an unchanged value.

    >>> from ldpstream.mechanisms import mechanism
    >>> m, uniform = mechanism("SW", k=10, eps=1.0), np.full(10, 0.1)
    >>> round(mean_variance(m, uniform, np.arange(10.0)), 1)
    94.6
    """
    if m.pure:
        return float(_pure_variances(m, shares, numbers - numbers.mean(), *ALL, reports)[0])
    encoded, reported, told = m.reading.encoded(shares), shares @ m.channel(), m.reading.inverse() @ numbers
    of_person = m.fakes**2 * float(encoded @ numbers**2 - (encoded @ numbers) ** 2)
    of_report = float(reported @ told**2 - (reported @ told) ** 2)
    return (of_report + (reports - 1) * of_person) / reports


def _unbiased(groups: list[Group], steps: Steps, shares: FloatArray, cells: _Cells) -> Unbiased:
    k, size = shares.size, cells.first.size
    told = list(informative(groups, steps))
    weights = np.array([inversion_weight(m, table.n / each, each)[:k] for m, table, each in told])
    centre = 1 / weights.sum(axis=0)
    weights *= centre
    centre /= centre.sum()
    mixed = sum(weight * m.reading.inversion(table)[:k] for (m, table, _), weight in zip(told, weights, strict=True))
    exact = mixed + (1 - mixed.sum()) * centre

    def errors(numbers: FloatArray, first: IntArray, parts: FloatArray) -> FloatArray:
        total = np.zeros(parts.shape[1])
        for (m, table, each), weight in zip(told, weights, strict=True):
            a = weight * numbers
            if m.pure:
                total += _pure_variances(m, shares, a, first, parts, each) * each / table.n
            else:
                of_report = np.add.reduceat(m.reading.inverse() * a, first, axis=1) @ parts
                squares = of_report**2
                seen, fitted = (f @ squares - (f @ of_report) ** 2 for f in (table.counts / table.n, shares @ m.channel()))
                of_person = m.fakes**2 * _variances(m.reading.encoded(shares), a, first, parts)
                total += (np.maximum(seen, fitted) + (each - 1) * of_person) / table.n  # few reports may be equal by chance
        return np.asarray(np.sqrt(np.maximum(total, 0)))

    def bounds(reach: float) -> tuple[FloatArray, FloatArray]:
        spans = [span for span in SPANS if span <= size]
        last = np.arange(size + spans[-1])  # a mean ends at this edge; F is 1 at the edges beyond the range
        parts = np.array([np.clip(last - np.arange(size)[:, None], 0, span) / span for span in spans])  # (spans, K, edges)
        sums = np.hstack(list(parts))
        centred = sums - np.add.reduceat(centre, cells.first) @ sums
        error = errors(np.ones(k), cells.first, centred).reshape(len(spans), last.size)
        found, fitted = (np.add.reduceat(f, cells.first) @ parts for f in (exact, shares))  # (spans, edges)
        each, edge = np.arange(len(spans))[:, None], np.arange(size + 1)
        above = edge + np.array(spans)[:, None] - 1
        low, high = reach * error[:, edge], reach * error[each, above]
        from_below = (fitted[:, edge] - low).argmax(axis=0), edge
        from_above = (fitted[each, above] + high).argmin(axis=0), edge
        lower, upper = (found[:, edge] - low)[from_below], (found[each, above] + high)[from_above]
        lower[[0, -1]] = upper[[0, -1]] = 0.0, 1.0
        return np.maximum(lower, 0.0), upper

    return Unbiased(
        exact,
        np.append(cells.first, k),
        bounds,
        lambda numbers: float(errors(numbers - centre @ numbers, *ALL)[0]),
    )


def _pure_variances(
    m: Mechanism, shares: FloatArray, numbers: FloatArray, first: IntArray, parts: FloatArray, reports: int
) -> FloatArray:
    k = shares.size
    noise = m.reading.support_covariance(np.pad(shares, (0, m.k - k)), reports)
    squares = np.add.reduceat(noise.own[:k] * numbers**2, first) @ parts**2
    sums = np.add.reduceat(noise.rows[:, :k] * numbers, first, axis=1) @ parts
    return np.asarray((squares + noise.signs @ sums**2) / (reports * (m.p - m.q)) ** 2)


def _variances(shares: FloatArray, numbers: FloatArray, first: IntArray, parts: FloatArray) -> FloatArray:
    one, two = (np.add.reduceat(shares * numbers**power, first) for power in (1, 2))
    return np.asarray(two @ parts**2 - (one @ parts) ** 2)
