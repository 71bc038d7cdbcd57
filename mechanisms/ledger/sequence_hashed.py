"""Privacy loss of memoized local hashing between any two value sequences, also for fewer values than symbols.

If k >= g, some function maps the values onto all g symbols, and the loss equals the loss of L-GRR on g symbols. If k < g, the
values have at most k different symbols, and L-GRR's loss is only an upper bound.
"""

from functools import lru_cache

import numpy as np

from ldpstream.mechanisms.arguments import MAX_K, integer
from ldpstream.mechanisms.ledger.bound_grr import GRRRounds
from ldpstream.mechanisms.ledger.sequence_grr import eps_sequence_grr
from ldpstream.mechanisms.ledger.sequence_loss import SequenceLoss, between, partitions

_EXACT_T = 6


def eps_sequence_hashed(t: int, *, k: int, g: int, log_e1: float, log_e2: float) -> SequenceLoss:
    """Largest loss of t reports of L-BLH or L-OLH between any two value sequences and with any hash function, in nats.

    For k < g and t <= 6 the result is exact. Otherwise the result comes from `eps_sequence_grr` on g symbols.

    Args:
        t: number of reports, in [1, 2^50].
        k: number of values, in [2, 2^31).
        g: number of symbols, in [2, 2^31).
        log_e1, log_e2: as in `eps_sequence_grr`.

    Raises:
        ValueError: if an argument is outside its range.

    >>> loss = eps_sequence_hashed(3, k=2, g=4, log_e1=2.0, log_e2=1.5731722)
    >>> round(loss.value, 3), loss.exact
    (2.678, True)
    """
    bound = eps_sequence_grr(t, k=g, log_e1=log_e1, log_e2=log_e2)
    if integer("k", k, 2, MAX_K) >= g:
        return bound
    rounds = GRRRounds(g, log_e1, log_e2)
    value, witness = _few_values(min(t, _EXACT_T), k, rounds)
    if t <= _EXACT_T:
        return SequenceLoss(value, True, witness)
    return between(value, bound.value, f"the first {_EXACT_T} steps: {witness}")  # the loss never falls with t


@lru_cache(maxsize=4096)
def _few_values(t: int, k: int, rounds: GRRRounds) -> tuple[float, str]:
    found = [
        (_spread(own, others, k, rounds), own, others)
        for n in range(t + 1)
        for own in partitions(n, k)
        for others in partitions(t - n, rounds.k - k)
    ]
    loss, own, others = max(found)
    return loss, f"reports of each symbol that belongs to a value: {own}; of each other symbol: {others}"


def _spread(own: tuple[int, ...], others: tuple[int, ...], k: int, rounds: GRRRounds) -> float:
    """`own` holds the numbers of reports of the k values' symbols, `others` those of the other symbols."""
    shape = tuple(n + 1 for n in own + others)
    states = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    below = np.asarray((states[:, None, :] >= states[None, :, :]).all(axis=2))
    place = np.cumprod((1, *shape[:0:-1]))[::-1]
    rest = np.where(below, (states @ place)[:, None] - (states @ place)[None, :], 0)
    most = np.where(states.any(axis=1), -np.inf, 0.0)
    least = -most
    unreported = min(k - len(own), sum(own + others))
    for value in [*range(len(own)), *[None] * unreported]:
        row = rounds.row(states, value)[None, :]
        most = np.where(below, most[rest] + row, -np.inf).max(axis=1)
        least = np.where(below, least[rest] + row, np.inf).min(axis=1)
    return float(most[-1] - least[-1])
