"""Responses of the API, one struct each. None stands for NaN and infinity, since JSON has no such numbers."""

import msgspec

from estimators.publishing.publication import Diagnostics, Jump, LevelEstimate, Privacy, Span, Withheld
from surveys import Reason


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One privacy level: the mechanism's signature; eps_1 of one report and eps_inf of all reports, in nats (None: no bound).

    A device reports at one of every_steps steps, at most lifetime_reports times (None: no limit). eps_window: loss between two
    value sequences that differ only within every_steps consecutive steps (None: memoized). eps_lifetime: bound of the loss of
    all reports between any two value sequences (None: no bound).

    guess_1, guess_inf: chance of a right guess of a value that never changes, from one report and from any number of reports.
    The guesser sees the reports and considers all values equally likely beforehand. guess_year: bound of the chance of a right
    guess of the value at one step, from all reports of a year, even if the value changes.
    """

    name: str
    mechanism: str
    eps_1: float
    eps_inf: float | None
    every_steps: int
    lifetime_reports: int | None
    eps_window: float | None
    eps_lifetime: float | None
    guess_1: float
    guess_inf: float
    guess_year: float


class AttributeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute: its k values, its levels, and what is published about it.

    `estimators`: the estimators of the spans "step" and "window", the default estimator first. The only estimator of the span
    "filtered" is "filter". `spans`: the published spans; an attribute with more than 10 000 values has no span "filtered".
    """

    name: str
    k: int
    levels: list[Level]
    estimators: list[str]
    spans: list[Span]


class SurveyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The survey. `post`: post-processing of "mi". `post_methods`: methods allowed in requests. `simulated`: truth is known."""

    name: str
    fingerprint: str
    start_ms: int
    step_seconds: int
    window_steps: int
    lateness_steps: int
    collection: str
    attributes: list[AttributeInfo]
    post: str
    post_methods: list[str]
    simulated: bool


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its estimated frequency."""

    label: str
    frequency: float | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of an attribute's latest estimate: its three most frequent values (none without an estimate) and privacy loss.

    `span` is the requested span, or "step" if the request is for the filtered curve and the attribute has none. fit_z (by
    level), drift_sigma, drift_p and drift_label (the value that changed most) describe the latest step, for all spans.
    levels_sigma, levels_p, levels_label and levels_pair describe the span, or the window if the span is "filtered". See
    `publication.Diagnostics`. `change` is the jump that the filter detected at the latest step, for all spans; change_label is
    the label of the value that jumped.
    """

    attribute: str
    span: Span
    step: int
    reports: int
    panes: int
    complete: bool
    privacy: dict[str, Privacy]
    top: list[Share]
    fit_z: dict[str, float | None]
    drift_sigma: float | None
    drift_p: float | None
    drift_label: str | None
    levels_sigma: float | None
    levels_p: float | None
    levels_label: str | None
    levels_pair: list[str] | None
    change: Jump | None
    change_label: str | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of all attributes. `rejected` counts envelopes by reason; `latest_step` is None before the first publication."""

    attributes: list[Overview]
    rejected: dict[Reason, int]
    latest_step: int | None


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """One estimate. The arrays have one entry per value shown: index, label, frequency, standard error, interval, truth.

    Without reports all numbers of the estimate are None, and `converged` is false. For the span "filtered" this applies until
    the first step with reports; a later step without reports is predicted. `interval_withheld` is the reason why an
    estimate has no standard errors and no intervals: see `publication.Frequencies`. The span begins at `start_ms`
    and ends at `end_ms`, in Unix time. With several levels, `levels` has each level's own estimate of the values shown. The
    intervals are computed before post-processing. `change`: see `publication.Publication`.
    """

    survey: str
    attribute: str
    step: int
    span: Span
    start_ms: int
    end_ms: int
    panes: int
    reports: int
    complete: bool
    estimator: str
    post: str
    confidence: float
    iterations: int
    converged: bool
    gap: float | None
    interval_withheld: Withheld | None
    privacy: dict[str, Privacy]
    diagnostics: Diagnostics
    values: list[int]
    labels: list[str]
    frequencies: list[float | None]
    standard_errors: list[float | None]
    low: list[float | None]
    high: list[float | None]
    truth: list[float] | None
    levels: dict[str, LevelEstimate]
    change: Jump | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One value over the steps of its series."""

    value: int
    label: str
    frequencies: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Some values over time; the arrays have one entry per step. `eps_t` is by level, in nats. Times are as in `Histogram`.

    The numbers of a step without an estimate are None. If the request names no values, the lines are the five most frequent
    values of the last step with an estimate. If no step has an estimate, there are no lines. For the span "filtered", `changes`
    has the jumps of all values that the filter detected at these steps, and `change_labels` the labels of these values. For
    other spans both are empty.
    """

    attribute: str
    span: Span
    estimator: str
    confidence: float
    steps: list[int]
    start_ms: list[int]
    end_ms: list[int]
    reports: list[int]
    complete: list[bool]
    interval_withheld: list[Withheld | None]
    lines: list[Line]
    changes: list[Jump]
    change_labels: list[str]
    eps_t: dict[str, list[float]]
