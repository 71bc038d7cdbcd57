"""Gauges of the estimator's and the counting agents' progress, for Prometheus."""

import math

from prometheus_client import CollectorRegistry, Gauge

from ldpstream.engines.count_store import CountStore
from ldpstream.publishing.answers.usage import People, read_usage, recipes_of
from ldpstream.publishing.estimates.growth import growth_of
from ldpstream.publishing.estimates.publication import publication_keys
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.publishing.progress import Progress, Results
from ldpstream.publishing.schedule import MARGIN_MS, LogPosition
from ldpstream.surveys import Survey

LAG_EVERY_MS = 5_000
USAGE_STEPS = 30  # enough for people in several steps, and for the return of new people after 28 steps
ENDS = {"": "values", "_low": "low", "_high": "high"}  # of a number's gauges: the lists of `People`


class Vitals:
    """Gauges of one survey: uncounted records, the next estimate's time, the latest estimates, the growth of unlisted values,
    and the people who use an application."""

    def __init__(
        self, survey: Survey, store: CountStore, position: LogPosition, results: Results, prometheus: PrometheusPublisher,
        registry: CollectorRegistry,
    ) -> None:  # fmt: skip
        self._survey, self._store, self._position, self._results = survey, store, position, results
        self._looked_ms, self._prometheus = -LAG_EVERY_MS, prometheus
        self._progress: Progress | None = None
        self._first_step: int | None = None  # the step shown as due before the first estimate

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"ldpstream_{name}", text, ["survey", *labels], registry=registry)

        self._lag = gauge("lag_records", "Records in the log that are not counted yet.").labels(survey.name)
        due = "Earliest time to estimate the next step, Unix time; infinite after the last step."
        self._due = gauge("next_estimate_due_timestamp_seconds", due).labels(survey.name)
        self._due.set(math.nan)  # unknown until the first look: 0 would be long overdue
        clear = "Clear growth of the share of the value for texts that are not listed, else 0."
        growth = gauge("unlisted_growth_ratio", clear, "attribute")
        open_ended = [attribute.name for attribute in survey.attributes if attribute.catch_all is not None]
        self._growth = {name: growth.labels(survey.name, name) for name in open_ended}
        people, back = "People who used the application in the period.", "Share of the new people who came back after so long."
        self._people = {part: gauge(f"people{end}", people, "period") for end, part in ENDS.items()}
        self._back = {part: gauge(f"returned_ratio{end}", back, "steps") for end, part in ENDS.items()}

    def look(self, now_ms: int) -> None:
        """Sets the gauges. Updates the lag at most every five seconds."""
        progress = self._results.progress()
        if progress is not None and progress != self._progress:
            found = self._results.get(publication_keys(self._survey, progress.next_step - 1))
            self._prometheus.show([p for p in found if p is not None])
            for name, gauge in self._growth.items():
                growth = growth_of(self._survey, self._results, name, progress.next_step - 1)
                gauge.set(0.0 if growth is None else growth.difference)
            if recipes_of(self._survey):
                self._show_usage(progress.next_step - 1)
            self._progress = progress
        if self._first_step is None:
            self._first_step = max(0, self._survey.step_at(now_ms))
        due = progress.next_step if progress is not None else self._first_step
        self._due.set(math.inf if self._survey.ended(due) else (self._survey.closes_ms(due) + MARGIN_MS) / 1000)
        if now_ms - self._looked_ms >= LAG_EVERY_MS:
            counted = self._store.positions()
            ends = self._position.ends()
            self._lag.set(sum(max(0, end - counted.get(p, 0)) for p, end in ends.items()))
            self._looked_ms = now_ms

    def _show_usage(self, step: int) -> None:
        """Shows the people of the latest step, and for each time the latest group of new people of whom the return is known."""
        usage = read_usage(self._survey, self._results, step, USAGE_STEPS)
        if not usage.steps:
            return
        for period, line in (("day", usage.a_day), ("step", usage.people), (f"{usage.in_many} steps", usage.in_steps)):
            if line is not None:
                self._set(self._people, period, line, -1)
        for group in usage.retention:
            after = usage.steps[-1] - group.step
            if 1 <= after <= len(group.shares.values):
                self._set(self._back, str(after), group.shares, after - 1)

    def _set(self, gauges: dict[str, Gauge], label: str, line: People, i: int) -> None:
        for part, gauge in gauges.items():
            number = getattr(line, part)[i]
            gauge.labels(self._survey.name, label).set(math.nan if number is None else number)
