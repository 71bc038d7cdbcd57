"""The API's description of a survey: its structs, and the function that fills them."""

import math
from collections.abc import Sequence
from datetime import datetime

import msgspec

from ldpstream.estimators.post_processing import NAMES as POST_NAMES
from ldpstream.promises.label import Label, label
from ldpstream.promises.outlook import Losses, losses_of, named
from ldpstream.publishing.answers.shares import JOINT
from ldpstream.publishing.estimates import catalogue
from ldpstream.publishing.estimates.catalogue import INVERSION, estimators
from ldpstream.publishing.estimates.publication import COHORT_SPANS, Span, number_names, spans
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE, CLIENT_LIMIT, FIT_LIMIT, OVERDUE_MS
from ldpstream.surveys import Cohort, Survey
from ldpstream.surveys.life.notes import Note
from ldpstream.surveys.questions import Recipe


class LevelInfo(Losses, frozen=True, kw_only=True):
    """One privacy level. A device reports at one of `every_steps` steps, at most `lifetime_reports` times (None: no limit).

    `eps_survey`: bound of the loss of all reports until the survey ends, in nats, for any values; None without `ends`.

    `guess_1`: chance of a right guess of a value that never changes, from one report, if all values are equally likely at
    first. `guess_inf`: the same from any number of
    reports of a memoized level, or from all reports that a device may make at a one-time level.
    `guess_year`: the same for the value at one step, from all reports of a year, if the value may change. `bounds`: the names
    of the chances that are upper bounds.
    """

    name: str
    lifetime_reports: int | None
    eps_survey: float | None
    guess_1: float
    guess_inf: float
    guess_year: float
    bounds: list[str]


class AttributeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute: its values, its levels, and its published estimates. `k`: number of values; with `choices`, plus `choices`.

    `estimators`: the names of the estimators of the spans "step" and "window", the default estimator first. `spans`: the
    published spans; an attribute with more than 10 000 values has no span "filtered". `numbers`: names of the published
    numbers, such as "mean" and "p50"; none for an attribute without numbers. `number_spans`: the spans that have
    these numbers; with Square Wave, the span "filtered" has none. `pair`: the names of a pair's two attributes; None for an
    attribute that is no pair.

    `choices`: the largest number of answers of a person; None if a person gives one. With `choices`, shares need not sum to
    1, and "mean" is the mean number of answers. `guessed`: number of answers that a guesser without reports considers equally
    likely; 2 with `choices`. `recipe`: the number that devices compute from the use of an application; None if they do not.
    """

    name: str
    k: int
    levels: list[LevelInfo]
    estimators: list[str]
    spans: list[Span]
    numbers: list[str]
    number_spans: list[Span]
    pair: list[str] | None
    choices: int | None
    guessed: int
    recipe: Recipe | None


class EstimatorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An estimator: its name in requests, its name for people, a sentence about it, and the spans that may have it.

    `post_processed` is true if requests may name one of the survey's `post_methods`.
    """

    name: str
    label: str
    meaning: str
    spans: list[Span]
    post_processed: bool


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits at which the page warns: `publishing.estimates.thresholds`."""

    fit_limit: float = FIT_LIMIT
    alarm_chance: float = ALARM_CHANCE
    overdue_ms: int = OVERDUE_MS
    client_limit: float = CLIENT_LIMIT


JOINT_INFO = EstimatorInfo(
    name=JOINT, label="joint (default for pairs)", post_processed=False, spans=list(COHORT_SPANS),
    meaning="The shares of the cross table, from the reports of the pair and of its two attributes. No share is negative.",
)  # fmt: skip


class SurveyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The survey. `post_methods`: post-processings that requests may name.

    `title`, `description`, `purpose`, `owner` and `contact` are the survey's own words; None if it has none. `retention_steps`:
    number of steps whose estimates the API keeps. `relay` is "required" if devices send only through a relay, else None.
    `crowd`: number of honest people that the second promise assumes at each step; None for none. `label`: the privacy label.
    `notes`: the operator's notes at a time, in order.
    """

    name: str
    title: str | None
    description: str | None
    purpose: str | None
    owner: str | None
    contact: str | None
    fingerprint: str
    start_ms: int
    step_seconds: int
    window_steps: int
    lateness_steps: int
    retention_steps: int
    collection: str
    relay: str | None
    crowd: int | None
    cohort: Cohort | None
    attributes: list[AttributeInfo]
    estimators: list[EstimatorInfo]
    post_methods: list[str]
    thresholds: Thresholds
    label: Label
    notes: list[Note]
    simulated: bool


def survey_info(s: Survey, *, simulated: bool, signed: datetime | None = None, notes: Sequence[Note] = ()) -> SurveyInfo:
    attributes = [
        AttributeInfo(
            name=a.name,
            k=a.k,
            levels=[
                LevelInfo(
                    **losses_of(m), name=level.name, lifetime_reports=m.lifetime_reports, eps_survey=s.loss_until_end(m),
                    **named(
                        guess_1=m.guess(), guess_inf=m.guess(math.inf if m.memoized else s.most_reports(m) or math.inf),
                        guess_year=m.claims.guess_any_values(m.reports_in(s.steps_a_year)),
                    ),
                )
                for level, m in zip(a.levels, mechanisms, strict=True)
            ],
            estimators=[*([] if a.pair is None else [JOINT]), *(row.name for row in estimators(mechanisms))],
            spans=list(spans(a)),
            numbers=list(number_names(a, mechanisms, "step")),
            number_spans=[span for span in spans(a) if number_names(a, mechanisms, span)],
            pair=None if a.pair is None else list(a.pair),
            choices=a.most,
            guessed=mechanisms[0].claims.guessed,
            recipe=a.recipe,
        )
        for a, mechanisms in zip(s.attributes, s.mechanisms, strict=True)
    ]  # fmt: skip
    return SurveyInfo(
        name=s.name, title=s.title, description=s.description, purpose=s.purpose, owner=s.owner, contact=s.contact,
        fingerprint=s.fingerprint.hex(), start_ms=s.start_ms, step_seconds=s.step_seconds,
        window_steps=s.window_steps, lateness_steps=s.lateness_steps, retention_steps=s.retention_steps,
        collection=s.collection, relay=s.relay, crowd=s.crowd, cohort=s.cohort, attributes=attributes,
        estimators=[
            EstimatorInfo(
                name=row.name, label=row.label, meaning=row.meaning, post_processed=row.name == INVERSION,
                spans=["filtered"] if row.make is None else list(COHORT_SPANS),
            )
            for row in catalogue.ESTIMATORS
        ] + [JOINT_INFO] * any(a.pair is not None for a in s.attributes),
        post_methods=list(POST_NAMES), thresholds=Thresholds(), label=label(s, signed), simulated=simulated, notes=list(notes),
    )  # fmt: skip
