"""A loop of the truncated geometric mechanism, compiled by Numba."""

from typing import Any

import numba
import numpy.typing as npt

Table = npt.NDArray[Any]


@numba.njit(cache=True)
def two_sided_decay(x: Table, ratio: float, out: Table) -> None:
    """Sets out[i] = sum over j of ratio^|i-j| x[j], by one recursion from each end."""
    total = 0.0
    for i in range(x.size):
        total = total * ratio + x[i]
        out[i] = total
    total = 0.0
    for i in range(x.size - 1, -1, -1):
        out[i] += total
        total = (total + x[i]) * ratio
