"""The compacted Kafka topic of estimates: written by one estimator at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from kafka.errors import KafkaError, TransactionalIdAuthorizationFailedError

from ldpstream.engines.formats import check_format
from ldpstream.engines.kafka.clients import Producer, TopicReader, hearing
from ldpstream.publishing.estimates.publication import FORMAT, Publication
from ldpstream.publishing.progress import PublicationSummary, TopicUnavailable
from ldpstream.publishing.stored import StoredReader
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.surveys import Survey

MAX_PUBLICATION_BYTES = 16 * 2**20  # the topic's limit for a record
CONNECT_MS = 10_000
REQUEST_MS = 10_000
DELIVERY_MS = 20_000
RETRY_MS = 20
CLOSE_S = 5.0

_publication = msgspec.json.Decoder(Publication)


class KafkaPublisher:
    """The survey's compacted topic of estimates: one JSON record per publication, keyed by `record_key`.

    Raises:
        LogUnavailable: if no broker answers.
        SettingsError: if we may not use the transactional id.
    """

    def __init__(self, survey: Survey, settings: Settings) -> None:
        self._topic, self._stored = survey.estimates_topic, StoredReader(survey, "kafka", _publication.decode)
        self._fingerprint, self._settings = survey.fingerprint.hex(), settings
        self._transactional_id = f"ldpstream-{survey.name}-{survey.fingerprint.hex()}"
        self._producer: Producer | None = None
        self._open: TopicReader | None = None  # not None while publications are read
        self._in_topic: dict[str, PublicationSummary] = {}
        self._connect(f"{self._transactional_id}-check").close(timeout=CLOSE_S)

    def _connect(self, transactional_id: str) -> Producer:
        producer = None
        with hearing(self._settings) as heard:
            try:
                producer = Producer(
                    self._settings, CONNECT_MS, REQUEST_MS, DELIVERY_MS, transaction_timeout_ms=DELIVERY_MS + REQUEST_MS,
                    retry_backoff_ms=RETRY_MS, transactional_id=transactional_id, max_request_size=MAX_PUBLICATION_BYTES,
                )  # fmt: skip
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
        """See `progress.EstimatesTopic`.

        Raises:
            LogUnavailable: if the broker does not answer or refuses, or if another estimator now leads.
            OtherFormat: if a publication of this survey has another format.
        """
        self._drop()
        self._in_topic = {}
        self._check(still)
        self._producer = self._connect(self._transactional_id)
        with self._unavailable_on_error():
            topic = self._open_topic()
            end = topic.end()
            for record in topic.records(min(max(since, topic.begin()), end), end, lambda: self._check(still)):
                self._note(record.value, record.offset)
        return dict(self._in_topic)

    def end(self) -> int:
        """See `progress.EstimatesTopic`."""
        with self._unavailable_on_error():
            return self._open_topic().end()

    def _check(self, still: Callable[[], bool]) -> None:
        if not still():
            raise self._unavailable("another estimator leads")

    def _note(self, value: bytes | None, offset: int) -> None:
        try:
            summary = msgspec.json.decode(value or b"", type=PublicationSummary)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if summary.fingerprint == self._fingerprint:
            check_format(f"{self._topic}: a publication", summary.format, FORMAT, "run the version that wrote it")
            self._in_topic[summary.key] = msgspec.structs.replace(summary, offset=offset)

    def read(self, keys: Sequence[str]) -> list[Publication]:
        """See `progress.EstimatesTopic`."""
        wanted = {self._in_topic[key].offset: key for key in keys if key in self._in_topic}
        if not wanted:
            return []
        found: dict[str, Publication] = {}
        with self._unavailable_on_error():
            for record in self._open_topic().records(min(wanted), max(wanted) + 1):
                if (key := wanted.get(record.offset)) is not None:
                    publication = self._stored.read(key, record.value)
                    if publication is not None:
                        found[key] = publication
        for key in set(keys) - found.keys():
            self._in_topic.pop(key, None)
        return list(found.values())

    @contextmanager
    def _unavailable_on_error(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            self._stop_reading()
            raise self._unavailable(error) from None

    def publish(self, publications: list[Publication]) -> int:
        """See `progress.EstimatesTopic`. Publishes in one transaction, and returns when the broker has stored the publications.

        Raises:
            LogUnavailable: if the broker rejects the publications, for example because another estimator has taken over.
        """
        self._stop_reading()
        if self._producer is None:
            raise self._unavailable("this estimator has not taken the topic over")
        try:
            self._producer.begin_transaction()
            sent = [self._producer.send(self._topic, msgspec.json.encode(p), record_key(p)) for p in publications]
            self._producer.commit_within((DELIVERY_MS + REQUEST_MS) / 1000)
            return max((future.get(timeout=0).offset + 1 for future in sent), default=0)
        except KafkaError as error:
            self._drop()
            raise self._unavailable(error) from error

    def _unavailable(self, why: object) -> TopicUnavailable:
        return TopicUnavailable(f"Kafka at {self._settings.kafka} does not accept estimates for {self._topic}: {why}")

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0)
        self._producer = None
        self._stop_reading()

    def _open_topic(self) -> TopicReader:
        self._open = self._open or TopicReader(self._settings, self._topic, REQUEST_MS)
        return self._open

    def _stop_reading(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def close(self) -> None:
        """Closes the connections."""
        self._drop()


def record_key(p: Publication) -> bytes:
    """The key begins with the survey's fingerprint, so surveys of one name do not erase each other's history."""
    return f"{p.fingerprint}|{p.key}".encode()
