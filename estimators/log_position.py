"""What the schedule asks the log, answered by Kafka."""

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, for_code

from surveys import Survey
from surveys.kafka_reason import hearing
from surveys.settings import Settings


class LogUnavailable(RuntimeError):
    """Kafka does not answer, or does not have the survey's topic."""


class KafkaLogPosition:
    """Offsets and append times of the survey's reports topic.

    The topic's timestamps are append times (LogAppendTime), so `offsets_at` speaks about when the log took a record.

    Raises (all methods):
        LogUnavailable: naming the brokers, if they do not answer in time.
    """

    def __init__(self, survey: Survey, settings: Settings, timeout_ms: int = 10_000) -> None:
        self._topic, self._bootstrap = survey.reports_topic, settings.kafka
        limits = {"bootstrap_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms}
        with hearing(settings) as heard:
            try:
                self._consumer = KafkaConsumer(
                    **settings.kafka_options(),
                    **limits,
                    group_id=None,
                    enable_auto_commit=False,
                    metadata_max_age_ms=10_000,  # so that partitions that were added are soon waited for
                )
                self._admin = KafkaAdminClient(**settings.kafka_options(), **limits)
            except KafkaError as error:
                raise LogUnavailable(f"no Kafka broker answers at {settings.kafka}: {heard.why(error)}") from None

    def _partitions(self) -> list[TopicPartition]:
        numbers = self._consumer.partitions_for_topic(self._topic)
        if not numbers:
            raise LogUnavailable(f"Kafka at {self._bootstrap} has no topic {self._topic}")
        return [TopicPartition(self._topic, number) for number in sorted(numbers)]

    def log_id(self) -> str:
        try:
            [about] = self._admin.describe_topics([self._topic])
            if about["error_code"]:
                raise for_code(about["error_code"])(self._topic)
        except KafkaError as error:
            raise self._unavailable(error) from error
        return str(about.get("topic_id") or "")

    def offsets_at(self, time_ms: int) -> dict[int, int]:
        try:
            partitions = self._partitions()
            # the ends are read first: a record that arrives in between is then asked for, never overlooked
            ends = self._consumer.end_offsets(partitions)
            found = self._consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
        except KafkaError as error:
            raise self._unavailable(error) from error
        return {tp.partition: found[tp].offset if found.get(tp) else ends[tp] for tp in partitions}

    def earliest_ms(self) -> int | None:
        try:
            found = self._consumer.offsets_for_times(dict.fromkeys(self._partitions(), 0))
        except KafkaError as error:
            raise self._unavailable(error) from error
        return min((entry.timestamp for entry in found.values() if entry), default=None)

    def close(self) -> None:
        """Let go of the connections."""
        self._admin.close()
        self._consumer.close()

    def _unavailable(self, error: KafkaError) -> LogUnavailable:
        return LogUnavailable(f"Kafka at {self._bootstrap} does not answer for {self._topic}: {error}")
