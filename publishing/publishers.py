"""Publishers that send estimates to a compacted Kafka topic and to Prometheus."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, TransactionalIdAuthorizationFailedError
from prometheus_client import CollectorRegistry, Counter, Gauge

from ldpstream.estimators.quantiles import PERCENTILES
from ldpstream.mechanisms import guessing
from ldpstream.publishing.frequencies import NUMBERS
from ldpstream.publishing.publication import FORMAT, Publication, edges_of, spans
from ldpstream.publishing.schedule import PublicationSummary
from ldpstream.publishing.stored import StoredReader
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.kafka_errors import hearing
from ldpstream.runtime.kafka_producer import Producer
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.stores.formats import check_format
from ldpstream.surveys import Survey

MAX_PUBLICATION_BYTES = 16 * 2**20  # the topic's limit for a record; a publication has about 140 bytes per value
CONNECT_MS = 10_000
REQUEST_MS = 10_000
DELIVERY_MS = 20_000
RETRY_MS = 20
POLL_MS = 200
CLOSE_S = 5.0
MAX_LISTED = 256  # an attribute with at most MAX_LISTED listed values has a time series for each value
BRIEF_VALUES = 10
TOP_VALUES = 20  # other attributes: a time series for each of the most frequent values of the first estimate

_publication = msgspec.json.Decoder(Publication)


class TopicUnavailable(LogUnavailable):
    """The broker does not accept or return estimates."""


class KafkaPublisher:
    """The survey's compacted topic of estimates: one JSON record per publication, keyed by `record_key`.

    One estimator writes at a time. `take_over` fences all other estimators: all estimators share a transactional id, and the
    broker refuses transactions of a fenced estimator. If an estimator hangs while another estimator continues, it cannot
    publish its old estimates afterwards.

    Args:
        survey: the survey.
        settings: Kafka's address and our credentials.
        reader: counts the publications that cannot be decoded; None for no counter.

    Raises:
        LogUnavailable: if no broker answers.
        SettingsError: if we may not use the transactional id.
    """

    def __init__(self, survey: Survey, settings: Settings, reader: StoredReader | None = None) -> None:
        self._partition, self._reader = TopicPartition(survey.estimates_topic, 0), reader or StoredReader(survey)
        self._fingerprint, self._settings = survey.fingerprint.hex(), settings
        self._transactional_id = f"ldpstream-{survey.name}-{survey.fingerprint.hex()}"
        self._producer: Producer | None = None
        self._consumer: KafkaConsumer | None = None  # not None while publications are read
        self._in_topic: dict[str, PublicationSummary] = {}
        self._connect(f"{self._transactional_id}-check").close(timeout=CLOSE_S)

    def _connect(self, transactional_id: str) -> Producer:
        """Returns a producer that owns this transactional id; the broker fences every earlier producer with this id."""
        producer = None
        with hearing(self._settings) as heard:
            try:
                producer = Producer(
                    **self._settings.kafka_options(),
                    bootstrap_timeout_ms=CONNECT_MS,
                    max_block_ms=CONNECT_MS,
                    request_timeout_ms=REQUEST_MS,
                    delivery_timeout_ms=DELIVERY_MS,
                    transaction_timeout_ms=DELIVERY_MS + REQUEST_MS,
                    retry_backoff_ms=RETRY_MS,
                    acks="all",
                    enable_idempotence=True,
                    transactional_id=transactional_id,
                    allow_auto_create_topics=False,
                    max_request_size=MAX_PUBLICATION_BYTES,
                )
                producer.init_transactions()
            except KafkaError as error:
                if producer is not None:
                    producer.close(timeout=0)
                if isinstance(error, TransactionalIdAuthorizationFailedError):
                    user, where = self._settings.kafka_user, self._settings.kafka
                    said = f"user {user} may not WRITE transactional id {transactional_id}"
                    raise SettingsError(f"Kafka at {where}: {said}") from None
                hint = " (transaction.state.log.replication.factor must not exceed the number of brokers)" if producer else ""
                raise self._unavailable(f"{heard.why(error)}{hint}") from None
        return producer

    def take_over(self, since: int, still: Callable[[], bool]) -> dict[str, PublicationSummary]:
        """See `schedule.EstimatesTopic`.

        Raises:
            LogUnavailable: if the broker does not answer or refuses, or if another estimator now leads.
        """
        self._drop()
        self._in_topic = {}
        self._check(still)
        self._producer = self._connect(self._transactional_id)
        with self._unavailable_on_error():
            self._consumer = consumer = self._new_consumer()
            end = consumer.end_offsets([self._partition])[self._partition]
            begin = consumer.beginning_offsets([self._partition])[self._partition]
            consumer.seek(self._partition, min(max(since, begin), end))
            for record in self._records(consumer, end, still):
                self._note(record.value, record.offset)
        return dict(self._in_topic)

    def end(self) -> int:
        """See `schedule.EstimatesTopic`.

        Raises:
            LogUnavailable: if the broker does not answer.
        """
        with self._unavailable_on_error():
            consumer = self._consumer = self._consumer or self._new_consumer()
            return int(consumer.end_offsets([self._partition])[self._partition])

    def _check(self, still: Callable[[], bool]) -> None:
        if not still():
            raise self._unavailable("another estimator leads")

    def _note(self, value: bytes | None, offset: int) -> None:
        """Keeps a record's summary, unless the record is a publication of another survey with the same name.

        The record itself names the publication: earlier versions wrote record keys without the fingerprint.
        """
        try:
            summary = msgspec.json.decode(value or b"", type=PublicationSummary)
        except msgspec.DecodeError:
            return
        if summary.fingerprint == self._fingerprint:
            check_format(f"{self._partition.topic}: a publication", summary.format, FORMAT, "run the version that wrote it")
            self._in_topic[summary.key] = msgspec.structs.replace(summary, offset=offset)

    def read(self, keys: Sequence[str]) -> list[Publication]:
        """See `schedule.EstimatesTopic`. Skips records of other software versions that this version cannot read.

        Raises:
            LogUnavailable: if the broker does not answer.
        """
        wanted = {self._in_topic[key].offset: key for key in keys if key in self._in_topic}
        if not wanted:
            return []
        found: dict[str, Publication] = {}
        with self._unavailable_on_error():
            consumer = self._consumer = self._consumer or self._new_consumer()
            consumer.seek(self._partition, min(wanted))
            for record in self._records(consumer, max(wanted) + 1):
                if (key := wanted.get(record.offset)) is not None:
                    publication = self._reader.decode(_publication.decode, record.value, "kafka", key)
                    if publication is not None:
                        found[key] = publication
        for key in set(keys) - found.keys():
            self._in_topic.pop(key, None)
        return list(found.values())

    def _new_consumer(self) -> KafkaConsumer:
        """Returns a consumer of committed records, without a consumer group."""
        consumer = KafkaConsumer(
            **self._settings.kafka_options(),
            bootstrap_timeout_ms=CONNECT_MS,
            request_timeout_ms=REQUEST_MS,
            isolation_level="read_committed",
            group_id=None,
            enable_auto_commit=False,
        )
        consumer.assign([self._partition])
        return consumer

    @contextmanager
    def _unavailable_on_error(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            self._stop_reading()
            raise self._unavailable(error) from None

    def _records(self, consumer: KafkaConsumer, end: int, still: Callable[[], bool] = lambda: True) -> Iterator[Any]:
        """Yields the records from the consumer's position up to offset `end`.

        Raises:
            KafkaTimeoutError: if records remain but none arrive in time.
        """
        position, moved_s = consumer.position(self._partition), time.monotonic()
        while position < end:
            self._check(still)
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                yield from records
            before, position = position, consumer.position(self._partition)
            if position != before:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > REQUEST_MS / 1000:
                raise KafkaTimeoutError("no estimates were read in time")

    def publish(self, publications: list[Publication]) -> int:
        """See `schedule.EstimatesTopic`. Publishes in one transaction, and returns when the broker has stored the publications.

        Raises:
            LogUnavailable: if the broker rejects the publications, for example because another estimator has taken over.
        """
        self._stop_reading()
        if self._producer is None:
            raise self._unavailable("this estimator has not taken the topic over")
        try:
            self._producer.begin_transaction()
            sent = [self._producer.send(self._partition.topic, msgspec.json.encode(p), record_key(p)) for p in publications]
            self._producer.commit_within((DELIVERY_MS + REQUEST_MS) / 1000)
            return max((future.get(timeout=0).offset + 1 for future in sent), default=0)
        except KafkaError as error:
            self._drop()
            raise self._unavailable(error) from error

    def _unavailable(self, why: object) -> TopicUnavailable:
        return TopicUnavailable(f"Kafka at {self._settings.kafka} does not accept estimates for {self._partition.topic}: {why}")

    def _drop(self) -> None:
        """Drops the producer and its unsent records, because another estimator may since have published the same keys."""
        if self._producer is not None:
            self._producer.close(timeout=0)
        self._producer = None
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

    def close(self) -> None:
        """Closes the connections."""
        self._drop()


def record_key(p: Publication) -> bytes:
    """Returns the key of a publication's record. Compaction keeps the last record of each key.

    The key begins with the survey's fingerprint: a survey that replaces another under the same name must not erase its history.
    """
    return f"{p.fingerprint}|{p.key}".encode()


class PrometheusPublisher:
    """Gauges of the latest estimates and of the last jump, and counters of the publications made.

    A gauge for which the latest estimate has no number is NaN, never an older number. Gauges without the label `value` are
    always exported. If the survey lists an attribute's values (at most 256), each value has a time series of its frequency.
    For other attributes only the 20 most frequent values of the first estimate have a time series; later estimates do not
    change this choice of values. A cohort has a time series of its number of reports, and none of a frequency: a survey has at
    most 64 cohorts, but cohorts times values are too many time series.

    Args:
        survey: the survey.
        registry: registry of the gauges.
        brief: True in a process with many surveys: only the default estimate has time series of frequencies, of at most the 10
            most frequent values of the first estimate.
    """

    def __init__(self, survey: Survey, registry: CollectorRegistry, brief: bool = False) -> None:
        self._survey, self._brief = survey, brief
        self._shown: dict[str, list[int]] = {}
        self._latest: dict[tuple[str, str, str | None], int] = {}
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
            "privacy_eps_lifetime_nats", "Bound of the privacy loss of all reports of a participant, for any values.", level
        )
        self._guess_blind = gauge("privacy_guess_without_report_ratio", "Chance of a right guess without any report.", level)
        self._guess_unchanged = gauge(
            "privacy_guess_unchanged_ratio", "Chance of a right guess of a value that never changed, from all reports.", level
        )
        self._guess_changing = gauge(
            "privacy_guess_changing_ratio", "Bound of the chance of a right guess of the value at one step, any values.", level
        )
        self._below = gauge("mass_below_zero_ratio", "Sum of the negative shares of the raw matrix inversion.", span)
        self._fit = gauge("fit_z", "z-score of the latest step's counts under the mechanism.", level)
        self._drift = gauge("drift_sigma", "Largest change of a share since the previous step, in standard errors.", level[:2])
        self._drift_p = gauge("drift_p", "Upper bound on the probability of a change this large without drift.", level[:2])
        self._levels = gauge("levels_sigma", "Largest difference between two levels' shares, in standard errors.", span)
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
        """Sets the gauges, and adds the publications and their jumps to the counters of this process."""
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
            for name in [p.main] if self._brief else p.estimators:
                found = p.estimators[name].estimate()
                low, high = found.interval()
                attribute = self._survey.attributes[self._survey.index(p.attribute)]
                for i in self._values(p):
                    value = (str(i).zfill(len(str(attribute.k - 1))), attribute.label(i))  # zeros keep the numeric order
                    self._frequency.labels(*labels, name, *value).set(found.frequencies[i])
                    self._low.labels(*labels, name, *value).set(low[i])
                    self._high.labels(*labels, name, *value).set(high[i])
            self._show_numbers(p)
            if p.span == "step":
                self._show_guesses(p)
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

    def _show_numbers(self, p: Publication) -> None:
        """Sets the mean and the quantiles of an attribute with numbers."""
        attribute = self._survey.index(p.attribute)
        if edges_of(self._survey.attributes[attribute], self._survey.mechanisms[attribute]) is None:
            return
        for name, q in zip(NUMBERS, (None, *PERCENTILES), strict=True):
            x = p.numbers.get(name)
            numbers = (None, None, None) if x is None else (x.value, x.low, x.high)
            labels = (p.survey, p.attribute, p.span)
            for gauge, number in zip(self._means if q is None else self._quantiles, numbers, strict=True):
                gauge.labels(*labels, *([] if q is None else [f"{100 * q:g}"])).set(_known(number))

    def _show_guesses(self, p: Publication) -> None:
        """Sets the chances that an observer of all reports of a participant guesses the value, from a uniform prior."""
        attribute = self._survey.index(p.attribute)
        for level, m in zip(self._survey.attributes[attribute].levels, self._survey.mechanisms[attribute], strict=True):
            labels, privacy = (p.survey, p.attribute, level.name), p.privacy[level.name]
            self._guess_blind.labels(*labels).set(1 / m.k)
            self._guess_unchanged.labels(*labels).set(m.guess(privacy.t))
            self._guess_changing.labels(*labels).set(guessing.bound(privacy.eps_sequence, m.k))

    def _values(self, p: Publication) -> list[int]:
        """Returns the indices of the values that have a time series."""
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
