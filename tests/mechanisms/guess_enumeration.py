"""Chances of a right guess by brute force: all outputs, all sequences of values. For few values and reports only."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Longitudinal, Mechanism
from tests.mechanisms import reference

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Likelihoods = dict[tuple[int, ...], Floats]


def likelihoods(m: Mechanism, t: int) -> Likelihoods:
    """P(y|x) over all outputs y of t reports, for every sequence x of t values."""
    sequences = list(product(range(m.k), repeat=t))
    if not isinstance(m, Longitudinal):
        channel = m.channel()
        return {x: _joined(channel[v] for v in x) for x in sequences}
    memo, kernel = reference.written(m).rounds(m)
    keys, weights = reference.written(m).keys(m), memo.sum(axis=2)[0]
    found: Likelihoods = {}
    for x in sequences:
        blocks = [w * _of_memos(keys[b][list(x)], memo[list(x), b] / w, kernel) for b, w in enumerate(weights)]
        found[x] = np.concatenate(blocks)
    return found


def _of_memos(keys: Ints, memos: Floats, kernel: Floats) -> Floats:
    """P(y|x) of all outputs, if steps with the same key have the same memo.

    Args:
        keys: (t,) the key of each step's memo.
        memos: (t, memos) Pr[memo] at each step.
        kernel: (memos, reports) Pr[report | memo].
    """
    t = len(keys)
    joint = np.ones((kernel.shape[1],) * t)
    for key in set(keys.tolist()):
        steps = np.flatnonzero(keys == key)
        of_key = np.ones((len(kernel), *(1 for _ in keys)))
        for i in steps:
            of_key = of_key * kernel.reshape(len(kernel), *(kernel.shape[1] if i == j else 1 for j in range(t)))
        joint = joint * np.tensordot(memos[steps[0]], of_key, 1)
    return joint.ravel()


def _joined(rows: Iterable[Floats]) -> Floats:
    joint = np.ones(1)
    for row in rows:
        joint = np.multiply.outer(joint, row).ravel()
    return joint


def success(rows: Iterable[Floats]) -> float:
    """Mean success of the best guesser, if row v holds the likelihoods of all outputs under hypothesis v."""
    table = np.array(list(rows))
    return float(table.max(axis=0).sum() / len(table))


def sequence_loss(m: Mechanism, t: int) -> float:
    """The largest loss between any two sequences of t values, over all outputs."""
    logs = np.log(np.array(list(likelihoods(m, t).values())))
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


def unchanged(m: Mechanism, t: int) -> list[Floats]:
    of = likelihoods(m, t)
    return [of[(v,) * t] for v in range(m.k)]


def changing(m: Mechanism, t: int) -> Iterable[list[Floats]]:
    """For every choice of functions from the first value to the later values: the likelihoods under each first value."""
    of = likelihoods(m, t)
    for maps in product(product(range(m.k), repeat=m.k), repeat=t - 1):
        yield [of[(v, *(f[v] for f in maps))] for v in range(m.k)]


def device(asked: Mechanism, others: Sequence[Mechanism], collection: str, t: int) -> float:
    """The largest chance of guessing a constant value of `asked`, if the other values are any functions of this value."""
    own, worst = unchanged(asked, t), 0.0
    rows = [unchanged(other, t) for other in others]
    for hints in product(*(product(range(other.k), repeat=asked.k) for other in others)):
        if collection == "spl":
            cases = [[_joined([own[v], *(r[f[v]] for r, f in zip(rows, hints, strict=True))]) for v in range(asked.k)]]
        else:
            cases = [own, *([r[f[v]] for v in range(asked.k)] for r, f in zip(rows, hints, strict=True))]
        worst = max(worst, *map(success, cases), 0.0)
    return worst


def device_any_values(asked: Mechanism, other: Mechanism, collection: str, t: int) -> float:
    """The largest success against the value of `asked` at the first of t steps, over all functions to all other values."""
    theirs, worst = likelihoods(other, t), 0.0
    hints = list(product(product(range(other.k), repeat=asked.k), repeat=t))
    for own in changing(asked, t):
        if collection == "spl":
            for maps in hints:
                rows = [_joined([own[v], theirs[tuple(f[v] for f in maps)]]) for v in range(asked.k)]
                worst = max(worst, success(rows))
        else:
            worst = max(worst, success(own))
    if collection != "spl":
        worst = max(worst, *(success(theirs[tuple(f[v] for f in maps)] for v in range(asked.k)) for maps in hints))
    return worst
