"""Sets of values as integers, for questions with several answers.

The code of a set has bit i set if the set has the value i. A set of c values is padded with the first m - c of the m dummies,
the symbols n … n + m - 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.arrays import np, npt

MAX_SET_VALUES = 30  # codes fit 32 bits in every language


def code_of(values: Iterable[int]) -> int:
    return sum(1 << value for value in values)


def set_codes(n: int, choices: int) -> IntArray:
    """The codes of all sets of at most `choices` of n values, in the order of their sizes."""
    return np.array([code_of(s) for size in range(choices + 1) for s in combinations(range(n), size)], np.int64)


def n_sets(n: int, choices: int) -> int:
    return sum(math.comb(n, size) for size in range(choices + 1))


def members(codes: IntArray, n: int, choices: int) -> npt.NDArray[np.bool_]:
    """(len(codes), n + choices), true for the members of each padded set."""
    chosen = (codes[:, None] >> np.arange(n)) & 1 == 1
    left = choices - chosen.sum(axis=1)
    return np.concatenate([chosen, np.arange(choices) < left[:, None]], axis=1)


def checked_codes(codes: npt.ArrayLike, n: int, choices: int) -> IntArray:
    """Returns people's sets as (n,) int64 codes. The error message never shows a set."""
    array = np.asarray(codes)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"values must be a one-dimensional array of codes of sets, got {array.ndim} dimensions of {array.dtype}"
        )
    wrong = (array < 0) | (array >= 2**n)
    wrong |= np.bitwise_count(np.where(wrong, 0, array)) > choices
    if wrong.any():
        raise ValueError(
            f"values must be codes of sets of at most {choices} of {n} values, got {int(wrong.sum())} others, "
            f"the first at position {int(wrong.argmax())}"
        )
    return array.astype(np.int64, copy=False)
