"""The metrics of all surveys of a process as one page of metrics."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector


class SurveyMetrics(Collector):
    """Metrics of one name become one family, and a removed survey leaves no series behind."""

    def __init__(self) -> None:
        self._registries: tuple[CollectorRegistry, ...] = ()  # replaced, never changed: a thread reads it for each scrape

    def add(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        self._registries = (*self._registries, registry)
        return registry

    def remove(self, registry: CollectorRegistry) -> None:
        self._registries = tuple(kept for kept in self._registries if kept is not registry)

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for registry in self._registries:
            for metric in registry.collect():
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit))
                family.samples += metric.samples
        return families.values()

    def describe(self) -> Iterable[Metric]:
        return ()  # the names are not known before the first survey
