"""An exponential function, a setting and a type for loops that Numba compiles.

Import this module only in modules of compiled loops, because Numba loads slowly.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]

SUMS = {"reassoc", "contract"}  # the compiler may add the numbers of a sum in any order, several at once
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # ln 2, whose first part has 21 zero bits at its end
LEAST = -700.0  # below it, the result is that of this number, 1e-304


@numba.njit(cache=True, error_model="numpy")
def exp(x: float) -> Any:
    """Returns e^x for x from -700 to 700, within 4 units in the last place."""
    x = LEAST if x < LEAST else x  # NaN stays
    n = np.floor(x * LOG2_E + 0.5)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = 1 / 6227020800.0
    p = p * r + 1 / 479001600.0
    p = p * r + 1 / 39916800.0
    p = p * r + 1 / 3628800.0
    p = p * r + 1 / 362880.0
    p = p * r + 1 / 40320.0
    p = p * r + 1 / 5040.0
    p = p * r + 1 / 720.0
    p = p * r + 1 / 120.0
    p = p * r + 1 / 24.0
    p = p * r + 1 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = np.int64((np.int64(n) + 1023) << 52)  # the bits of 2^n
    return p * power.view(np.float64)
