"""Copies estimates into files: from the topic of estimates, from where the previous run ended, or from a data folder.

The topic keeps the last publication of every attribute, span, step and cohort for ever. `export` adds the rows of new records,
then writes the topic's position to `export.json`. After a crash in between, the next run adds the same rows again, which
changes nothing. A data folder of `serve` keeps the estimates of `retention_steps` steps, and each run reads all of them.
"""

import fcntl
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from kafka.errors import KafkaError

from ldpstream.engines.folder.data_folder import FILE, looking
from ldpstream.engines.formats import check_format
from ldpstream.engines.kafka.clients import TopicReader
from ldpstream.engines.kafka.topics import topic_id
from ldpstream.publishing.estimates.publication import Publication, decode_publication
from ldpstream.publishing.history.month_files import Format, MonthFiles, MonthOf, month_of, rows_of, write_durably
from ldpstream.publishing.progress import PublicationSummary
from ldpstream.publishing.schedule import quality
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError

STATE = "export.json"
FORMAT = 2  # format of `export.json` and of the files; raise it if a field, a column or a path changes
LOCK = "export.lock"
CHUNK_NUMBERS = 2_000_000  # frequencies in memory before their rows are written
REQUEST_MS = 10_000


class ExportError(UserError):
    """The folder or the topic cannot be used."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The position of an export, in `export.json`.

    Attributes:
        topic_id: the topic's id; a recreated topic has another id.
        next_offset: offset of the topic's first record that is not in the files.
    """

    survey: str
    fingerprint: str
    format: Format
    state_format: int = 1
    topic_id: str = ""
    next_offset: int = 0


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run.

    Attributes:
        skipped: number of records that are not publications, or that belong to another survey of the same name.
    """

    publications: int
    skipped: int
    files: list[str]


def export(
    survey: Survey,
    settings: Settings,
    folder: Path,
    fmt: Format | None = None,
    seen: Callable[[int, int], None] | None = None,
    data: Path | None = None,
) -> Exported:
    """Adds the publications that are new since the previous run to the files of a folder.

    Args:
        folder: the folder of one survey; created if missing.
        fmt: ``"parquet"`` or ``"csv"``; None for the format of the previous run, or Parquet.

    Raises:
        ExportError: if the topic cannot be read, or the folder is in use or has an export of another survey or format.
        TopicError: if the broker is unreachable or has no such topic.
        MonthFileError: if a file of an earlier run cannot be read.
        OtherFormat: if another version wrote the folder, the data or a publication in another format.
        FolderError: if the data folder cannot be read.
        OSError: if the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        state = _state(survey, folder, fmt)
        this_topic = topic_id(settings, survey.estimates_topic) if data is None else ""
        if this_topic != state.topic_id:
            state = msgspec.structs.replace(state, topic_id=this_topic, next_offset=0)
        files, written = MonthFiles(folder, state.format), set[str]()
        waiting: dict[MonthOf, dict[str, Publication]] = defaultdict(dict)
        read = skipped = numbers = 0

        def write(next_offset: int) -> None:
            for month, publications in sorted(waiting.items()):
                files.add(month, rows_of(survey, publications.values()))
                written.add(str(files.path(month).relative_to(folder)))
            waiting.clear()
            _write_state(folder, msgspec.structs.replace(state, next_offset=next_offset))

        end = state.next_offset
        records = _records(survey, settings, state.next_offset) if data is None else _stored(survey, data)
        for offset, value, last in records:
            publication = _publication(survey, value)
            if publication is None:
                skipped += value is not None
            else:
                read += 1
                month = waiting[month_of(survey, publication)]
                if quality(publication) >= quality(month.get(publication.key)):
                    month[publication.key] = publication
                numbers += sum(len(estimate.frequencies) for estimate in publication.estimators.values())
            end = offset + 1
            if numbers > CHUNK_NUMBERS:
                write(end if data is None else 0)
                numbers = 0
            if seen is not None:
                seen(end - state.next_offset, last - state.next_offset)
        write(end if data is None else 0)
    return Exported(publications=read, skipped=skipped, files=sorted(written))


def _publication(survey: Survey, value: bytes | None) -> Publication | None:
    try:
        if msgspec.json.decode(value or b"", type=PublicationSummary).fingerprint != survey.fingerprint.hex():
            return None
        return decode_publication(value or b"", survey.estimates_topic)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _records(survey: Survey, settings: Settings, start: int) -> Iterator[tuple[int, bytes | None, int]]:
    try:
        with closing(TopicReader(settings, survey.estimates_topic, REQUEST_MS)) as reader:
            end = reader.end()
            for record in reader.records(max(start, reader.begin()), end):
                yield record.offset, record.value, end
    except KafkaError as error:
        raise ExportError(f"Kafka at {settings.kafka}: {survey.estimates_topic} cannot be read: {error}") from None


def _stored(survey: Survey, data: Path) -> Iterator[tuple[int, bytes | None, int]]:
    of_survey = "FROM estimate JOIN survey ON survey.id = estimate.survey WHERE survey.fingerprint = ?"
    with looking(data / FILE) as db:
        (number,) = db.execute(f"SELECT count(*) {of_survey}", (survey.fingerprint,)).fetchone()
        rows = db.execute(f"SELECT publication {of_survey} ORDER BY estimate.step", (survey.fingerprint,))
        for i, (publication,) in enumerate(rows):
            yield i, publication, number


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ExportError(f"{folder}: another export is writing to this folder") from None
    finally:
        os.close(descriptor)


def _state(survey: Survey, folder: Path, fmt: Format | None) -> State:
    path = folder / STATE
    if not path.exists():
        return State(survey=survey.name, fingerprint=survey.fingerprint.hex(), format=fmt or "parquet", state_format=FORMAT)
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ExportError(f"{path}: not written by an export: {error}") from None
    check_format(f"{path}", state.state_format, FORMAT, "export into a new folder")
    if state.fingerprint != survey.fingerprint.hex():
        raise ExportError(
            f"{folder}: belongs to survey {state.survey} with fingerprint {state.fingerprint}, not to {survey.name} with "
            f"{survey.fingerprint.hex()}; give each survey its own folder"
        )
    if fmt not in (None, state.format):
        raise ExportError(f"{folder}: has files in format {state.format}, got --format {fmt}; use another folder")
    return state


def _write_state(folder: Path, state: State) -> None:
    write_durably(folder / STATE, msgspec.json.encode(state) + b"\n")
