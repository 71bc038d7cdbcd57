"""An exponential function, a product, a setting and a type for loops that Numba compiles.

Import this module only in modules of compiled loops, because Numba loads slowly.
"""

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]

SUMS = {"reassoc", "contract"}  # the compiler may add the numbers of a sum in any order, several at once
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # ln 2, whose first part has 21 zero bits at its end
TAYLOR = tuple(1 / math.factorial(n) for n in range(13, -1, -1))  # the exponential series, highest power first
LEAST = -700.0  # below it, the result is that of this number, 1e-304


@numba.njit(cache=True, error_model="numpy")
def exp(x: float) -> Any:
    """Returns e^x for x from -700 to 700, within 4 units in the last place."""
    x = LEAST if x < LEAST else x  # NaN stays
    n = np.floor(x * LOG2_E + 0.5)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = TAYLOR[0]
    for coefficient in TAYLOR[1:]:
        p = p * r + coefficient
    power = np.int64((np.int64(n) + 1023) << 52)  # the bits of 2^n
    return p * power.view(np.float64)


@numba.njit(cache=True, error_model="numpy", fastmath=SUMS)
def dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total
