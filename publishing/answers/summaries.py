"""Summaries of all surveys of a process, for the start page and the API."""

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from ldpstream.publishing.answers.schema import AttributeStatus, Status
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE, FIT_LIMIT, OVERDUE_MS
from ldpstream.surveys import Survey

Kind = Literal["late", "silent", "fit", "incomplete", "levels", "jump", "other", "drift"]


class Alert(msgspec.Struct, frozen=True):
    """A warning about a survey or, with an attribute, about this attribute. `late`: the next estimate is overdue by more than
    two minutes. `silent`: no report of the latest step has been counted. `fit`: the counts do not fit the mechanism.
    `incomplete`: reports of the latest estimate may be missing. `levels`: two levels differ. `jump`: a share jumped. `other`:
    the share of the value for texts that are not listed has grown. `drift`: a share moved in the latest step."""

    kind: Kind
    attribute: str | None = None


class SurveySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a survey: its latest window, over all attributes.

    `latest_step` and `end_ms`, the end of this step in Unix milliseconds, are None before the first publication.
    `people_at_least` is a lower bound of the number of people who reported in the window. `eps_t` and `eps_sequence` are the
    largest privacy losses of an attribute and level so far, in nats: of an unchanged value, and of any values. `due_ms` is as
    in `Status`. The page of the survey is at `path`.
    """

    name: str
    title: str | None
    fingerprint: str
    path: str
    latest_step: int | None
    end_ms: int | None
    due_ms: int | None
    reports: int
    people_at_least: int
    eps_t: float
    eps_sequence: float
    alerts: list[Alert]


class Surveys(msgspec.Struct, frozen=True):
    """All surveys, by name."""

    surveys: list[SurveySummary]


def summary_of(survey: Survey, status: Status, now_ms: int) -> SurveySummary:
    """Returns the summary of a survey from its status for the span "window"."""
    people = [overview.people_at_least for overview in status.attributes]
    losses = [loss for overview in status.attributes for loss in overview.privacy.values()]
    latest = status.latest_step
    return SurveySummary(
        name=survey.name, title=survey.title, fingerprint=survey.fingerprint.hex(), path=f"/surveys/{survey.name}/",
        latest_step=latest, end_ms=None if latest is None else survey.opens_ms(latest + 1), due_ms=status.due_ms,
        reports=sum(overview.reports for overview in status.attributes),
        people_at_least=sum(people) if survey.collection == "smp" else max(people, default=0),
        eps_t=max((loss.eps_t for loss in losses), default=0.0),
        eps_sequence=max((loss.eps_sequence for loss in losses), default=0.0),
        alerts=list(alerts(status, now_ms)),
    )  # fmt: skip


def alerts(status: Status, now_ms: int) -> Iterator[Alert]:
    if status.due_ms is not None and now_ms > status.due_ms + OVERDUE_MS:
        yield Alert("late")
    silent = bool(status.attributes) and all(overview.step_reports == 0 for overview in status.attributes)
    if silent:
        yield Alert("silent")
    found = [(kind, overview.attribute) for overview in status.attributes for kind in _kinds(overview, silent)]
    order = get_args(Kind)
    for kind, attribute in sorted(found, key=lambda alert: order.index(alert[0])):
        yield Alert(kind, attribute)


def _kinds(overview: AttributeStatus, everybody_silent: bool) -> Iterator[Kind]:
    if overview.step_reports == 0 and not everybody_silent:
        yield "silent"
    if any(z is not None and abs(z) > FIT_LIMIT for z in overview.fit_z.values()):
        yield "fit"
    if not (overview.step_complete and overview.complete):
        yield "incomplete"
    if overview.levels_p is not None and overview.levels_p < ALARM_CHANCE:
        yield "levels"
    if overview.change is not None:
        yield "jump"
    if overview.growth is not None:
        yield "other"
    if overview.drift_p is not None and overview.drift_p < ALARM_CHANCE:
        yield "drift"
