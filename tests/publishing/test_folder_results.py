"""The results in a data folder."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from ldpstream.engines.count_store import StoreDamaged
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.formats import OtherFormat
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.progress import PROGRESS_FORMAT, Progress
from ldpstream.publishing.results import KeptResults

from .schedule_rig import SURVEY

STATE = b'{"format": 1}\nnumbers'


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with closing(DataFolder(tmp_path / "data")) as opened:
        yield opened


def published(step: int) -> list[Publication]:
    nothing = [m.empty_table() for m in SURVEY.mechanisms[0]]
    return [conclude(SURVEY, 0, step, "step", [nothing], True)]


def at(step: int) -> Progress:
    return Progress(first_step=0, next_step=step)


def test_publications_progress_and_filters_are_saved_together(folder: DataFolder) -> None:
    results = KeptResults(SURVEY, FolderResults(folder, SURVEY))
    assert (results.progress(), results.filters(), results.history()) == (None, {}, [])
    (one,), (two,) = published(0), published(1)
    assert results.save([one], None, at(1), {"a": STATE})
    assert results.save([two], at(1), at(2))
    again = KeptResults(SURVEY, FolderResults(folder, SURVEY))
    assert again.progress() == at(2)
    assert again.filters() == {"a": STATE}
    assert again.history() == [one, two]
    assert again.get([two.key, "nothing", one.key]) == [two, None, one]


def test_two_surveys_do_not_mix(folder: DataFolder) -> None:
    mine, other = (
        KeptResults(SURVEY, FolderResults(folder, SURVEY)),
        KeptResults(replace(SURVEY, name="other"), FolderResults(folder, replace(SURVEY, name="other"))),
    )
    mine.save(published(0), None, at(1))
    assert other.progress() is None
    assert other.save(published(3), None, at(4))
    assert [p.step for p in mine.history()] == [0]


def test_old_steps_go(folder: DataFolder) -> None:
    survey = replace(SURVEY, retention_steps=3)
    results = KeptResults(survey, FolderResults(folder, survey))
    for step in range(6):
        assert results.save(published(step), None if step == 0 else at(step), at(step + 1))
    assert [p.step for p in results.history()] == [3, 4, 5]


def test_another_format_is_refused(folder: DataFolder) -> None:
    results = KeptResults(SURVEY, FolderResults(folder, SURVEY))
    results.save(published(0), None, replace(at(1), format=PROGRESS_FORMAT + 1))
    with pytest.raises(OtherFormat, match=r"the progress of survey .* has format"):
        results.progress()
    with folder.write() as db:
        db.execute("INSERT INTO filter VALUES (1, 'a', x'00')")
    with pytest.raises(OtherFormat, match="a filter of survey"):
        results.filters()


@pytest.mark.parametrize("raw", [b"", b"{", b"7", b"\xff", b'{"format": 2}', b'{"format": 2, "owner": "\xff"}'])
def test_a_damaged_progress_is_refused(folder: DataFolder, raw: bytes) -> None:
    results = KeptResults(SURVEY, FolderResults(folder, SURVEY))
    results.save(published(0), None, at(1))
    store_progress(folder, raw)
    with pytest.raises(StoreDamaged, match=r"sqlite3: the progress of survey .* (cannot be decoded|has format)"):
        results.progress()
    assert not results.save(published(1), at(1), at(2))


def store_progress(folder: DataFolder, raw: bytes) -> None:
    with folder.write() as db:
        db.execute("UPDATE progress SET progress = ?", (raw,))


def test_a_publication_that_cannot_be_decoded_is_skipped(folder: DataFolder) -> None:
    results = KeptResults(SURVEY, FolderResults(folder, SURVEY))
    results.save([*published(0), *published(1)], None, at(2))
    with folder.write() as db:
        db.execute("UPDATE estimate SET publication = x'7b' WHERE step = 0")
    assert [p.step for p in results.history()] == [1]
    assert results.get([published(0)[0].key]) == [None]
