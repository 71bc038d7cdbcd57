"""Prometheus metrics of the estimates: gauges of the latest estimates and of the last jump, and counters."""

import math

import numpy as np
from msgspec import UNSET
from prometheus_client import CollectorRegistry, Counter, Gauge

from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.quantiles import PERCENTILES
from ldpstream.mechanisms.claims.guessing import round_up
from ldpstream.promises.device_chance import guesses
from ldpstream.publishing.publication import Publication, number_names, spans
from ldpstream.surveys import Survey

MAX_LISTED = 256  # an attribute with at most MAX_LISTED listed values or bins has a time series for each value
BRIEF_VALUES = 10
TOP_VALUES = 20  # any other attribute has a time series for each of the TOP_VALUES most frequent values of the first estimate


class PrometheusPublisher:
    """Sets the gauges and counters of a survey's estimates.

    A frequency or a crowd that the latest estimate lacks is NaN. Listed values or bins, at most 256, have a time series each.
    Of other attributes only the 20 most frequent values of the first estimate have one. A cohort has a time series of its
    number of reports only.

    Args:
        brief: True in a process with many surveys: only the default estimator, and at most 10 values of an attribute.
    """

    def __init__(self, survey: Survey, registry: CollectorRegistry, brief: bool = False) -> None:
        self._survey, self._brief = survey, brief
        self._shown: dict[str, list[int]] = {}
        self._latest: dict[tuple[str, str, str | None], int] = {}
        self._estimators: dict[tuple[str, str, str], set[str]] = {}  # estimators whose frequencies the gauges have, by labels
        # time series of frequencies, by the labels and the estimator: finding one takes longer than to set it
        self._series: dict[tuple[str, ...], list[tuple[Gauge, ...]]] = {}
        self._has_crowd = False  # True after the first publication with a crowd
        self._jumped: dict[str, int] = {}  # step of the publication whose jump the gauges show, by attribute
        span, level = ["survey", "attribute", "span"], ["survey", "attribute", "level"]
        value = [*span, "estimator", "index", "value"]

        def gauge(name: str, text: str, labels: list[str]) -> Gauge:
            return Gauge(f"ldpstream_{name}", text, labels, registry=registry)

        self._frequency = gauge("frequency_ratio", "Estimated share of a value.", value)
        self._low = gauge("frequency_low_ratio", "Lower end of the 95 % interval of a share.", value)
        self._high = gauge("frequency_high_ratio", "Upper end of the 95 % interval of a share.", value)
        quantile = [*span, "percentile"]  # Prometheus reserves the label "quantile" for its summaries
        self._quantiles = [
            gauge("quantile", "Quantile of an attribute's numbers, in the numbers' unit.", quantile),
            gauge("quantile_low", "Lower end of the 95 % interval of a quantile.", quantile),
            gauge("quantile_high", "Upper end of the 95 % interval of a quantile.", quantile),
        ]
        self._means = [
            gauge("mean", "Mean of an attribute's numbers, in the numbers' unit.", span),
            gauge("mean_low", "Lower end of the 95 % interval of a mean.", span),
            gauge("mean_high", "Upper end of the 95 % interval of a mean.", span),
        ]
        self._reports = gauge("estimate_reports", "Reports used by the latest estimate.", span)
        self._cohort_reports = gauge(
            "cohort_reports", "Reports of a cohort in the latest estimate's span, also below the least size.", [*span, "cohort"]
        )
        self._crowd = gauge(
            "crowd_reports", "Reports of a level at the latest step, in the cohort with the fewest, behind a relay.", level
        )
        self._crowd_assumed = gauge("crowd_assumed_reports", "Reports that the promise behind a relay assumes.", ["survey"])
        self._panes = gauge("estimate_panes", "Steps with reports in the latest estimate's span.", span)
        self._step = gauge("estimate_step", "Time step of the latest estimate.", span)
        self._complete = gauge("estimate_complete", "1 if nothing could be missing from the latest estimate, else 0.", span)
        self._eps_t = gauge(
            "privacy_eps_t_nats",
            "Privacy loss of a participant who reported an unchanged value as often as possible so far.",
            level,
        )
        self._eps_inf = gauge("privacy_eps_inf_nats", "Bound of eps_t for any number of reports.", level)
        self._eps_sequence = gauge(
            "privacy_eps_sequence_nats",
            "Bound of the privacy loss of a participant who has reported as often as possible, for any values.",
            level,
        )
        self._eps_window = gauge(
            "privacy_eps_window_nats", "Privacy loss between value sequences that differ only within every_steps steps.", level
        )
        self._eps_lifetime = gauge(
            "privacy_eps_lifetime_nats", "Bound of the privacy loss of lifetime_reports reports, for any values.", level
        )
        self._guess_blind = gauge("privacy_guess_without_report_ratio", "Chance of a right guess without any report.", level)
        told = {
            "unchanged": "of a value that never changed, from all reports of this attribute; exact or an upper bound.",
            "changing": "of the value at one step, any values, from all reports of this attribute; exact or an upper bound.",
            "device_unchanged": "of a value that never changed, from the whole device, worst hints: exact or an upper bound.",
            "device_changing": "of the value at one step, any values, from the whole device, worst hints: exact or a bound.",
        }
        self._guesses = {
            name: gauge(f"privacy_guess_{name}_ratio", f"Chance of a right guess {of}", level) for name, of in told.items()
        }
        self._below = gauge("mass_below_zero_ratio", "Minus the sum of the negative shares of the raw inversion.", span)
        self._fit = gauge("fit_z", "z-score of the latest step's counts under the mechanism.", level)
        self._drift = gauge("drift_sigma", "Largest change of a share since the previous step, in standard errors.", level[:2])
        self._drift_p = gauge("drift_p", "Upper bound on the probability of a change this large without drift.", level[:2])
        self._levels = gauge("levels_sigma", "Least probable difference between two levels' shares, in standard errors.", span)
        self._levels_p = gauge(
            "levels_p", "Upper bound on the probability of a difference this large if all levels agree.", span
        )
        self._change_size = gauge(
            "change_size_ratio", "Size of the last detected jump of a share; NaN before a jump.", level[:2]
        )
        self._changed_at = gauge(
            "changed_at_step", "First time step at the new level of the last detected jump; NaN before a jump.", level[:2]
        )
        self._changes = Counter("ldpstream_changes", "Jumps in the publications made.", level[:2], registry=registry)
        for attribute in survey.attributes:
            if "filtered" in spans(attribute):
                self._change_size.labels(survey.name, attribute.name).set(math.nan)
                self._changed_at.labels(survey.name, attribute.name).set(math.nan)
                self._changes.labels(survey.name, attribute.name)  # exports 0 before the first jump
        self._failed = Counter(
            "ldpstream_estimates_failed",
            "Parts of publications, such as an estimator, that could not be calculated and were left out.",
            level[:2],
            registry=registry,
        )
        for attribute in survey.attributes:
            self._failed.labels(survey.name, attribute.name)  # exports 0 before the first failure
        self._published = Counter("ldpstream_publications", "Publications made.", ["survey"], registry=registry)
        self._published.labels(survey.name)  # exports 0 before the first publication

    def publish(self, publications: list[Publication]) -> None:
        self.show(publications)
        for p in publications:
            self._published.labels(p.survey).inc()
            if p.change is not None:
                self._changes.labels(p.survey, p.attribute).inc()
            self._failed.labels(p.survey, p.attribute).inc(len(p.diagnostics.failed))

    def show(self, publications: list[Publication]) -> None:
        """Sets the gauges. A publication of a step before the latest step changes only the gauges of the last jump."""
        for p in publications:
            if p.change is not None and p.step >= self._jumped.get(p.attribute, -1):
                self._jumped[p.attribute] = p.step
                self._change_size.labels(p.survey, p.attribute).set(p.change.size)
                self._changed_at.labels(p.survey, p.attribute).set(p.change.changed_at)
            if p.step < self._latest.get((p.attribute, p.span, p.cohort), -1):
                continue
            self._latest[p.attribute, p.span, p.cohort] = p.step
            labels = (p.survey, p.attribute, p.span)
            if p.cohort is not None:
                self._cohort_reports.labels(*labels, p.cohort).set(p.reports)
                continue
            self._reports.labels(*labels).set(p.reports)
            self._panes.labels(*labels).set(p.panes)
            self._step.labels(*labels).set(p.step)
            self._complete.labels(*labels).set(p.complete)
            values = self._values(p)
            known = self._estimators.setdefault(labels, set())
            known.update([p.main] if self._brief else p.estimators)
            for name in known:
                left_out = name not in p.estimators
                found = Estimate.of_nothing(len(values), 0) if left_out else p.estimators[name].at(values).estimate()
                numbers = zip(found.frequencies, *found.interval(), strict=True)
                for gauges, of_value in zip(self._series_of(p, name, values), numbers, strict=True):
                    for gauge, number in zip(gauges, of_value, strict=True):
                        gauge.set(number)
            self._show_numbers(p)
            if p.span == "step":
                self._show_guesses(p)
                self._show_crowd(p)
            for level, privacy in p.privacy.items():
                self._eps_t.labels(p.survey, p.attribute, level).set(privacy.eps_t)
                self._eps_inf.labels(p.survey, p.attribute, level).set(math.inf if privacy.eps_inf is None else privacy.eps_inf)
                self._eps_sequence.labels(p.survey, p.attribute, level).set(privacy.eps_sequence)
                for bound, gauge in ((privacy.eps_window, self._eps_window), (privacy.eps_lifetime, self._eps_lifetime)):
                    gauge.labels(p.survey, p.attribute, level).set(math.inf if bound is None else bound)
            if p.span == "filtered":
                continue
            said = p.diagnostics
            self._below.labels(*labels).set(_known(said.mass_below_zero))
            if len(p.privacy) > 1:
                self._levels.labels(*labels).set(_known(said.levels_sigma))
                self._levels_p.labels(*labels).set(_known(said.levels_p))
            if p.span == "step":
                for name, z in said.fit_z.items():
                    self._fit.labels(p.survey, p.attribute, name).set(_known(z))
                self._drift.labels(p.survey, p.attribute).set(_known(said.drift_sigma))
                self._drift_p.labels(p.survey, p.attribute).set(_known(said.drift_p))

    def _series_of(self, p: Publication, estimator: str, values: list[int]) -> list[tuple[Gauge, ...]]:
        labels = (p.survey, p.attribute, p.span, estimator)
        if values and labels not in self._series:
            attribute = self._survey.attributes[self._survey.index(p.attribute)]
            width = len(str(attribute.k - 1))  # zeros keep the numeric order
            gauges = (self._frequency, self._low, self._high)
            self._series[labels] = [
                tuple(gauge.labels(*labels, str(i).zfill(width), attribute.label(i)) for gauge in gauges) for i in values
            ]
        return self._series[labels] if values else []

    def _show_numbers(self, p: Publication) -> None:
        attribute = self._survey.index(p.attribute)
        names = number_names(self._survey.attributes[attribute], self._survey.mechanisms[attribute], p.span)
        for name, q in zip(names, (None, *PERCENTILES)):  # an attribute with `choices` has only the mean
            x = p.numbers.get(name)
            numbers = (None, None, None) if x is None else (x.value, x.low, x.high)
            labels = (p.survey, p.attribute, p.span)
            for gauge, number in zip(self._means if q is None else self._quantiles, numbers, strict=True):
                gauge.labels(*labels, *([] if q is None else [f"{100 * q:g}"])).set(_known(number))

    def _show_crowd(self, p: Publication) -> None:
        self._has_crowd = self._has_crowd or p.crowd is not UNSET
        if self._has_crowd:
            assumed, reports = (p.crowd.assumed, p.crowd.reports) if p.crowd else (None, dict[str, int]())
            self._crowd_assumed.labels(p.survey).set(_known(assumed))
            for name in p.privacy:
                self._crowd.labels(p.survey, p.attribute, name).set(_known(reports.get(name)))

    def _show_guesses(self, p: Publication) -> None:
        attribute = self._survey.index(p.attribute)
        for level, m in zip(self._survey.attributes[attribute].levels, self._survey.mechanisms[attribute], strict=True):
            labels = (p.survey, p.attribute, level.name)
            self._guess_blind.labels(*labels).set(1 / m.guessed)
            for gauge, chance in zip(
                self._guesses.values(), guesses(self._survey, attribute, m, p.step + 1).values(), strict=True
            ):
                gauge.labels(*labels).set(chance if chance.exact else round_up(chance))

    def _values(self, p: Publication) -> list[int]:
        if p.attribute not in self._shown:
            attribute = self._survey.attributes[self._survey.index(p.attribute)]
            if attribute.k <= BRIEF_VALUES if self._brief else attribute.size is None and attribute.k <= MAX_LISTED:
                self._shown[p.attribute] = list(range(attribute.k))
            else:
                first = p.estimators[p.main].estimate().frequencies
                if np.isnan(first).any():  # nobody has reported
                    return []
                self._shown[p.attribute] = sorted(range(len(first)), key=lambda i: -first[i])
                del self._shown[p.attribute][BRIEF_VALUES if self._brief else TOP_VALUES :]
        return self._shown[p.attribute]


def _known(x: float | None) -> float:
    return math.nan if x is None else x
