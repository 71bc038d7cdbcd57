"""Keeps numbers that are not finite out of the publications.

If an estimator raises an ArithmeticError or a ValueError, or returns a number that is not finite, its numbers are left out.
`Diagnostics.failed` names the missing parts.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import structlog

from ldpstream.publishing.estimates.frequencies import Frequencies
from ldpstream.publishing.estimates.publication import Diagnostics, Publication

log = structlog.get_logger("ldpstream.estimator")
T = TypeVar("T")


class Attempts:
    """Calculates the parts of a publication, and continues if one raises an error.

    Attributes:
        failed: the names of the parts that raised an error.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []

    def of(self, name: str, make: Callable[[], T], otherwise: T) -> T:
        try:
            return make()
        except (ArithmeticError, ValueError):
            log.exception("estimate failed", part=name)
            self.failed.append(name)
            return otherwise


def finite(p: Publication, failed: Sequence[str] = ()) -> Publication:
    shares = {
        name: found if _is_sound(found) else Frequencies.nothing(len(found.frequencies)) for name, found in p.estimators.items()
    }
    lost = [*failed, *(name for name, found in shares.items() if found is not p.estimators[name])]
    nothing: dict[str, Any] = {
        "levels": {}, "numbers": {}, "change": None, "table": None, "diagnostics": Diagnostics(mass_below_zero=None, fit_z={}),
    }  # fmt: skip
    others = msgspec.to_builtins(msgspec.structs.replace(p, estimators={}))
    left_out = {name: empty for name, empty in nothing.items() if not _is_finite(others.get(name))}
    lost += left_out
    if not lost:
        return p
    log.error("estimate failed", survey=p.survey, attribute=p.attribute, step=p.step, span=p.span, cohort=p.cohort, parts=lost)
    made = msgspec.structs.replace(p, estimators=shares, **left_out)
    return msgspec.structs.replace(
        made, diagnostics=msgspec.structs.replace(made.diagnostics, failed=tuple(dict.fromkeys(lost)))
    )


def _is_finite(part: Any) -> bool:
    """Returns False if a number in `part`, of built-in types, is infinite or NaN; None counts as finite."""
    if isinstance(part, dict):
        part = list(part.values())
    if not isinstance(part, list | tuple):
        return not isinstance(part, float) or math.isfinite(part)
    with suppress(TypeError):  # most lists have only numbers and None
        if math.isfinite(sum(filter(None, part))):  # for speed; finite numbers may have an infinite sum
            return True
    return all(map(_is_finite, part))


def _is_sound(found: Frequencies) -> bool:
    """Returns True if the numbers are finite, and the shares and their intervals are all there or all missing."""
    shares = (found.frequencies, *(end for end in (found.low, found.high) if end is not None))
    return _is_finite(msgspec.to_builtins(found)) and len({number is None for part in shares for number in part}) <= 1
