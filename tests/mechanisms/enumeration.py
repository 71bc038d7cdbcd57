"""Privacy losses by enumeration, from the definition alone. Tests compare `mechanisms.ledger` with these losses.

A device draws one memo for each distinct value of its sequence. At every step the device randomizes the memo of the current
value. For sequences x and y of length t

    P(y|x) = Π_{v in x} Σ_m P₁(m|v) Π_{j: x_j = v} P₂(y_j|m)

The functions below sum and multiply these probabilities over all sequences. GRR's symbols are enumerated directly. The bits of
a unary encoding are independent given x, so the loss of a pair (x, x') is a sum over bits. All bits that are not a value of
either sequence have the same loss. `all_bits_loss` uses neither the sum over bits nor the equal losses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Steps = tuple[int, ...]
Values = Sequence[int] | None  # None: all values


@dataclass(frozen=True)
class Rounds:
    """Two rounds of randomized response, of symbols or of bits: p = Pr[x | x], q = Pr[x | another value]."""

    p1: float
    q1: float
    p2: float
    q2: float


# ---- rounds, by the formulas of the papers


def grr_rounds(k: int, eps_inf: float, eps_1: float, *, paper: bool = False) -> Rounds:
    """L-GRR: E = [e^{ε₁}(e^{ε∞}+k-2) - (k-1)] / (e^{ε∞} - e^{ε₁}). The paper computes E for k = 2 and uses this E for every
    k."""
    e1, e = math.exp(eps_inf), math.exp(eps_1)
    symbols = 2 if paper else k
    e2 = (e * (e1 + symbols - 2) - (symbols - 1)) / (e1 - e)
    return Rounds(e1 / (e1 + k - 1), 1 / (e1 + k - 1), e2 / (e2 + k - 1), 1 / (e2 + k - 1))


def unary_round(name: str, eps: float) -> tuple[float, float]:
    """(p, q) of SUE or OUE."""
    if name == "SUE":
        return math.exp(eps / 2) / (math.exp(eps / 2) + 1), 1 / (math.exp(eps / 2) + 1)
    return 0.5, 1 / (math.exp(eps) + 1)


def unary_rounds(name: str, eps_inf: float, eps_1: float) -> Rounds:
    """L-SUE, L-OSUE, L-SOUE or L-OUE. Bisection finds the second round for which one report has the loss ε₁."""
    chains = {"L-SUE": ("SUE", "SUE"), "L-OSUE": ("OUE", "SUE"), "L-SOUE": ("SUE", "OUE"), "L-OUE": ("OUE", "OUE")}
    first, second = chains[name]
    p1, q1 = unary_round(first, eps_inf)
    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        p2, q2 = unary_round(second, middle)
        p, q = p1 * p2 + (1 - p1) * q2, q1 * p2 + (1 - q1) * q2
        low, high = (middle, high) if math.log(p * (1 - q) / ((1 - p) * q)) < eps_1 else (low, middle)
    return Rounds(p1, q1, *unary_round(second, low))


# ---- symbols


def symbol_log_likelihood(k: int, rounds: Rounds, t: int, values: Values = None) -> tuple[Floats, list[Steps]]:
    """ln P(y|x), shape (x, y), for all y of length t and all x with the given values. Also returns the list of all these x."""
    sequences = list(product(range(k) if values is None else values, repeat=t))
    outputs = np.array(list(product(range(k), repeat=t)))
    first = np.full((k, k), rounds.q1) + np.eye(k) * (rounds.p1 - rounds.q1)
    second = np.full((k, k), rounds.q2) + np.eye(k) * (rounds.p2 - rounds.q2)
    rows = []
    for x in sequences:
        log_likelihood = np.zeros(len(outputs))
        for v in set(x):
            at = [j for j in range(t) if x[j] == v]
            reported = second[:, outputs[:, at]].prod(axis=2)  # (memo, y)
            log_likelihood += np.log(first[v] @ reported)
        rows.append(log_likelihood)
    return np.array(rows), sequences


def symbol_loss(k: int, rounds: Rounds, t: int, values: Values = None) -> float:
    """The maximal loss over all pairs of sequences and all outputs."""
    table, _ = symbol_log_likelihood(k, rounds, t, values)
    return float((table.max(axis=0) - table.min(axis=0)).max())


# ---- bits


def bit_log_likelihood(rounds: Rounds, x: Steps, bit: int) -> Floats:
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


def bits_pair_loss(k: int, rounds: Rounds, x: Steps, other: Steps) -> float:
    """The maximal loss over all outputs for one pair of sequences on k bits."""
    hot = set(x) | set(other)
    bits = [(bit, 1) for bit in hot] + [(max(hot) + 1, k - len(hot))]  # the last bit represents all bits that are not a value
    losses = [bit_log_likelihood(rounds, x, bit) - bit_log_likelihood(rounds, other, bit) for bit, _ in bits]
    return sum(count * float(loss.max()) for loss, (_, count) in zip(losses, bits))


def growing(t: int, k: int) -> list[Steps]:
    """All sequences of at most k distinct values. Sequences that differ only by a renaming appear once: new values come in the
    order 0, 1, 2, …."""
    found: list[Steps] = [()]
    for _ in range(t):
        found = [(*x, v) for x in found for v in range(min(max(x, default=-1) + 2, k))]
    return found


def bits_loss(k: int, rounds: Rounds, t: int) -> float:
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


def all_bits_loss(k: int, rounds: Rounds, t: int) -> float:
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
