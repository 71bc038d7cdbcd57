"""Privacy losses by enumeration, from the definition alone. Tests compare `mechanisms.ledger` with these losses.

A device draws one memo for each distinct value of its sequence. At every step the device randomizes the memo of the current
value. For sequences x and y of length t

    P(y|x) = Π_{v in x} Σ_m P₁(m|v) Π_{j: x_j = v} P₂(y_j|m)

The bits of a unary encoding are independent given x, so the loss of a pair (x, x') is a sum over bits. All bits that are not a
value of either sequence have the same loss. `all_bits_loss` uses neither the sum over bits nor the equal losses.
"""

from itertools import product

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Longitudinal

Floats = npt.NDArray[np.float64]
Steps = tuple[int, ...]


def bit_log_likelihood(rounds: Longitudinal, x: Steps, bit: int) -> Floats:
    """ln P(y|x) for all 2^t sequences y of one bit."""
    outputs = np.array(list(product((0, 1), repeat=len(x))))
    second = np.array([[1 - rounds.q2, rounds.q2], [1 - rounds.p2, rounds.p2]])  # (memo's bit, report's bit)
    total = np.zeros(len(outputs))
    for v in set(x):
        one = rounds.p1 if v == bit else rounds.q1
        at = [j for j in range(len(x)) if x[j] == v]
        reported = second[:, outputs[:, at]].prod(axis=2)
        total += np.log(np.array([1 - one, one]) @ reported)
    return total


def growing(t: int, k: int) -> list[Steps]:
    """All sequences of at most k distinct values. Sequences that differ only by a renaming appear once: new values come in the
    order 0, 1, 2, …."""
    found: list[Steps] = [()]
    for _ in range(t):
        found = [(*x, v) for x in found for v in range(min(max(x, default=-1) + 2, k))]
    return found


def bits_loss(k: int, rounds: Longitudinal, t: int) -> float:
    """The maximal loss over all pairs of sequences on k bits and all outputs. At most 2t values matter."""
    named = min(k, 2 * t)
    others = list(product(range(named), repeat=t))
    tables = [np.array([bit_log_likelihood(rounds, x, bit) for x in others]) for bit in range(named)]
    cold_table = np.array([bit_log_likelihood(rounds, x, named) for x in others])
    best = 0.0
    for x in growing(t, k):
        loss = sum((bit_log_likelihood(rounds, x, bit) - tables[bit]).max(axis=1) for bit in range(named))
        loss = loss + (k - named) * (bit_log_likelihood(rounds, x, named) - cold_table).max(axis=1)
        best = max(best, float(np.max(loss)))
    return best


def all_bits_loss(k: int, rounds: Longitudinal, t: int) -> float:
    """Computes the same loss as `bits_loss` without simplification: the maximum over all pairs of sequences and all 2^(kt)
    outputs."""
    rows = []
    for x in product(range(k), repeat=t):
        joint = np.zeros(1)
        for bit in range(k):
            joint = np.add.outer(joint, bit_log_likelihood(rounds, x, bit)).ravel()
        rows.append(joint)
    table = np.array(rows)
    return float((table.max(axis=0) - table.min(axis=0)).max())
