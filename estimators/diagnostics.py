"""Signs that counts are not what the mechanism makes of honest answers, and how far the estimates have moved.

Each fit is a z-score: standard normal if every report is a device's own, whatever the values are. Which sign there is depends
on the mechanism:

    unary encodings    ones per report: p + (k-1) q on average, whatever the value. Reports that support more values than a
                       device's would (to push many at once) or fewer (empty ones) move it
    local hashing      reports per hash function: devices draw it uniformly. Reports made up for a chosen function move it
    every other        the value that is counted least: no value can fall below q of all reports but by chance

A forger who sticks to what devices send, with values of his choice, cannot be seen in counts, by these or by any other means.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from estimators.estimate import Estimate
from mechanisms import CountTable, Longitudinal, Mechanism
from mechanisms.arguments import integer
from mechanisms.local_hashing import LocalHashing, LongitudinalHashing
from mechanisms.unary import LongitudinalUnary, UnaryEncoding

MAX_Z = 1e6


def fit(m: Mechanism, table: CountTable, steps: int = 1) -> float:
    """z-score of the counts under the mechanism; NaN without reports, and for mechanisms of which nothing is testable.

    Args:
        m: a pure mechanism.
        table: its counts.
        steps: over how many steps they were summed. The same n/steps people are taken to have reported at every step, from the
            same memos; if it was others, the score is nearer to zero than it could be.

    Raises:
        ValueError: if the table is not the mechanism's, or steps < 1.
    """
    integer("steps", steps, 1, 2**31)
    m.require(table)
    device = m.device
    if not table.n:
        return math.nan
    if isinstance(device, (UnaryEncoding, LongitudinalUnary)):
        z = _ones(device, table, steps)
    elif isinstance(device, (LocalHashing, LongitudinalHashing)):
        z = _functions(device, table, steps)
    else:
        z = _least(m, table, steps)
    return float(np.clip(z, -MAX_Z, MAX_Z))


def _ones(m: UnaryEncoding | LongitudinalUnary, table: CountTable, steps: int) -> float:
    """Ones in all reports against their mean, which does not depend on the values, nor on fake ones."""
    memo_p, memo_q, p2, q2 = m._rounds()
    others = m.k - 1
    expected_memo = memo_p + others * memo_q
    fresh = expected_memo * p2 * (1 - p2) + (m.k - expected_memo) * q2 * (1 - q2)
    kept = (p2 - q2) ** 2 * (memo_p * (1 - memo_p) + others * memo_q * (1 - memo_q))
    variance = table.n / steps * (steps * fresh + steps**2 * kept)
    excess = float(table.counts.sum()) - table.n * (m.p + others * m.q)
    return excess / math.sqrt(variance) if variance > 0 else math.copysign(MAX_Z, excess) if abs(excess) > 0.5 else 0.0


def _functions(m: LocalHashing | LongitudinalHashing, table: CountTable, steps: int) -> float:
    """Pearson's χ² of the reports per function against the uniform distribution, standardised by its exact mean and variance.

    A device with a kept function adds `steps` reports to it, which makes χ² so many times as large.
    """
    repeats = steps if isinstance(m, Longitudinal) else 1
    reports, size = table.counts.sum(axis=1) / repeats, m.pool.size
    n = table.n / repeats
    if n < 2 or size < 2:
        return math.nan
    chi_squared = float(((reports - n / size) ** 2).sum() * size / n)
    return (chi_squared - (size - 1)) / math.sqrt(2 * (size - 1) * (n - 1) / n)


def _least(m: Mechanism, table: CountTable, steps: int) -> float:
    """The least supported value against a frequency of zero: Bonferroni's bound for the least of k, as a normal quantile."""
    support = m.support(table)
    variance = float(m.support_covariance(np.zeros(1), steps)[0][0]) * table.n / steps
    if variance <= 0:
        return math.nan
    least = (float(support.min()) - table.n * m.q) / math.sqrt(variance)
    log_p = min(float(norm.logcdf(least)) + math.log(m.k), math.log(0.5))
    return float(norm.ppf(math.exp(log_p))) if log_p > -700 else least


@dataclass(frozen=True, slots=True)
class Drift:
    """The largest move of a frequency between two estimates: in standard errors of the difference, and of which value."""

    sigma: float
    value: int


def drift(before: Estimate, after: Estimate) -> Drift | None:
    """How far the frequencies have moved; None if one of the two has no reports.

    The two estimates' errors are taken for independent. With kept memos a part of them is the same in both and cancels, so what
    is reported is then the smaller, careful figure. Among k values the largest of so many standard normals is about
    sqrt(2 ln k) without any drift; above 5 it is hardly ever chance, even for k = 10 000 (probability 0.6 %).
    """
    spread = np.hypot(before.standard_errors, after.standard_errors)
    moved = np.abs(after.frequencies - before.frequencies)
    if np.isnan(spread).any() or np.isnan(moved).any():
        return None
    scores = np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)
    return Drift(float(scores.max()), int(scores.argmax()))


def mass_below_zero(estimate: Estimate) -> float:
    """Σ of the negative frequencies, as a positive number: what noise has put below zero; NaN without reports."""
    return float(-np.minimum(estimate.frequencies, 0).sum())
