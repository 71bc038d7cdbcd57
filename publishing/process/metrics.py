"""The table of the estimator's metrics: of publications, and of a survey's state."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from msgspec import UNSET, UnsetType

from ldpstream.promises.device_chance import guess_bounds
from ldpstream.publishing.estimates.publication import Publication, number_names
from ldpstream.surveys import Survey

Labels = tuple[str, ...]
Numbers = Iterable[tuple[Labels, float | UnsetType | None]]


class ShownPublication(NamedTuple):
    """A publication as the metrics show it.

    Attributes:
        values: the labels `index` and `value` of the values that have series.
        shares: by estimator, the shares of these values, and the lower and the upper ends of their intervals.
    """

    survey: Survey
    p: Publication
    values: Sequence[Labels] = ()
    shares: Mapping[str, Sequence[Sequence[float]]] = {}


class Metric(NamedTuple):
    """A gauge, or a counter.

    Attributes:
        name: without the prefix ``ldpstream_``, and without the ``_total`` of a counter.
        labels: names of the labels after `survey`. Only metrics with the label `cohort` show the publications of cohorts.
        of: the labels and the numbers of a publication. None becomes NaN. With `UNSET`, a series becomes NaN if it exists.
            A metric of the survey's state has none: `PrometheusPublisher.set` sets it.
        counter: true to add the numbers of all publications made; false to show the number of the latest step.
    """

    name: str
    text: str
    labels: Labels
    of: Callable[[ShownPublication], Numbers] = lambda _: ()
    counter: bool = False


# ---- the numbers of a publication, by the name of a field


def _value(shown: ShownPublication, part: int) -> Numbers:
    for estimator, parts in shown.shares.items():
        for labels, number in zip(shown.values, parts[part], strict=True):
            yield (shown.p.attribute, shown.p.span, estimator, *labels), number


def _mean(shown: ShownPublication, part: str) -> Numbers:
    return [(labels[:2], number) for labels, number in _numbers(shown, part) if labels[2] == "mean"]


def _quantile(shown: ShownPublication, part: str) -> Numbers:
    numbers = [(labels, number) for labels, number in _numbers(shown, part) if labels[2] != "mean"]
    return [((*labels[:2], labels[2].removeprefix("p")), number) for labels, number in numbers]


def _numbers(shown: ShownPublication, part: str) -> Numbers:
    survey, p = shown.survey, shown.p
    attribute = survey.index(p.attribute)
    for name in number_names(survey.attributes[attribute], survey.mechanisms[attribute], p.span):
        yield (p.attribute, p.span, name), getattr(p.numbers.get(name), part, None)


def _span(shown: ShownPublication, field: str) -> Numbers:
    return [((shown.p.attribute, shown.p.span), attrgetter(field)(shown.p))]


def _levels(shown: ShownPublication, field: str) -> Numbers:
    compared = shown.p.span != "filtered" and len(shown.p.privacy) > 1  # the filtered curve has no counts of its own
    return _span(shown, field) if compared else ()


def _cohort(shown: ShownPublication, field: str) -> Numbers:
    return [((*labels, shown.p.cohort or ""), number) for labels, number in _span(shown, field)]


def _drift(shown: ShownPublication, field: str) -> Numbers:
    return [((shown.p.attribute,), getattr(shown.p.diagnostics, field))] if shown.p.span == "step" else ()


def _jump(shown: ShownPublication, field: str) -> Numbers:
    return [] if shown.p.change is None else [((shown.p.attribute,), getattr(shown.p.change, field))]


def _privacy(shown: ShownPublication, field: str) -> Numbers:
    for level, privacy in shown.p.privacy.items():
        loss = getattr(privacy, field)
        yield (shown.p.attribute, level), math.inf if loss is None else loss


def _guess(shown: ShownPublication, name: str) -> Numbers:
    p = shown.p
    bounds = guess_bounds(shown.survey, p.attribute, p.step + 1) if p.span == "step" else {}
    return [((p.attribute, level), chances[name]) for level, chances in bounds.items()]


def _fit(shown: ShownPublication, field: str) -> Numbers:
    levels = getattr(shown.p.diagnostics, field) if shown.p.span == "step" else {}
    return [((shown.p.attribute, level), z) for level, z in levels.items()]


def _crowd(shown: ShownPublication, field: str) -> Numbers:
    p = shown.p
    levels = p.privacy if p.span == "step" else ()
    return [((p.attribute, level), getattr(p.crowd, field).get(level) if p.crowd else UNSET) for level in levels]


def _assumed(shown: ShownPublication, field: str) -> Numbers:
    return [((), getattr(shown.p.crowd, field, UNSET))] if shown.p.span == "step" else ()


# ---- the table

ATTRIBUTE, SPAN, LEVEL = ("attribute",), ("attribute", "span"), ("attribute", "level")
PERIOD, STEPS = ("period",), ("steps",)
VALUE, COHORT = (*SPAN, "estimator", "index", "value"), (*SPAN, "cohort")
QUANTILE = (*SPAN, "percentile")  # Prometheus reserves the label "quantile" for its summaries


def _row(name: str, labels: Labels, of: Callable[[ShownPublication, Any], Numbers], field: str | int, text: str) -> Metric:
    return Metric(name, text, labels, lambda shown: of(shown, field))


METRICS: Final = (
    _row("frequency_ratio", VALUE, _value, 0, "Estimated share of a value."),
    _row("frequency_low_ratio", VALUE, _value, 1, "Lower end of the 95 % interval of a share."),
    _row("frequency_high_ratio", VALUE, _value, 2, "Upper end of the 95 % interval of a share."),
    _row("quantile", QUANTILE, _quantile, "value", "Quantile of an attribute's numbers, in the numbers' unit."),
    _row("quantile_low", QUANTILE, _quantile, "low", "Lower end of the 95 % interval of a quantile."),
    _row("quantile_high", QUANTILE, _quantile, "high", "Upper end of the 95 % interval of a quantile."),
    _row("mean", SPAN, _mean, "value", "Mean of an attribute's numbers, in the numbers' unit."),
    _row("mean_low", SPAN, _mean, "low", "Lower end of the 95 % interval of a mean."),
    _row("mean_high", SPAN, _mean, "high", "Upper end of the 95 % interval of a mean."),
    _row("estimate_reports", SPAN, _span, "reports", "Reports used by the latest estimate."),
    _row("cohort_reports", COHORT, _cohort, "reports",
         "Reports of a cohort in the latest estimate's span, also below the least size."),
    _row("crowd_reports", LEVEL, _crowd, "reports",
         "Reports of a level at the latest step, in the cohort with the fewest, behind a relay."),
    _row("crowd_assumed_reports", (), _assumed, "assumed", "Reports that the promise behind a relay assumes."),
    _row("estimate_step", SPAN, _span, "step", "Time step of the latest estimate."),
    _row("estimate_complete", SPAN, _span, "complete", "1 if nothing could be missing from the latest estimate, else 0."),
    _row("privacy_eps_t_nats", LEVEL, _privacy, "eps_t",
         "Privacy loss of a participant who reported an unchanged value as often as possible so far."),
    _row("privacy_eps_inf_nats", LEVEL, _privacy, "eps_inf", "Bound of eps_t for any number of reports."),
    _row("privacy_eps_sequence_nats", LEVEL, _privacy, "eps_sequence",
         "Bound of the privacy loss of a participant who has reported as often as possible, for any values."),
    _row("privacy_eps_lifetime_nats", LEVEL, _privacy, "eps_lifetime",
         "Bound of the privacy loss of lifetime_reports reports, for any values."),
    _row("privacy_guess_without_report_ratio", LEVEL, _guess, "blind", "Chance of a right guess without any report."),
    _row("privacy_guess_unchanged_ratio", LEVEL, _guess, "guess",
         "Chance of a right guess of a value that never changed, from all reports of this attribute; exact or an upper bound."),
    _row("privacy_guess_changing_ratio", LEVEL, _guess, "guess_any_values",
         "Chance of a right guess of the value at one step, any values, from all reports of this attribute; exact or an upper "
         "bound."),
    _row("privacy_guess_device_unchanged_ratio", LEVEL, _guess, "guess_device",
         "Chance of a right guess of a value that never changed, from the whole device, worst hints: exact or an upper bound."),
    _row("privacy_guess_device_changing_ratio", LEVEL, _guess, "guess_any_values_device",
         "Chance of a right guess of the value at one step, any values, from the whole device, worst hints: exact or a bound."),
    _row("fit_z", LEVEL, _fit, "fit_z", "z-score of the latest step's counts under the mechanism."),
    _row("drift_sigma", ATTRIBUTE, _drift, "drift_sigma",
         "Largest change of a share since the previous step, in standard errors."),
    _row("drift_p", ATTRIBUTE, _drift, "drift_p", "Upper bound on the probability of a change this large without drift."),
    _row("levels_sigma", SPAN, _levels, "diagnostics.levels_sigma",
         "Least probable difference between two levels' shares, in standard errors."),
    _row("levels_p", SPAN, _levels, "diagnostics.levels_p",
         "Upper bound on the probability of a difference this large if all levels agree."),
    _row("change_size_ratio", ATTRIBUTE, _jump, "size", "Size of the last detected jump of a share; NaN before a jump."),
    Metric("changes", "Jumps in the publications made.", ATTRIBUTE,
           lambda shown: [((shown.p.attribute,), shown.p.change is not None)], counter=True),
    Metric("estimates_failed", "Parts of publications, such as an estimator, that could not be calculated and were left out.",
           ATTRIBUTE, lambda shown: [((shown.p.attribute,), len(shown.p.diagnostics.failed))], counter=True),
    Metric("lag_records", "Records in the log that are not counted yet.", ()),
    Metric("next_estimate_due_timestamp_seconds",
           "Earliest time to estimate the next step, Unix time; infinite after the last step.", ()),
    Metric("estimate_load_ratio", "Time to estimate the last step, divided by the step's duration.", ()),
    Metric("survey_working", "1 if the survey's last turn had no error, else 0.", ()),
    Metric("unlisted_growth_ratio", "Clear growth of the share of the value for texts that are not listed, else 0.", ATTRIBUTE),
    Metric("people", "People who used the application in the period.", PERIOD),
    Metric("people_low", "Lower end of the 95 % interval of these people.", PERIOD),
    Metric("people_high", "Upper end of the 95 % interval of these people.", PERIOD),
    Metric("returned_ratio", "Share of the new people who came back after so long.", STEPS),
    Metric("returned_ratio_low", "Lower end of the 95 % interval of this share.", STEPS),
    Metric("returned_ratio_high", "Upper end of the 95 % interval of this share.", STEPS),
)  # fmt: skip
