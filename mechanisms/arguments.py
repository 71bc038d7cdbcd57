"""Checks of arguments."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ldpstream.mechanisms.arrays import np, npt
from ldpstream.mechanisms.wording import did_you_mean

MAX_EPS = 700.0  # exp(700) does not overflow a double
MIN_EPS = 1e-9  # at this ε, the rounding of p and q leaves about seven digits of p - q
MAX_K = 2**31 - 1
MAX_COUNT = 2**62  # largest number of reports, people or bytes; the sum of two smaller numbers fits in an int64

if TYPE_CHECKING:
    IntArray = npt.NDArray[np.int64]
    FloatArray = npt.NDArray[np.float64]
    Reports = npt.NDArray[Any]  # (n,) or (n, row) of the mechanism's report_dtype; one row is one report in the wire format
else:
    IntArray = FloatArray = Reports = Any  # the types would load NumPy


def integer(name: str, value: object, low: int, high: int) -> int:
    """Returns `value` as an int in [low, high]; raises ValueError for other values, also booleans and fractions."""
    if type(value) is int and low <= value <= high:  # the usual case; the tests below are slow
        return value
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise ValueError(f"{name} must be an integer in [{low}, {high}], got {value!r}")
    return int(value)


def real(name: str, value: object, low: float, high: float) -> float:
    """Returns `value` as a float in [low, high]; raises ValueError for other values, also booleans, NaN and infinities."""
    if isinstance(value, bool) or not isinstance(value, Real) or not _within(value, low, high):
        raise ValueError(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}")
    return float(value)


def _within(value: Any, low: float, high: float) -> bool:
    return bool(low <= value <= high)  # no float() before this check: float() raises OverflowError for a huge integer


def epsilon(name: str, value: object) -> float:
    """Returns `value` as a privacy parameter in nats: a float in [1e-9, 700]."""
    return real(name, value, MIN_EPS, MAX_EPS)


def chain_epsilons(eps_inf: object, eps_1: object) -> tuple[float, float]:
    """Returns the pair (eps_inf, eps_1) of a longitudinal mechanism: 1e-9 <= eps_1 < eps_inf <= 700."""
    long, single = epsilon("eps_inf", eps_inf), epsilon("eps_1", eps_1)
    if single >= long:
        raise ValueError(f"eps_1 must be in (0, eps_inf) = (0, {long:g}), got {single!r}")
    return long, single


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Returns `value` if it is one of the allowed words; otherwise raises a ValueError that lists them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}{did_you_mean(str(value), allowed)}")
    return str(value)


def user_values(values: npt.ArrayLike, k: int) -> IntArray:
    """Returns people's values as an (n,) int64 array in [0, k). The error message never shows a value."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"values must be a one-dimensional array of integers in [0, {k}), got {array.ndim} dimensions of {array.dtype}"
        )
    wrong = (array < 0) | (array >= k)
    if wrong.any():
        raise ValueError(
            f"values must be integers in [0, {k}), got {int(wrong.sum())} outside, the first at position {int(wrong.argmax())}"
        )
    return array.astype(np.int64, copy=False)


def logaddexp(x: float, y: float) -> float:
    """ln(e^x + e^y), with the same bits as NumPy's function."""
    if x == y:
        return x + math.log(2)
    return max(x, y) + math.log1p(math.exp(-abs(x - y)))


def log1mexp(x: float) -> float:
    """ln(1 - e^-x) for x > 0, accurate for small and large x (Maechler 2012, "Accurately computing log(1 - exp(-|a|))")."""
    return math.log(-math.expm1(-x)) if x < math.log(2) else math.log1p(-math.exp(-x))
