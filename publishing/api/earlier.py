"""The history before a survey's start: the estimates of the surveys that it replaces, where their values mean the same.

A part that is not joined has no numbers, and gives the reason.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ldpstream.publishing.api.schema import EarlierPart, Line
from ldpstream.publishing.api.tables import names_of, result_of
from ldpstream.publishing.frequencies import Frequencies, plain_number
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.publication import Publication, Span, publication_key
from ldpstream.surveys import Survey
from ldpstream.surveys.lineage import join

MOST_STEPS = 1000  # largest number of steps that are read; a longer series is read at every n-th step


class Source(Protocol):
    """Reader of saved publications, such as the classes of `publishing.results`."""

    def progress(self) -> Progress | None:
        """Returns the progress last saved; None before the first save."""

    def get(self, keys: Sequence[str]) -> list[Publication | None]:
        """Returns the publications with these keys (`Publication.key`); None for a missing publication."""


class Replaced(NamedTuple):
    """A survey that another survey replaces, and the reader of its saved publications."""

    survey: Survey
    source: Source


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
        if not joined.joined or (span == "window" and not joined.windows):
            parts.append(_part(old, span, False, joined.reason, [], [], []))
            break
        if cohort is not None and not _has_cohort(old, survey, cohort):
            parts.append(_part(old, span, False, f"{old.name} has no such cohort", [], [], []))
            break
        shown = [Shown(v, label, None if place is None else joined.places[place]) for v, label, place in shown]
        progress = source.progress()
        end = 0 if progress is None else min(progress.next_step, old.step_at(later.start_ms))
        steps = kept_steps(old, progress, end - 1, n_steps)  # the steps that end at or before the next survey's start
        published = [p for p in source.get([publication_key(name, span, step, cohort) for step in steps]) if p is not None]
        found = [p for p in published if p.below_least or estimator in names_of(p)]
        if published and not found:
            others = " and ".join(names_of(published[-1]))
            parts.append(_part(old, span, False, f"its estimates are by {others}, not by {estimator}", [], [], []))
            break
        k = old.attributes[old.index(name)].k
        results = [result_of(p, estimator, k) or Frequencies.nothing(k) for p in found]
        drawn = lines(results, shown, confidence)
        parts.append(_part(old, span, True, joined.reason, found, results, drawn, steps.step))
        n_steps, later = n_steps - steps.step * len(found), old
    else:
        if later.replaces is not None and n_steps > 0:
            parts.append(_missing(later.replaces))
    return parts[::-1]


def _missing(fingerprint: str) -> EarlierPart:
    return EarlierPart(
        survey="", fingerprint=fingerprint, joined=False, reason="no earlier survey with this fingerprint is served here",
        every=1, steps=[], start_ms=[], end_ms=[], reports=[], complete=[], interval_withheld=[], lines=[],
    )  # fmt: skip


def _has_cohort(old: Survey, new: Survey, cohort: str) -> bool:
    if old.cohort is None or new.cohort is None:
        return False
    return old.cohort.name == new.cohort.name and cohort in old.cohort.values


def _part(
    survey: Survey,
    span: Span,
    joined: bool,
    reason: str,
    found: Sequence[Publication],
    results: Sequence[Frequencies],
    drawn: list[Line],
    every: int = 1,
) -> EarlierPart:
    width = survey.window_steps if span == "window" else 1
    return EarlierPart(
        survey=survey.name, fingerprint=survey.fingerprint.hex(), joined=joined, reason=reason, every=every,
        steps=[p.step for p in found], start_ms=[survey.opens_ms(max(0, p.step - width + 1)) for p in found],
        end_ms=[survey.opens_ms(p.step + 1) for p in found], reports=[p.reports for p in found],
        complete=[p.complete for p in found], interval_withheld=[result.interval_withheld for result in results], lines=drawn,
    )  # fmt: skip
