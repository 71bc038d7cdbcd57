"""The sentences of the overview: what the estimates say, and no more than their intervals.

A value is called the most frequent only if its interval lies above the intervals of all others. Otherwise the values whose
intervals reach that of the largest estimate are too close to call. A difference is named as more than chance only if
`estimators.differences` marks it among all values of all attributes. Numbers are rounded after these decisions.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from unicodedata import bidirectional

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray

MOST = 3  # values, or differences, that a sentence names
LONGEST = 60  # characters of a label that a sentence shows
UNITS = {7 * 86_400_000: "week", 86_400_000: "day", 3_600_000: "hour", 60_000: "minute", 1000: "second"}


def most_frequent(name: str, label: Callable[[int], str], shares: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Names the values that can be the most frequent; the ends of the intervals are known."""
    order = np.argsort(-shares, kind="stable")
    close = [int(v) for v in order if v == order[0] or high[v] >= low[order[0]]]
    shown = " or ".join(f"{short(label(v))} ({percent(shares[v], low[v], high[v])})" for v in close[:MOST])
    if len(close) > MOST:
        return f"{len(close)} of {shares.size} values of {name} are too close to call, such as {shown}"
    return f"{shown} is the most frequent value of {name}{': too close to call' if len(close) > 1 else ''}"


def median(name: str, value: float, low: float, high: float) -> str:
    digits = max(_digits(high - low), int(0.5 in (low % 1, high % 1)))  # an end between two whole numbers has a decimal
    return f"the median of {name} is {value:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})".replace("-", "−")


def change(
    named: Callable[[int], str], differences: FloatArray, low: FloatArray, high: FloatArray, clear: npt.NDArray[np.bool_],
    clearest: Sequence[int], noun: str,
) -> str:  # fmt: skip
    """Names the clear differences over all attributes, or else the largest one.

    Args:
        named: the name of the value at an index of the arrays.
        clearest: all indices, in the order in which clear differences are named.
        noun: "change" or "difference".
    """
    known = ~np.isnan(low)
    if not known.any():
        return "there are no intervals, so nothing can be said."

    def shown(i: int) -> str:
        return f"{named(i)}, {points(differences[i], low[i], high[i])}"

    first = [i for i in clearest if clear[i]]
    if not first:
        largest = int(np.argmax(np.where(known, np.abs(differences), -1)))
        return f"no {noun} is beyond chance. The largest of {known.sum()} is {shown(largest)}."
    parts = [shown(i) for i in first[:MOST]] + [f"{len(first) - MOST} more"] * (len(first) > MOST)
    count = f"1 {noun} is" if len(first) == 1 else f"{len(first)} {noun}s are"
    return f"{count} beyond chance: {'; '.join(parts)}."


def percent(share: float, low: float, high: float) -> str:
    digits = _digits(100 * (high - low))
    return "{} %, {} to {}".format(*(_signed(x, digits).removeprefix("+") for x in (share, low, high)))


def points(difference: float, low: float, high: float) -> str:
    """A difference in percentage points, with the ends of its interval. An end that is not 0 is not rounded to 0."""
    nearest = 100 * min(abs(low), abs(high)) if low * high > 0 else math.inf
    digits = _digits(min(100 * (high - low), 4 * nearest))
    return f"{_signed(difference, digits)} points ({_signed(low, digits)} to {_signed(high, digits)})"


def duration(of_ms: int) -> str:
    """A duration in its largest whole unit: "week", "36 hours"."""
    unit = next(unit for unit in UNITS if of_ms % unit == 0)
    n = of_ms // unit
    return UNITS[unit] if n == 1 else f"{n} {UNITS[unit]}s"


def period(of_ms: int, end_ms: int, latest: bool) -> str:
    """The name of a period, such as "This week", "These 36 hours" or "Week to 17 Nov 2026, 00:00 UTC"."""
    name = duration(of_ms)
    now = f"{'These' if name[0].isdigit() else 'This'} {name}"
    return now if latest else f"{name[0].upper()}{name[1:]} to {utc(end_ms)}"


def earlier(of_ms: int, start_ms: int, before: tuple[int, int]) -> str:
    """The name of the period `before`, which is subtracted from a period that begins at `start_ms`."""
    began_ms, ended_ms = before
    adjacent = ended_ms == start_ms and ended_ms - began_ms == of_ms
    return f"Against the {duration(ended_ms - began_ms)} {'before' if adjacent else f'to {utc(ended_ms)}'}"


def utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%-d %b %Y, %H:%M UTC")


def _signed(share: float, digits: int) -> str:
    rounded = round(100 * share, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"


def _digits(width: float) -> int:
    return 0 if width >= 2 or width == 0 else min(9, math.ceil(-math.log10(max(width, 1e-9) / 2)))


def short(label: str) -> str:
    """A label within a sentence: shortened, and isolated if it is written from right to left."""
    text = label if len(label) <= LONGEST else f"{label[:LONGEST]}…"
    return f"\u2068{text}\u2069" if any(bidirectional(character) in ("R", "AL") for character in text) else text
