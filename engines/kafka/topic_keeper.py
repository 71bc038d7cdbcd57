"""Stores the last accepted survey of each name in Kafka (`surveys.life.keeper`).

The survey is in partition 0 of the topic `ldpstream.NAME.survey`, as a record with one key:

    key      survey
    value    JSON: {"format": 1, "fingerprint": "…", "toml": "the text of the file"}; empty if the survey's file was removed
"""

import json
from contextlib import closing

import structlog

from ldpstream.engines.kafka.clients import Producer, TopicReader
from ldpstream.engines.kafka.topics import MAX_SURVEY_BYTES, Role, TopicError, broker_errors, ensure_topics
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.life.keeper import Kept, SurveyKeeper
from ldpstream.surveys.life.watch import SurveyWatch

log = structlog.get_logger("ldpstream.surveys")

FORMAT = 1
KEY = b"survey"
ANSWER_MS = 10_000


class TopicKeeper(SurveyKeeper):
    """Stores surveys in Kafka.

    Raises (all methods except `forget`):
        TopicError: if the broker is unreachable (the subclass BrokerUnreachable), refuses us, or has an unreadable record.
    """

    def __init__(self, settings: Settings, watch: SurveyWatch) -> None:
        super().__init__(watch)
        self._settings = settings

    def check_topics(self, survey: Survey, role: Role) -> None:
        """Checks a survey and its topics, for a gateway also `check_counted`. Creates missing topics."""
        ensure_topics(self._settings, survey, role)
        self.check(survey)
        if role == "gateway":
            self.check_counted(survey)

    def forget(self, survey: Survey) -> None:
        """Like `SurveyKeeper.forget`, but logs a TopicError and continues."""
        try:
            super().forget(survey)
        except TopicError as error:
            log.warning("the removal of the survey was not noted", survey=survey.name, error=str(error))

    def _place(self, survey: Survey) -> str:
        return survey.survey_topic

    def _read(self, survey: Survey) -> Kept | None:
        value: bytes | None = None
        with (
            broker_errors(self._settings, f"topic {survey.survey_topic}: "),
            closing(TopicReader(self._settings, survey.survey_topic, ANSWER_MS)) as reader,
        ):
            for record in reader.records(reader.begin(), reader.end()):
                value = record.value
        return _decode(survey.survey_topic, value) if value else None

    def _write(self, survey: Survey, kept: Kept | None) -> None:
        write_kept(self._settings, survey, kept)


def write_kept(settings: Settings, survey: Survey, kept: Kept | None) -> int:
    """Stores a survey in its topic; None deletes the stored survey.

    Returns:
        The time of the record, in Unix milliseconds: the append time, if the topic has this type of timestamps.

    Raises:
        TopicError: as the methods of `TopicKeeper`.
    """
    value = None if kept is None else json.dumps({"format": FORMAT, **kept._asdict()}).encode()
    with (
        broker_errors(settings, f"topic {survey.survey_topic}: "),
        closing(
            Producer(
                settings,
                ANSWER_MS,
                ANSWER_MS,
                2 * ANSWER_MS,
                compression_type="gzip",  # a survey that lists many values can have more bytes than a broker's own limit
                max_request_size=MAX_SURVEY_BYTES,
            )
        ) as producer,
    ):
        sent = producer.send(survey.survey_topic, value, KEY, partition=0)
        return int(sent.get(timeout=2 * ANSWER_MS / 1000).timestamp)


def _decode(topic: str, value: bytes) -> Kept:
    try:
        found = json.loads(value)
        stated, kept = found["format"], Kept(found["fingerprint"], found["toml"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TopicError(f"topic {topic} must hold a survey in format {FORMAT}, got another record") from None
    if stated != FORMAT:
        raise TopicError(f"topic {topic} must hold a survey in format {FORMAT}, got format {stated!r}")
    return kept
