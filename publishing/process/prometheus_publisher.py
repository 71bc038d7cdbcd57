"""The metrics of the surveys of an estimator for Prometheus (`publishing.process.metrics`)."""

import math
from collections.abc import Iterable

import numpy as np
from msgspec import UNSET
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ldpstream.publishing.estimates.publication import Publication, spans
from ldpstream.publishing.process.metrics import METRICS, Labels, ShownPublication
from ldpstream.surveys import Survey

MAX_LISTED = 256  # an attribute with at most MAX_LISTED listed values or bins has a time series for each value
BRIEF_VALUES = 10
TOP_VALUES = 20  # any other attribute has a time series for each of the TOP_VALUES most frequent values of the first estimate

COUNTERS = [metric for metric in METRICS if metric.counter]
GAUGES = [metric for metric in METRICS if not metric.counter]


class SurveyMetrics(CollectorRegistry):
    """The metrics of all surveys of a process. Metrics of one name become one family."""

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for metric in super().collect():
            family = families.setdefault(metric.name, metric)
            if family is not metric:
                family.samples += metric.samples
        return families.values()


class PrometheusPublisher(Collector):
    """Has the gauges and counters of a survey.

    A frequency or a crowd that the latest estimate lacks is NaN. Listed values or bins, at most 256, have a time series each.
    Of other attributes only the 20 most frequent values of the first estimate shown have one. A cohort has a time series of its
    number of reports only.

    Args:
        brief: True in a process with many surveys: only the default estimator, and at most 10 values of an attribute.
    """

    def __init__(self, survey: Survey, registry: CollectorRegistry, brief: bool = False) -> None:
        self._survey, self._brief = survey, brief
        self._shown: dict[str, list[int]] = {}
        # by metric and labels: the number, and the step of its publication
        self._series: dict[str, dict[Labels, tuple[float, int]]] = {metric.name: {} for metric in METRICS}
        for attribute in survey.attributes:
            self._series["estimates_failed"][attribute.name,] = 0, 0
            if "filtered" in spans(attribute):
                self._series["changes"][attribute.name,] = 0, 0
                self._series["change_size_ratio"][attribute.name,] = math.nan, -1
        registry.register(self)

    def set(self, name: str, number: float | None, *labels: str) -> None:
        """Sets a gauge of the survey's state."""
        self._series[name][labels] = math.nan if number is None else number, 0

    def publish(self, publications: list[Publication]) -> None:
        self.show(publications)
        for p in publications:
            for metric in COUNTERS:
                series = self._series[metric.name]
                for labels, number in metric.of(ShownPublication(self._survey, p)):
                    if number:
                        series[labels] = series.get(labels, (0, 0))[0] + number, p.step

    def show(self, publications: list[Publication]) -> None:
        """Sets the gauges. No number of an earlier step replaces that of a later step."""
        for p in publications:
            shown = ShownPublication(self._survey, p) if p.cohort is not None else self._with_shares(p)
            for metric in GAUGES:
                if ("cohort" in metric.labels) != (p.cohort is not None):
                    continue
                series = self._series[metric.name]
                for labels, number in metric.of(shown):
                    _, step = series.get(labels, (math.nan, None if number is UNSET else -1))
                    if step is not None and step <= p.step:
                        series[labels] = math.nan if number is None or number is UNSET else float(number), p.step

    def _with_shares(self, p: Publication) -> ShownPublication:
        attribute, values = self._survey.attributes[self._survey.index(p.attribute)], self._values(p)
        width = len(str(attribute.k - 1))  # zeros keep the numeric order
        found = {name: p.estimators[name].estimate() for name in ([p.main] if self._brief else p.estimators)}
        shares = {name: [x[values].tolist() for x in (of.frequencies, *of.interval())] for name, of in found.items()}
        return ShownPublication(self._survey, p, [(str(i).zfill(width), attribute.label(i)) for i in values], shares)

    def _values(self, p: Publication) -> list[int]:
        if p.attribute not in self._shown:
            attribute = self._survey.attributes[self._survey.index(p.attribute)]
            if attribute.k <= BRIEF_VALUES if self._brief else attribute.size is None and attribute.k <= MAX_LISTED:
                self._shown[p.attribute] = list(range(attribute.k))
            else:
                first = p.estimators[p.main].estimate().frequencies
                if np.isnan(first).any():  # nobody has reported
                    return []
                most = BRIEF_VALUES if self._brief else TOP_VALUES
                self._shown[p.attribute] = np.argsort(-first, kind="stable")[:most].tolist()
        return self._shown[p.attribute]

    def collect(self) -> Iterable[Metric]:
        for metric in METRICS:
            kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
            family = kind(f"ldpstream_{metric.name}", metric.text, labels=("survey", *metric.labels))
            for labels, (number, _) in list(self._series[metric.name].items()):  # another thread may add series
                family.add_metric([self._survey.name, *labels], number)
            yield family
