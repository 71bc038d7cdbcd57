"""The metrics of one survey in a registry of their own."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.surveys import Survey


class Gauges(PrometheusPublisher):
    def __init__(self, survey: Survey, publications: Sequence[Publication] = ()) -> None:
        self.registry = CollectorRegistry()
        super().__init__(survey, self.registry)
        self.publish(list(publications))

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"ldpstream_{name}", {"survey": self._survey.name} | labels)

    def samples(self) -> list[Sample]:
        return [sample for metric in self.collect() for sample in metric.samples]
