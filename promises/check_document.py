"""The statements of `check` as JSON for a program: the document of `check --json`.

`docs/reference/check.schema.json` is its schema.

A loss is in nats; a loss of null has no bound. Keys may be added; a key never changes its meaning without a new `format`.
"""

from datetime import UTC, datetime

import msgspec

from ldpstream.promises.crowds import SecondPromise
from ldpstream.promises.label import Label, label
from ldpstream.promises.promise import promise
from ldpstream.promises.second_promise import second_promise, second_promise_lines
from ldpstream.promises.statements import CheckedDevice, CheckedLevel, checked_device, checked_level
from ldpstream.surveys import Cohort, Survey

FORMAT = 3


class CheckedAttribute(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute. `pair`: the names of a pair's two attributes; None for an attribute that is no pair."""

    name: str
    domain: str
    n_values: int
    pair: list[str] | None
    levels: list[CheckedLevel]


class CheckedSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `check --json`.

    Attributes:
        format: number of the document's format.
        relay: "required" if devices send only through a relay; None if they send directly.
        crowd: number of honest people with the same attribute, level, cohort and step that the second promise assumes; or None.
        ends: end of the last step; None for a survey without end.
        second_promise: both promises by attribute, level and span, for the survey's `crowd`; empty without `crowd`.
        label: the label, as `check --label` prints it.
        promise: the lines that `check` prints.
    """

    format: int
    survey: str
    fingerprint: str
    pin: str
    title: str | None
    description: str | None
    purpose: str | None
    owner: str | None
    contact: str | None
    replaces: str | None
    start: datetime
    ends: datetime | None
    n_steps: int | None
    step_seconds: int
    window_steps: int
    lateness_steps: int
    retention_steps: int
    collection: str
    relay: str | None
    crowd: int | None
    cohort: Cohort | None
    device: CheckedDevice
    attributes: list[CheckedAttribute]
    second_promise: list[SecondPromise]
    label: Label
    promise: list[str]


def check_document(survey: Survey, signed: datetime | None = None) -> CheckedSurvey:
    """Returns the document. `signed` is the time of the survey's latest signature; None if it has none."""
    hidden = [] if survey.crowd is None else second_promise(survey, None)
    same = (
        "title", "description", "purpose", "owner", "contact", "replaces", "pin", "n_steps", "step_seconds", "window_steps",
        "lateness_steps", "retention_steps", "collection", "relay", "crowd",
        "cohort",
    )  # fmt: skip
    return CheckedSurvey(
        format=FORMAT, survey=survey.name, fingerprint=survey.fingerprint.hex(), start=survey.start.astimezone(UTC),
        ends=None if survey.n_steps is None else datetime.fromtimestamp(survey.opens_ms(survey.n_steps) / 1000, UTC),
        **{key: getattr(survey, key) for key in same},
        device=checked_device(survey),
        attributes=[
            CheckedAttribute(
                name=attribute.name, domain=attribute.domain, n_values=attribute.k - (attribute.most or 0),
                pair=None if attribute.pair is None else list(attribute.pair),
                levels=[checked_level(survey, i, level.name, m) for level, m in zip(attribute.levels, mechanisms, strict=True)],
            )
            for i, (attribute, mechanisms) in enumerate(zip(survey.attributes, survey.mechanisms, strict=True))
        ],
        second_promise=hidden, label=label(survey, signed),
        promise=[*promise(survey), *(["", *second_promise_lines(survey, hidden)] if hidden else [])],
    )  # fmt: skip
