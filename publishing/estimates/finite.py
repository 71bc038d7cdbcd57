"""Keeps numbers that are not finite out of the publications.

If an estimator raises an ArithmeticError or a ValueError, or returns a number that is not finite, its numbers are left out.
`Diagnostics.failed` names the missing parts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import structlog

from ldpstream.publishing.estimates.cross_table import CrossTable
from ldpstream.publishing.estimates.frequencies import Frequencies, with_nan
from ldpstream.publishing.estimates.publication import Diagnostics, LevelEstimate, Publication

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
    shares = {name: _finite_shares(found) for name, found in p.estimators.items()}
    numbers = all(_is_finite(msgspec.structs.astuple(x)) for x in p.numbers.values())
    levels = {name: _finite_level(found) for name, found in p.levels.items()}
    change = p.change is None or _is_finite(msgspec.structs.astuple(p.change))
    diagnostics, unsaid = _finite_diagnostics(p.diagnostics)
    lost = [*failed, *(name for name, found in shares.items() if found is not p.estimators[name]), *unsaid]
    lost += [f"level {name}" for name, found in levels.items() if found is not p.levels[name]]
    lost += [] if numbers else ["numbers"]
    lost += [] if change else ["change"]
    table = not isinstance(p.table, CrossTable) or _is_finite_table(p.table)
    lost += [] if table else ["table"]
    if not lost:
        return p
    log.error("estimate failed", survey=p.survey, attribute=p.attribute, step=p.step, span=p.span, cohort=p.cohort, parts=lost)
    return msgspec.structs.replace(
        p, estimators=shares, numbers=p.numbers if numbers else {}, levels=levels, change=p.change if change else None,
        table=p.table if table else None,
        diagnostics=msgspec.structs.replace(diagnostics, failed=tuple(dict.fromkeys(lost))),
    )  # fmt: skip


def _is_finite(numbers: Sequence[Any]) -> bool:
    return all(math.isfinite(x) for x in numbers if isinstance(x, float))


def _is_finite_table(table: CrossTable) -> bool:
    parts = (table.cells, table.rows, table.columns, table.within_rows, table.within_columns)
    tested = () if table.independence is None else msgspec.structs.astuple(table.independence)
    return _is_finite(tested) and all(_is_finite(numbers) for part in parts for numbers in msgspec.structs.astuple(part))


def _finite_shares(found: Frequencies) -> Frequencies:
    parts = (found.frequencies, found.standard_errors, found.low or (), found.high or (), (found.gap or 0.0,))
    if all(_surely_finite(part) for part in parts):
        return found
    f, errors = with_nan(found.frequencies), with_nan(found.standard_errors)
    ends = [with_nan(end) for end in (found.low, found.high) if end is not None]
    sound = bool(np.isnan([f, *ends]).all() or np.isfinite([f, *ends]).all())
    sound = sound and not np.isinf(errors).any() and (found.gap is None or math.isfinite(found.gap))
    return found if sound else Frequencies.nothing(f.size)


def _surely_finite(numbers: Sequence[float | None]) -> bool:
    try:
        return math.isfinite(sum(cast(Sequence[float], numbers)))
    except TypeError:  # a number is None
        return False


def _finite_level(found: LevelEstimate) -> LevelEstimate:
    f, errors = with_nan(found.frequencies), with_nan(found.standard_errors)
    if not np.isinf(f).any() and not np.isinf(errors).any():
        return found
    none: list[float | None] = [None] * f.size
    return msgspec.structs.replace(found, frequencies=none, standard_errors=none)


def _finite_diagnostics(said: Diagnostics) -> tuple[Diagnostics, list[str]]:
    changed: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(said).items():
        if isinstance(value, float) and not math.isfinite(value):
            changed[name] = None
        elif isinstance(value, dict) and not _is_finite(list(value.values())):
            changed[name] = {level: x if _is_finite([x]) else None for level, x in value.items()}
    return msgspec.structs.replace(said, **changed), list(changed)
