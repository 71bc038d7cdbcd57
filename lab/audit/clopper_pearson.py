"""Exact confidence bounds of a probability from a count, and of a privacy loss from two counts.

Source: Clopper and Pearson 1934; for privacy audits Jagielski, Ullman and Oprea 2020, "Auditing differentially private
machine learning", §3.
"""

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from ldpstream.mechanisms.arguments import FloatArray


def lower(successes: npt.ArrayLike, trials: int, alpha: float) -> FloatArray:
    """Lower bound of a probability, with confidence at least 1 - alpha; 0 if there are no successes."""
    x = np.asarray(successes, float)
    return np.where(x == 0, 0.0, betaincinv(np.maximum(x, 0.5), trials - x + 1, alpha))


def upper(successes: npt.ArrayLike, trials: int, alpha: float) -> FloatArray:
    """Upper bound of a probability, with confidence at least 1 - alpha; 1 if there are no failures."""
    x = np.asarray(successes, float)
    return np.where(x == trials, 1.0, betaincinv(x + 1, np.maximum(trials - x, 0.5), 1 - alpha))


def loss_bound(hits: npt.ArrayLike, false_hits: npt.ArrayLike, trials: int, alpha: float) -> FloatArray:
    """ln(lower(hits) / upper(false hits)), at least 0: a lower bound of the privacy loss, wrong with probability at most alpha.

    Args:
        hits: count of an event among reports of one value; the event was fixed before these reports were seen.
        false_hits: count of the same event among the same number of reports of another value.
        alpha: probability of error, half of it for each of the two bounds.
    """
    low, high = lower(hits, trials, alpha / 2), upper(false_hits, trials, alpha / 2)
    return np.log(np.maximum(low / high, 1.0))
