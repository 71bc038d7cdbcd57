"""Gauges of the estimator's and the counting agents' progress, for Prometheus."""

import math

from prometheus_client import CollectorRegistry, Gauge

from ldpstream.engines.count_store import CountStore
from ldpstream.publishing.estimates.growth import growth_of
from ldpstream.publishing.estimates.publication import publication_keys
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.publishing.progress import Progress, Results
from ldpstream.publishing.schedule import MARGIN_MS, LogPosition
from ldpstream.surveys import Survey

LAG_EVERY_MS = 5_000


class Vitals:
    """Gauges of one survey: uncounted records, the next estimate's time, the latest estimates, and the growth of unlisted
    values."""

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

    def look(self, now_ms: int) -> None:
        """Sets the gauges. Updates the lag at most every five seconds."""
        progress = self._results.progress()
        if progress is not None and progress != self._progress:
            found = self._results.get(publication_keys(self._survey, progress.next_step - 1))
            self._prometheus.show([p for p in found if p is not None])
            for name, gauge in self._growth.items():
                growth = growth_of(self._survey, self._results, name, progress.next_step - 1)
                gauge.set(0.0 if growth is None else growth.difference)
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
