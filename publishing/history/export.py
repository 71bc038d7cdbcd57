"""Copies estimates into files: all publications of the topic of estimates, or of a data folder.

The topic keeps the last publication of every attribute, span, step and cohort for ever. A data folder of `serve` keeps the
estimates of `retention_steps` steps. A run adds the rows that the files do not have, so a run after a crash, or a repeated run,
changes nothing else.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
from kafka.errors import KafkaError

from ldpstream.engines.folder.data_folder import FILE, looking
from ldpstream.engines.kafka.clients import TopicReader
from ldpstream.engines.kafka.log_position import LogClient
from ldpstream.publishing.estimates.publication import Publication, decode_publication
from ldpstream.publishing.history.month_files import MonthFiles, MonthOf, month_of, rows_of
from ldpstream.publishing.progress import PublicationSummary
from ldpstream.publishing.schedule import quality
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError

CHUNK_NUMBERS = 2_000_000  # frequencies in memory before their rows are written
REQUEST_MS = 10_000


class ExportError(UserError):
    """The topic cannot be read, or the data folder does not hold the survey."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run.

    Attributes:
        publications: number of publications read.
        skipped: number of records that are not publications, or that belong to another survey of the same name.
    """

    publications: int
    skipped: int
    files: list[str]


def export(survey: Survey, settings: Settings, folder: Path, data: Path | None = None) -> Exported:
    """Adds the publications of the topic, or of the data folder `data`, to the files of a folder.

    Args:
        folder: created if missing; it may have the files of other surveys, too.

    Raises:
        ExportError: if the topic cannot be read, or the data folder does not hold the survey.
        LogUnavailable: if the broker is unreachable or has no such topic.
        MonthFileError: if a file of an earlier run cannot be read.
        OtherFormat: if another version wrote the data or a publication in another format.
        FolderError: if the data folder cannot be read.
        OSError: if the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files, written = MonthFiles(folder), set[str]()
    waiting: dict[MonthOf, dict[str, Publication]] = defaultdict(dict)
    read = skipped = numbers = 0

    def write() -> None:
        for month, publications in sorted(waiting.items()):
            files.add(month, rows_of(survey, publications.values()))
            written.add(str(files.path(month).relative_to(folder)))
        waiting.clear()

    for value in _records(survey, settings) if data is None else _stored(survey, data):
        publication = _publication(survey, value)
        if publication is None:
            skipped += value is not None
        else:
            read += 1
            month = waiting[month_of(survey, publication)]
            if quality(publication) >= quality(month.get(publication.key)):
                month[publication.key] = publication
            numbers += sum(len(estimate.frequencies) for estimate in publication.estimators.values())
        if numbers > CHUNK_NUMBERS:
            write()
            numbers = 0
    write()
    return Exported(publications=read, skipped=skipped, files=sorted(written))


def _publication(survey: Survey, value: bytes | None) -> Publication | None:
    try:
        if msgspec.json.decode(value or b"", type=PublicationSummary).fingerprint != survey.fingerprint.hex():
            return None
        return decode_publication(value or b"", survey.estimates_topic)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _records(survey: Survey, settings: Settings) -> Iterator[bytes | None]:
    with closing(LogClient(settings)) as client:
        client.described(survey.estimates_topic)  # the consumer would wait for a topic that does not exist
    try:
        with closing(TopicReader(settings, survey.estimates_topic, REQUEST_MS)) as reader:
            for record in reader.records(reader.begin(), reader.end()):
                yield record.value
    except KafkaError as error:
        raise ExportError(f"Kafka at {settings.kafka}: {survey.estimates_topic} cannot be read: {error}") from None


def _stored(survey: Survey, data: Path) -> Iterator[bytes]:
    with looking(data / FILE) as db:
        row = db.execute("SELECT id FROM survey WHERE fingerprint = ?", (survey.fingerprint,)).fetchone()
        if row is None:
            which = f"survey {survey.name} with the fingerprint {survey.fingerprint.hex()}"
            raise ExportError(f"{data}: does not hold {which}; give the survey file that `serve` serves")
        for (publication,) in db.execute("SELECT publication FROM estimate WHERE survey = ? ORDER BY step", row):
            yield publication
