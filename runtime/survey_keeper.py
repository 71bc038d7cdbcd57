"""Keeps the last accepted survey of each name, so that a restarted process knows an open survey whose file changed.

In Kafka, partition 0 of the topic `ldpstream.NAME.survey` holds one record after compaction, which agents write:

    key      survey
    value    JSON: {"format": 1, "fingerprint": "…", "toml": "the text of the file"}; empty if the survey's file was removed

A later version may add keys to the JSON. A process that finds another format refuses the survey in one line.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tomllib import TOMLDecodeError, loads
from typing import NamedTuple

import structlog
from kafka.errors import KafkaError

from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.kafka_errors import hearing
from ldpstream.runtime.kafka_producer import Producer
from ldpstream.runtime.settings import Settings
from ldpstream.runtime.survey_watch import SurveyWatch
from ldpstream.runtime.topic_reader import TopicReader
from ldpstream.runtime.topics import MAX_SURVEY_BYTES, BrokerUnreachable, Role, TopicError, ensure_topics
from ldpstream.surveys import Survey, SurveyError, parse_survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.folder import SurveyFolder, SurveyText, change_refused
from ldpstream.surveys.lineage import changes_open

log = structlog.get_logger("ldpstream.surveys")

FORMAT = 1
KEY = b"survey"
ANSWER_MS = 10_000


class OpenSurveyChanged(UserError):
    """A survey file changed an open survey while no process looked. The message is one line."""


class KeptUnreadable(UserError):
    """This version reads a kept survey as another survey, or not at all. The message is one line."""


class Kept(NamedTuple):
    """A kept survey: its fingerprint in hexadecimal digits, and the text of its file."""

    fingerprint: str
    toml: str


class SurveyKeeper(ABC):
    """Compares surveys with the last accepted surveys of their names.

    Args:
        watch: the survey files.
    """

    def __init__(self, watch: SurveyFolder) -> None:
        self._watch = watch

    def check(self, survey: Survey, write: bool = False) -> None:
        """Checks that a survey does not change an open survey.

        Args:
            survey: a survey of the files, whose topics exist.
            write: True to keep the survey if it is accepted. We must then have the right to write.

        Raises:
            OpenSurveyChanged: if an open survey has this name and another fingerprint. From its next look on, the watch serves
                the open survey.
            UserError: if what is kept cannot be read.
        """
        text = self._watch.surveys.get(survey.fingerprint)
        kept = self._read(survey)
        if kept is not None and kept.fingerprint not in (survey.fingerprint.hex(), survey.replaces):
            earlier = kept_survey(self._place(survey), kept)
            if changes_open(earlier, survey, now_ms()):
                self._watch.keep(survey, SurveyText(earlier, Path(self._place(survey)), kept.toml))
                raise OpenSurveyChanged(f"survey {survey.name}: the file {change_refused(earlier)}")
        if write and text is not None and (new := Kept(survey.fingerprint.hex(), text.text)) != kept:
            self._write(survey, new)

    def forget(self, survey: Survey) -> None:
        """Ends the keeping of a survey whose file was removed, unless another survey of its name is kept."""
        kept = self._read(survey)
        if kept is not None and kept.fingerprint == survey.fingerprint.hex():
            self._write(survey, None)

    @abstractmethod
    def _place(self, survey: Survey) -> str:
        """Returns where the survey is kept, for messages."""

    @abstractmethod
    def _read(self, survey: Survey) -> Kept | None:
        """Returns the last kept survey of this survey's name."""

    @abstractmethod
    def _write(self, survey: Survey, kept: Kept | None) -> None:
        """Keeps this text under the survey's name; None ends the keeping."""


class TopicKeeper(SurveyKeeper):
    """Keeps surveys in Kafka.

    Args:
        settings: Kafka's address and our credentials.
        watch: the survey files.

    Raises (all methods):
        TopicError: if the broker is unreachable (the subclass BrokerUnreachable), refuses us, or has an unreadable record.
    """

    def __init__(self, settings: Settings, watch: SurveyWatch) -> None:
        super().__init__(watch)
        self._settings = settings

    def check_topics(self, survey: Survey, role: Role) -> None:
        """Checks a survey's topics for a role, then checks the survey itself."""
        ensure_topics(self._settings, survey, role)
        self.check(survey)

    def forget(self, survey: Survey) -> None:
        """See `SurveyKeeper.forget`. An error is logged: the agent goes on."""
        try:
            super().forget(survey)
        except TopicError as error:
            log.warning("the removal of the survey was not noted", survey=survey.name, error=str(error))

    def _place(self, survey: Survey) -> str:
        return survey.survey_topic

    def _read(self, survey: Survey) -> Kept | None:
        value: bytes | None = None
        with (
            _unreachable_on_error(self._settings, survey),
            closing(TopicReader(self._settings, survey.survey_topic, ANSWER_MS)) as reader,
        ):
            for record in reader.records(reader.begin(), reader.end()):
                value = record.value
        return _decode(survey.survey_topic, value) if value else None

    def _write(self, survey: Survey, kept: Kept | None) -> None:
        write_kept(self._settings, survey, kept)


def write_kept(settings: Settings, survey: Survey, kept: Kept | None) -> None:
    """Writes what is kept of a survey to its topic; None ends the keeping.

    Raises:
        TopicError: as the methods of `TopicKeeper`.
    """
    value = None if kept is None else json.dumps({"format": FORMAT, **kept._asdict()}).encode()
    with (
        _unreachable_on_error(settings, survey),
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
        producer.send(survey.survey_topic, value, KEY, partition=0).get(timeout=2 * ANSWER_MS / 1000)


@contextmanager
def _unreachable_on_error(settings: Settings, survey: Survey) -> Iterator[None]:
    with hearing(settings) as heard:
        try:
            yield
        except KafkaError as error:
            kind = BrokerUnreachable if error.retriable and not heard.turned_away else TopicError
            raise kind(f"Kafka at {settings.kafka}: topic {survey.survey_topic}: {heard.why(error)}") from None


def _decode(topic: str, value: bytes) -> Kept:
    try:
        found = json.loads(value)
        stated, kept = found["format"], Kept(found["fingerprint"], found["toml"])
    except (ValueError, KeyError, TypeError):
        raise TopicError(f"topic {topic} must hold a survey in format {FORMAT}, got another record") from None
    if stated != FORMAT:
        raise TopicError(f"topic {topic} must hold a survey in format {FORMAT}, got format {stated!r}")
    return kept


def kept_survey(place: str, kept: Kept) -> Survey:
    """Returns the kept survey.

    Raises:
        KeptUnreadable: if this version reads the text as another survey than the version that wrote it.
    """
    try:
        survey = parse_survey(loads(kept.toml), place)
    except (TOMLDecodeError, SurveyError) as error:
        raise KeptUnreadable(f"{place} holds survey {kept.fingerprint}, which this version cannot read: {error}") from None
    if survey.fingerprint.hex() != kept.fingerprint:
        raise KeptUnreadable(
            f"{place} holds survey {kept.fingerprint}, which this version reads as {survey.fingerprint.hex()}: "
            f'write replaces = "{kept.fingerprint}" into the survey\'s file to end it'
        )
    return survey
