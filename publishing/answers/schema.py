"""Responses of the API about estimates, one struct each. None stands for NaN and infinity, since JSON has no such numbers."""

from typing import Literal

import msgspec

from ldpstream.estimators.pairs import Independence
from ldpstream.promises.outlook import Outlook, Privacy
from ldpstream.publishing.answers.comparison import Basis, Growth
from ldpstream.publishing.estimates.cross_table import TableShares
from ldpstream.publishing.estimates.frequencies import NumberEstimate, Withheld
from ldpstream.publishing.estimates.publication import Crowd, Diagnostics, Jump, LevelEstimate, Span
from ldpstream.surveys import Reason


class OfSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The span of one estimate. It begins at `start_ms` and ends at `end_ms`, in Unix milliseconds.

    `people_at_least` is a lower bound of the number of people who reported, if all devices keep to the protocol: the number of
    reports divided by the largest possible number of reports of one person in the span, rounded up. For a cohort with a
    histogram it is at least the survey's least size.
    """

    step: int
    start_ms: int
    end_ms: int
    panes: int
    reports: int
    people_at_least: int
    complete: bool


class OfSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of several estimates, as in `OfSpan`; the arrays have one entry per step. `every`: there is one step in
    `every`; it is above 1 if the request covers more than 1000 kept steps.
    """

    every: int
    steps: list[int]
    start_ms: list[int]
    end_ms: list[int]
    reports: list[int]
    complete: list[bool]


class AttributeStatus(OfSpan, frozen=True, kw_only=True):
    """Summary of an attribute's latest estimate: its privacy loss and its diagnostics.

    `span` is the requested span, or "step" if the attribute has no filtered curve. `fit_z`, `drift_sigma`, `drift_p`,
    `drift_label`, `step_reports` and `step_complete` describe the latest step. The names with levels describe the span, or the
    window if the span is "filtered". `change` is the jump that the filter detected at the latest step. `crowd` is the crowd at
    the latest step; None in a survey without `crowd`. `growth` is None unless it is clear.
    """

    attribute: str
    span: Span
    step_reports: int
    step_complete: bool
    crowd: Crowd | None
    privacy: dict[str, Privacy]
    outlook: dict[str, Outlook]
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
    growth: Growth | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of all attributes. `rejected` counts envelopes by reason. `largest_client` is an upper bound of the share of one
    client in the reports of an attribute and step, or in 1000 reports if there are fewer, over the open steps and the last
    closed one; None if this process has no gateway, and before the first report.

    `latest_step` is None before the first publication. `first_step` is the first step whose publications may still exist. The
    next step closes at `due_ms`; None after the last step, and in a simulation. `now_ms` is the server's time. Times are Unix
    times in milliseconds.
    """

    attributes: list[AttributeStatus]
    rejected: dict[Reason, int]
    largest_client: float | None
    first_step: int | None
    latest_step: int | None
    now_ms: int
    due_ms: int | None


class Shares(OfSpan, frozen=True, kw_only=True):
    """The shares of an attribute. The arrays have one entry per value shown.

    `others` is the sum of the frequencies that are not shown; None if all are shown, with `choices`, or without an estimate.

    `below_least` is true for a cohort whose reports may come from fewer people than the survey's least size. Such a cohort has
    no estimate.

    `too_few`: the reports are too few to tell which values are more frequent. The 95 % intervals of the default estimator have
    a point in common, and half of their width is on average at least 1 / k.

    `interval_withheld` is the reason why an estimate has no standard errors and no intervals: see `frequencies.Frequencies`.
    `numbers`: see `publication.Publication`. Their intervals always have a confidence of 0.95.
    """

    attribute: str
    span: Span
    estimator: str
    below_least: bool
    too_few: bool
    interval_withheld: Withheld | None
    values: list[int]
    labels: list[str]
    frequencies: list[float | None]
    low: list[float | None]
    high: list[float | None]
    others: float | None
    numbers: dict[str, NumberEstimate]


class Histogram(Shares, frozen=True, kw_only=True):
    """One estimate.

    Without reports all numbers of the estimate are None, and `converged` is false. For the span "filtered", a step without
    reports has a prediction if an earlier step had reports. `levels` has the published estimates of single levels, for the
    values shown. The intervals are computed before post-processing. `change`: see `publication.Publication`.

    The intervals of "eb" and "filter" are published for a confidence of 0.95. For another confidence, these intervals are
    scaled as for a normal distribution.

    `named` is true for the values of which each interval holds by itself. The other intervals hold on average over the values.

    `cohort` is None for the histogram of all people. `crowd`: for the span "step" of a survey with `crowd`; otherwise None.

    In a simulation, `truth` has the true shares, and `true_numbers` the true mean and percentiles of the people's numbers, also
    of numbers outside the bins. Otherwise `truth` is None, and `true_numbers` empty.
    """

    survey: str
    cohort: str | None
    post: str
    confidence: float
    iterations: int
    converged: bool
    gap: float | None
    privacy: dict[str, Privacy]
    diagnostics: Diagnostics
    standard_errors: list[float | None]
    named: list[bool]
    truth: list[float] | None
    true_numbers: dict[str, float]
    levels: dict[str, LevelEstimate]
    crowd: Crowd | None
    change: Jump | None


class Side(OfSpan, frozen=True, kw_only=True):
    """One of the two estimates of a comparison."""

    cohort: str | None
    below_least: bool
    frequencies: list[float | None]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of the frequencies, `after` minus `before`, one entry per value shown.

    The two sides are all people at two times, one cohort at two times, or two cohorts at one time. Of two cohorts, `against` of
    the request is the side `before`, and `cohort` is the side `after`.

    `basis` is the formula of `standard_errors` (`estimators.differences`). "separate": √(s₁² + s₂²), for two cohorts with
    the span "step", since a device reports in one of them. "inversion": otherwise, if the attribute has one level and its
    mechanism is not Square Wave; the formula takes into account that memos and people can be the same on both sides. "any":
    s₁ + s₂, which holds for any dependence between the two estimates.

    The differences are those of the estimator's frequencies. The standard errors, the intervals and `clear` are those of the
    raw inversions' differences, which have no bias. Only "filter" and "joint" have their own. An interval is extended to the
    difference shown. Except for "mi", the intervals are limited to [-1, 1]. A cohort that an earlier version published without
    a raw inversion has no intervals.

    `clear` marks the differences that are more than chance among those of this attribute, by Holm's procedure at the level 1
    - `confidence`. If an estimate has no intervals, the difference has none: `standard_errors`, `low` and `high` are None, and
    `clear` is false. `interval_withheld` is the reason, if an estimate has a reason.

    `top` selects the values with the largest |difference| / standard error, in this order. Without standard errors, it selects
    those with the largest |difference|. `numbers`: differences of the mean and of the percentiles. Their intervals hold for any
    dependence between the two sides. `cohort` is as in `Histogram`; if one side is below the least size, all
    differences are None. `overlap` is true if both spans contain a common step. In a simulation, `truth` and
    `true_numbers` are the true differences.
    """

    survey: str
    attribute: str
    span: Span
    cohort: str | None
    estimator: str
    confidence: float
    basis: Basis
    interval_withheld: Withheld | None
    overlap: bool
    before: Side
    after: Side
    values: list[int]
    labels: list[str]
    differences: list[float | None]
    standard_errors: list[float | None]
    low: list[float | None]
    high: list[float | None]
    clear: list[bool]
    truth: list[float] | None
    numbers: dict[str, NumberEstimate]
    true_numbers: dict[str, float]


class AttributeOverview(Shares, frozen=True, kw_only=True):
    """An attribute in the overview: the largest shares first; ordered values are in order.

    `span` is the requested span, or "step" if the attribute has no filtered curve. The shares are those of the default
    `Histogram`, and the differences those of the default `Comparison`; without an earlier estimate they are None. `clear` marks
    the differences that are more than chance among all values of all attributes, by Holm's procedure: the probability
    of one or more false marks is at most 5 %. `found`: number of values that the request finds, of which `top` are shown.
    """

    found: int
    differences: list[float | None]
    difference_low: list[float | None]
    difference_high: list[float | None]
    clear: list[bool]
    number_differences: dict[str, NumberEstimate]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of a value, with its 95 % interval. `clear`: see `AttributeOverview`."""

    attribute: str
    value: int
    label: str
    difference: float | None
    low: float | None
    high: float | None
    clear: bool


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """`lead` names a period, such as "This week"; `text` says what the estimates say about it."""

    lead: str
    text: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All attributes in one period, and their differences from an earlier period or another cohort.

    The names with `before` describe the estimates that are subtracted; None if there are none. `changes` has the clearest
    differences of all attributes, at most `top`.
    """

    survey: str
    span: Span
    cohort: str | None
    against: str | None
    confidence: float
    step: int
    start_ms: int
    end_ms: int
    before_step: int | None
    before_start_ms: int | None
    before_end_ms: int | None
    sentences: list[Sentence]
    attributes: list[AttributeOverview]
    changes: list[Change]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One value over the steps of its series."""

    value: int
    label: str
    frequencies: list[float | None]
    low: list[float | None]
    high: list[float | None]


class EarlierPart(OfSteps, frozen=True, kw_only=True):
    """Part of a series from a survey that the series' survey replaces.

    `joined`: the shares mean the same in both surveys. `reason`: what differs, or why the part is not joined and therefore has
    no steps. `survey` is "" if the earlier survey is not served here. If the earlier survey did not have a value, all
    numbers of the value's line are None.
    """

    survey: str
    fingerprint: str
    joined: bool
    reason: str
    interval_withheld: list[Withheld | None]
    lines: list[Line]


class Series(OfSteps, frozen=True, kw_only=True):
    """Some values over time; the arrays have one entry per step. `eps_t` is by level, in nats.

    The numbers of a step without an estimate are None. Without values in the request, the lines are the five most frequent
    values of the last step with an estimate. For the span "filtered", `changes` has the jumps detected at these steps, and
    `change_labels` the labels of their values. `earlier`: parts from the surveys that this survey replaces, the oldest first.
    `detectable`: the size of a jump that the filter finds within five steps in about 9 of 10 cases. None for other spans than
    "filtered", and without standard errors. `too_few`: as in `Histogram`, for the last step.
    """

    survey: str
    attribute: str
    span: Span
    cohort: str | None
    estimator: str
    confidence: float
    too_few: bool
    below_least: list[bool]
    interval_withheld: list[Withheld | None]
    lines: list[Line]
    changes: list[Jump]
    change_labels: list[str]
    detectable: float | None
    eps_t: dict[str, list[float]]
    earlier: list[EarlierPart]


class NumberLine(msgspec.Struct, frozen=True, kw_only=True):
    """One number over the steps, such as the mean or a percentile, with the ends of its 95 % intervals. In a simulation,
    `truth` has its true values."""

    name: str
    values: list[float | None]
    low: list[float | None]
    high: list[float | None]
    truth: list[float | None] | None


class NumberSeries(OfSteps, frozen=True, kw_only=True):
    """Mean and percentiles of an attribute with numbers over time; see `publication.Publication`.

    The numbers of a step without an estimate are None. If only the intervals are withheld, only their ends are None.
    `estimator` is the attribute's default estimator, or the filter. The numbers come from its shares, with one exception: the
    mean of an attribute with `choices` comes from the matrix inversion at the spans "step" and "window".
    """

    survey: str
    attribute: str
    span: Span
    estimator: str
    cohort: str | None
    lines: list[NumberLine]


class TableSide(msgspec.Struct, frozen=True, kw_only=True):
    """The rows or the columns of a cross table: an attribute or the survey's cohort, its values, and their shares.

    `reports`: number of reports of this attribute alone that count for its shares; 0 in a table by cohort. The share of a
    cohort is its share of the reports, without an interval. A cohort below its least size has no other numbers.
    """

    name: str
    kind: Literal["attribute", "cohort"]
    labels: list[str]
    reports: int
    shares: TableShares


class Table(OfSpan, frozen=True, kw_only=True):
    """A cross table: of the two attributes of a pair, or of the cohorts (rows) and an attribute's values (columns).

    The lists of cells go row by row. `cells`: of all people, the shares with the row and the column. `within_rows`: of the
    people in the row, the shares with the column. `within_columns`: of the people with the column, the shares in the row. The
    intervals have a confidence of 0.95. `independence` and `interval_withheld`: see `publishing.estimates.cross_table`.

    Without reports the numbers of all cells and of the attributes' values are None. `truth` has the true shares of the cells in
    a simulation.
    """

    survey: str
    attribute: str
    span: Span
    estimator: str
    interval_withheld: Withheld | None
    rows: TableSide
    columns: TableSide
    cells: TableShares
    within_rows: TableShares
    within_columns: TableShares
    independence: Independence | None
    truth: list[float] | None
