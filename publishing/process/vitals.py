"""Gauges of the estimator's and the counting agents' progress, for Prometheus."""

import math

from ldpstream.engines.count_store import CountStore
from ldpstream.publishing.answers.comparison import growth_of
from ldpstream.publishing.answers.usage import People, read_usage, recipes_of
from ldpstream.publishing.estimates.publication import publication_keys
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import MARGIN_MS, LogPosition
from ldpstream.surveys import Survey

LAG_EVERY_MS = 5_000
USAGE_STEPS = 30  # enough for people in several steps, and for the return of new people after 28 steps


class Vitals:
    """Gauges of one survey: uncounted records, the next estimate's time, the latest estimates, the growth of unlisted values,
    and the people who use an application."""

    def __init__(
        self, survey: Survey, store: CountStore, position: LogPosition, results: KeptResults, prometheus: PrometheusPublisher
    ) -> None:
        self._survey, self._store, self._position, self._results = survey, store, position, results
        self._looked_ms, self._prometheus = -LAG_EVERY_MS, prometheus
        self._progress: Progress | None = None
        self._first_step: int | None = None  # the step shown as due before the first estimate
        prometheus.set("next_estimate_due_timestamp_seconds", None)  # unknown until the first look: 0 would be long overdue

    def look(self, now_ms: int) -> None:
        """Sets the gauges. Updates the lag at most every five seconds."""
        progress = self._results.progress()
        if progress is not None and progress != self._progress:
            found = self._results.get(publication_keys(self._survey, progress.next_step - 1))
            self._prometheus.show([p for p in found if p is not None])
            for attribute in self._survey.attributes:
                if attribute.catch_all is not None:
                    growth = growth_of(self._survey, self._results, attribute.name, progress.next_step - 1)
                    self._prometheus.set("unlisted_growth_ratio", 0.0 if growth is None else growth.difference, attribute.name)
            if recipes_of(self._survey):
                self._show_usage(progress.next_step - 1)
            self._progress = progress
        if self._first_step is None:
            self._first_step = max(0, self._survey.step_at(now_ms))
        due = progress.next_step if progress is not None else self._first_step
        due_s = math.inf if self._survey.ended(due) else (self._survey.closes_ms(due) + MARGIN_MS) / 1000
        self._prometheus.set("next_estimate_due_timestamp_seconds", due_s)
        if now_ms - self._looked_ms >= LAG_EVERY_MS:
            counted = self._store.positions()
            ends = self._position.ends()
            self._prometheus.set("lag_records", sum(max(0, end - counted.get(p, 0)) for p, end in ends.items()))
            self._looked_ms = now_ms

    def _show_usage(self, step: int) -> None:
        """Shows the people of the latest step, and for each time the latest group of new people of whom the return is known."""
        usage = read_usage(self._survey, self._results, step, USAGE_STEPS)
        if not usage.steps:
            return
        for period, line in (("day", usage.a_day), ("step", usage.people), (f"{usage.in_many} steps", usage.in_steps)):
            if line is not None:
                self._set("people", period, line, -1)
        for group in usage.retention:
            after = usage.steps[-1] - group.step
            if 1 <= after <= len(group.shares.values):
                self._set("returned_ratio", str(after), group.shares, after - 1)

    def _set(self, name: str, label: str, line: People, i: int) -> None:
        for end, numbers in (("", line.values), ("_low", line.low), ("_high", line.high)):
            self._prometheus.set(f"{name}{end}", numbers[i], label)
