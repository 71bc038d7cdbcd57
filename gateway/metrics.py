"""The gateway's Prometheus metrics. No metric identifies a client."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ldpstream.gateway.http.problems import STATUS


class OfSurveys(Collector):
    """A gauge with a value for each survey. `values` returns them by name; any thread may call it."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self.values: Callable[[], Mapping[str, float]] = dict

    def of(self, survey: str) -> float | None:
        """Returns the value for a survey; None for 0, and for an unknown survey."""
        return self.values().get(survey) or None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(self._name, self._text, labels=["survey"])
        for name, value in self.values().items():
            family.add_metric([name], value)
        yield family


_requests = Counter("ldpstream_gateway_requests", "Requests with reports, by outcome", ["outcome"])
# all outcomes start at zero: a rate needs a sample before the first request
requests = {outcome: _requests.labels(outcome) for outcome in ("accepted", *STATUS)}
reports = Counter("ldpstream_gateway_reports", "Reports that the log has acknowledged")
survey_ready = OfSurveys("ldpstream_gateway_survey_ready", "1 while the gateway takes reports of the survey, else 0")
largest_client = OfSurveys(
    "ldpstream_gateway_largest_client_ratio",
    "Upper bound of the largest share of one client in the reports of an attribute and step, or of 1000 reports.",
)
for collector in (survey_ready, largest_client):
    REGISTRY.register(collector)
request_seconds = Histogram(
    "ldpstream_gateway_request_seconds", "Seconds from a request's head to its answer; behind a relay, from the shuffle's end"
)
waiting_bytes = Gauge("ldpstream_gateway_waiting_bytes", "Bytes of request bodies being read or not yet acknowledged")
certificate_ends = Gauge(
    "ldpstream_gateway_certificate_ends_timestamp_seconds", "End of the certificate that the gateway uses; 0 if it uses none"
)
connections_refused = Counter(
    "ldpstream_gateway_connections_refused", "Connections closed at once: too many from one address or in all"
)
