"""Compares the service with the slow reference: same counts, same reasons, and no error."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ldpstream.agents.tally import Record, tally
from ldpstream.engines import PaneKey
from ldpstream.surveys import REASONS, Survey
from tests.agents.reference import Counted, judge

from .inputs import SURVEY, WITH_COHORTS, Input, survey_of

Told = tuple[dict[PaneKey, list[int]], list[tuple[int, str]]]


class Disagreement(AssertionError):
    """The service and the reference disagree. The message contains an input that shows the disagreement."""


def verdicts(inputs: Sequence[Input]) -> Counter[str]:
    """Counts the accepted inputs, the markers (empty inputs) and, for each reason, the refused inputs.

    Raises:
        Disagreement: if counts or reasons of the service and the reference differ, or if the service fails.
    """
    told = Counter[str]()
    for survey in (SURVEY, WITH_COHORTS):
        told += _verdicts(survey, [one for one in inputs if survey_of(one.value) is survey])
    return told


def _verdicts(survey: Survey, inputs: Sequence[Input]) -> Counter[str]:
    found = [judge(survey, one.value, one.appended_ms) if one.value else "marker" for one in inputs]
    if _service(survey, inputs) != _direct(found):
        for one, judged in zip(inputs, found, strict=True):
            if (said := _service(survey, [one])) != _direct([judged]):
                raise Disagreement(f"{one!r}: {said}, the reference: {judged}")
        raise Disagreement(f"disagree only as a batch: {list(inputs)!r}")
    return Counter(judged if isinstance(judged, str) else "accepted" for judged in found)


def _direct(found: Sequence[Counted | str]) -> Told:
    """Returns the sum of the reference's counts and rejections."""
    counts: dict[PaneKey, Any] = {}
    rejected: list[tuple[int, str]] = []
    for offset, judged in enumerate(found):
        if isinstance(judged, Counted):
            key = PaneKey(*judged.pane)
            counts[key] = counts.get(key, 0) + np.array([judged.n, *judged.counts])
        elif judged != "marker":
            assert judged in REASONS
            rejected.append((offset, judged))
    return {key: numbers.tolist() for key, numbers in counts.items()}, rejected


def _service(survey: Survey, inputs: Sequence[Input]) -> Told | str:
    """Returns the tally's counts and rejections, or the error that would have ended an agent."""
    try:
        found = tally(survey, [Record(offset, one.appended_ms, one.value) for offset, one in enumerate(inputs)])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return {key: [table.n, *table.counts.ravel().tolist()] for key, table in found.counts.items()}, list(found.rejected)
