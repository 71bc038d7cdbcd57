"""The history before a survey's start: the estimates of the surveys that it replaces, where their values mean the same.

A part that is not joined has no numbers, and gives the reason.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ldpstream.publishing.answers.schema import EarlierPart, Line
from ldpstream.publishing.answers.shares import ends_ms, names_of, result_of
from ldpstream.publishing.estimates.frequencies import Frequencies, plain_number
from ldpstream.publishing.estimates.publication import Publication, Span, publication_key
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.surveys import Survey
from ldpstream.surveys.life.lineage import join

MOST_STEPS = 1000  # largest number of steps that are read; a longer series is read at every n-th step


class Replaced(NamedTuple):
    """A survey that another survey replaces, and the reader of its saved publications."""

    survey: Survey
    source: KeptResults


class Shown(NamedTuple):
    """A value of a series.

    Attributes:
        place: index of the value in the estimates; None if the estimates do not have the value.
    """

    value: int
    label: str
    place: int | None


def kept_steps(survey: Survey, progress: Progress | None, latest: int, last: int) -> range:
    """Returns the last `last` steps up to `latest`, in order, without the steps whose estimates are no longer kept.

    If there are more than `MOST_STEPS`, the range has every n-th step (`range.step`), the latest step included.
    """
    if progress is None:
        return range(0)
    first = max(progress.first_step, progress.next_step - survey.retention_steps, latest - last + 1)
    steps = range(latest, first - 1, -1)
    return steps[:: max(1, math.ceil(len(steps) / MOST_STEPS))][::-1]


def of_steps(survey: Survey, found: Sequence[Publication], every: int) -> dict[str, Any]:
    """Returns the fields of `OfSteps`."""
    ends = [ends_ms(survey, p) for p in found]
    return {
        "every": every, "steps": [p.step for p in found], "start_ms": [start for start, _ in ends],
        "end_ms": [end for _, end in ends], "reports": [p.reports for p in found], "complete": [p.complete for p in found],
    }  # fmt: skip


def lines(results: Sequence[Frequencies], values: Sequence[Shown], confidence: float) -> list[Line]:
    """Returns one line for each value. Each list of a line has one number for each result, or None."""
    estimates = [result.estimate() for result in results]
    ends = [estimate.interval(confidence) for estimate in estimates]
    return [
        Line(
            value=value, label=label,
            frequencies=[None if place is None else plain_number(e.frequencies[place]) for e in estimates],
            low=[None if place is None else plain_number(low[place]) for low, _ in ends],
            high=[None if place is None else plain_number(high[place]) for _, high in ends],
        )
        for value, label, place in values
    ]  # fmt: skip


def chain(survey: Survey, served: Mapping[str, Replaced]) -> list[Replaced]:
    """Returns the surveys that `survey` replaces, directly or indirectly, latest first, as far as `served` has them."""
    found: list[Replaced] = []
    seen, before = {survey.fingerprint.hex()}, survey.replaces
    while before is not None and before in served and before not in seen:
        found.append(served[before])
        seen.add(before)
        before = found[-1].survey.replaces
    return found


def earlier_parts(
    survey: Survey,
    replaced: Sequence[Replaced],
    name: str,
    span: Span,
    estimator: str,
    values: Sequence[int],
    confidence: float,
    n_steps: int,
    cohort: str | None = None,
) -> list[EarlierPart]:
    """The parts of a series from the replaced surveys, the oldest part first.

    All steps of a part end at or before the start of the next survey. No part precedes a part that is not joined.

    Args:
        cohort: as in the series; a cohort's history ends at a survey without this cohort.
    """
    parts: list[EarlierPart] = []
    attribute = survey.attributes[survey.index(name)]
    shown, later = [Shown(v, attribute.label(v), v) for v in values], survey
    for old, source in replaced:
        if n_steps <= 0:
            break
        joined = join(old, later, name)
        lacking = cohort is not None and not _has_cohort(old, survey, cohort)
        if lacking or not joined.joined or (span == "window" and not joined.windows):
            reason = f"{old.name} has no such cohort" if joined.joined and lacking else joined.reason
            parts.append(_left_out(old.name, old.fingerprint.hex(), reason))
            break
        shown = [Shown(v, label, None if place is None else joined.places[place]) for v, label, place in shown]
        progress = source.progress()
        end = 0 if progress is None else min(progress.next_step, old.step_at(later.start_ms))
        steps = kept_steps(old, progress, end - 1, n_steps)  # the steps that end at or before the next survey's start
        found = [p for p in source.get([publication_key(name, span, step, cohort) for step in steps]) if p is not None]
        if found and not any(p.below_least or estimator in names_of(p) for p in found):
            others = " and ".join(names_of(found[-1]))
            parts.append(_left_out(old.name, old.fingerprint.hex(), f"its estimates are by {others}, not by {estimator}"))
            break
        k = old.attributes[old.index(name)].k
        results = [result_of(p, estimator, k) for p in found]
        parts.append(
            EarlierPart(
                **of_steps(old, found, steps.step), survey=old.name, fingerprint=old.fingerprint.hex(), joined=True,
                reason=joined.reason, interval_withheld=[result.interval_withheld for result in results],
                lines=lines(results, shown, confidence),
            )
        )  # fmt: skip
        n_steps, later = n_steps - steps.step * len(found), old
    else:
        if later.replaces is not None and n_steps > 0:
            parts.append(_left_out("", later.replaces, "no earlier survey with this fingerprint is served here"))
    return parts[::-1]


def _has_cohort(old: Survey, new: Survey, cohort: str) -> bool:
    if old.cohort is None or new.cohort is None:
        return False
    return old.cohort.name == new.cohort.name and cohort in old.cohort.values


def _left_out(name: str, fingerprint: str, reason: str) -> EarlierPart:
    return EarlierPart(
        survey=name, fingerprint=fingerprint, joined=False, reason=reason, every=1, steps=[], start_ms=[], end_ms=[],
        reports=[], complete=[], interval_withheld=[], lines=[],
    )  # fmt: skip
