"""Who is told of estimates besides the results: a compacted Kafka topic, and Prometheus."""

import math

import msgspec
from kafka.errors import KafkaError
from prometheus_client import CollectorRegistry, Counter, Gauge

from estimators.log_position import LogUnavailable
from estimators.publication import Publication
from surveys import Attribute, Survey
from surveys.kafka_producer import Producer
from surveys.kafka_reason import hearing
from surveys.settings import Settings

MAX_PUBLICATION_BYTES = 16 * 2**20  # as the topic allows; a publication takes about 140 bytes a value
CONNECT_MS = 10_000
REQUEST_MS = 10_000
DELIVERY_MS = 20_000
CLOSE_S = 5.0
MAX_LISTED = 256  # values of an attribute that have a time series each, if the survey lists them
TOP_VALUES = 20  # else so many: the most frequent ones of the first estimate


class KafkaPublisher:
    """Publishes each publication as one JSON record, keyed by `Publication.key`, to the survey's compacted topic.

    What the broker did not take in time is given up, and not sent once it is back: by then another estimator may have
    published the same key anew, which must stay the last one.

    Raises:
        LogUnavailable: if no broker answers.
    """

    def __init__(self, survey: Survey, settings: Settings) -> None:
        self._topic, self._settings = survey.estimates_topic, settings
        self._producer: Producer | None = self._connect()

    def _connect(self) -> Producer:
        with hearing(self._settings) as heard:
            try:
                return Producer(
                    **self._settings.kafka_options(),
                    bootstrap_timeout_ms=CONNECT_MS,
                    max_block_ms=CONNECT_MS,
                    request_timeout_ms=REQUEST_MS,
                    delivery_timeout_ms=DELIVERY_MS,
                    acks="all",
                    enable_idempotence=True,
                    allow_auto_create_topics=False,
                    max_request_size=MAX_PUBLICATION_BYTES,
                )
            except KafkaError as error:
                raise LogUnavailable(f"no Kafka broker answers at {self._settings.kafka}: {heard.why(error)}") from None

    def publish(self, publications: list[Publication]) -> None:
        """Returns when the broker has them all.

        Raises:
            LogUnavailable: if it does not take them.
        """
        producer = self._producer = self._producer or self._connect()
        try:
            sent = [producer.send(self._topic, msgspec.json.encode(p), p.key.encode()) for p in publications]
            producer.flush(timeout=(DELIVERY_MS + REQUEST_MS) / 1000)  # when each has been delivered or given up
            for future in sent:
                future.get(timeout=0)
        except KafkaError as error:
            producer.close(timeout=0)
            self._producer = None
            raise LogUnavailable(
                f"Kafka at {self._settings.kafka} does not take estimates for {self._topic}: {error}"
            ) from error

    def close(self) -> None:
        """Let go of the connections; what was not acknowledged was already reported."""
        if self._producer is not None:
            self._producer.close(timeout=CLOSE_S)


class PrometheusPublisher:
    """The latest estimates as gauges.

    Aggregates are always there. Frequencies have a time series per value only for the values that the survey lists (up to
    256 an attribute); of other attributes for the 20 most frequent values of the first estimate, which then stay the same.
    """

    def __init__(self, survey: Survey, registry: CollectorRegistry) -> None:
        self._attributes = {attribute.name: attribute for attribute in survey.attributes}
        self._shown: dict[str, list[int]] = {}
        self._latest: dict[tuple[str, str], int] = {}
        span, level = ["survey", "attribute", "span"], ["survey", "attribute", "level"]
        value = [*span, "estimator", "value"]

        def gauge(name: str, text: str, labels: list[str]) -> Gauge:
            return Gauge(f"ldpstream_{name}", text, labels, registry=registry)

        self._frequency = gauge("frequency_ratio", "Estimated share of a value.", value)
        self._error = gauge("frequency_standard_error_ratio", "Standard error of the estimated share of a value.", value)
        self._reports = gauge("estimate_reports", "Reports that the latest estimate rests on.", span)
        self._panes = gauge("estimate_panes", "Steps with reports in the latest estimate's span.", span)
        self._step = gauge("estimate_step", "Time step of the latest estimate.", span)
        self._complete = gauge("estimate_complete", "1 if nothing could be missing from the latest estimate, else 0.", span)
        self._eps_t = gauge(
            "privacy_eps_t_nats", "Loss of a participant who reported an unchanged value at every step so far.", level
        )
        self._eps_inf = gauge("privacy_eps_inf_nats", "Bound of eps_t for ever.", level)
        self._eps_sequence = gauge(
            "privacy_eps_sequence_nats", "Loss of a participant who reported at every step so far, any values.", level
        )
        self._below = gauge("mass_below_zero_ratio", "Sum of the negative shares of the raw matrix inversion.", span)
        self._fit = gauge("fit_z", "z-score of the latest step's counts under the mechanism.", level)
        self._drift = gauge("drift_sigma", "Largest move of a share since the step before, in standard errors.", level[:2])
        self._drift_p = gauge("drift_p", "Chance of so large a move of any value without drift, at most.", level[:2])
        self._published = Counter("ldpstream_publications", "Publications made.", ["survey"], registry=registry)

    def publish(self, publications: list[Publication]) -> None:
        """Show them, and count them as made by this process."""
        self.show(publications)
        for p in publications:
            self._published.labels(p.survey).inc()

    def show(self, publications: list[Publication]) -> None:
        """Set the gauges; a step that comes again after a later one leaves them as they are."""
        for p in publications:
            if p.step < self._latest.get((p.attribute, p.span), 0):
                continue
            self._latest[p.attribute, p.span] = p.step
            labels = (p.survey, p.attribute, p.span)
            self._reports.labels(*labels).set(p.reports)
            self._panes.labels(*labels).set(p.panes)
            self._step.labels(*labels).set(p.step)
            self._complete.labels(*labels).set(p.complete)
            for name, result in p.estimators.items():
                found = result.estimate()
                for i in self._values(p):
                    label = self._attributes[p.attribute].label(i)
                    self._frequency.labels(*labels, name, label).set(found.frequencies[i])
                    self._error.labels(*labels, name, label).set(found.standard_errors[i])
            for level, privacy in p.privacy.items():
                self._eps_t.labels(p.survey, p.attribute, level).set(privacy.eps_t)
                self._eps_inf.labels(p.survey, p.attribute, level).set(math.inf if privacy.eps_inf is None else privacy.eps_inf)
                self._eps_sequence.labels(p.survey, p.attribute, level).set(privacy.eps_sequence)
            said = p.diagnostics
            if said.mass_below_zero is not None:
                self._below.labels(*labels).set(said.mass_below_zero)
            if p.span == "step":
                for name, z in said.fit_z.items():
                    if z is not None:
                        self._fit.labels(p.survey, p.attribute, name).set(z)
                if said.drift_sigma is not None:
                    self._drift.labels(p.survey, p.attribute).set(said.drift_sigma)
                if said.drift_p is not None:
                    self._drift_p.labels(p.survey, p.attribute).set(said.drift_p)

    def _values(self, p: Publication) -> list[int]:
        """The indices of the values that have a time series."""
        if p.attribute not in self._shown:
            attribute: Attribute = self._attributes[p.attribute]
            if attribute.size is None and attribute.k <= MAX_LISTED:
                self._shown[p.attribute] = list(range(attribute.k))
            else:
                if not p.reports:
                    return []
                first = p.estimators["ibu"].estimate().frequencies
                self._shown[p.attribute] = sorted(range(len(first)), key=lambda i: -first[i])[:TOP_VALUES]
        return self._shown[p.attribute]
