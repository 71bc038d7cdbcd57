"""The data folder of one machine: bad input, a torn log, a full disk, a copy while it runs."""

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ldpstream.engines.folder.backup import backup
from ldpstream.engines.folder.data_folder import FILE, FORMAT, LOCK, PART, DataFolder, FolderError, looking
from ldpstream.engines.folder.folder_log import FolderLog, expire
from ldpstream.engines.formats import OtherFormat
from tests.agents.samples import make_survey

SURVEY = make_survey("folder")
NOW_MS = SURVEY.opens_ms(3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def folder(path: Path) -> Iterator[DataFolder]:
    with closing(DataFolder(path)) as opened:
        yield opened


def append(folder: DataFolder, *values: bytes, now_ms: int = NOW_MS) -> int:
    log = FolderLog(folder, SURVEY, lambda: now_ms)
    log.log_id()
    with folder.write() as db:
        return [log.append(db, [value], b"") for value in values][-1]


def values(folder: DataFolder) -> list[bytes]:
    return list(FolderLog(folder, SURVEY, lambda: NOW_MS).read(0, 1000).values)


def test_only_the_owner_may_read_the_folder(folder: DataFolder) -> None:
    append(folder, b"a")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.path.iterdir()} == {0o600}


def test_a_transaction_is_on_the_disk_when_it_ends(folder: DataFolder) -> None:
    """SQLite syncs the write-ahead log at each commit only with synchronous=FULL (https://sqlite.org/pragma.html)."""
    with folder.write() as db:
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA secure_delete").fetchone()[0] == 1  # expired reports leave no bytes behind


# ---- refusals, one line each


def test_a_second_process_is_refused(folder: DataFolder) -> None:
    with pytest.raises(FolderError, match=f"{folder.path}: another ldpstream process uses this data folder"):
        DataFolder(folder.path)
    append(folder, b"a")  # the first goes on


def test_a_folder_of_other_files_is_refused(path: Path) -> None:
    path.mkdir()
    (path / "letter.txt").write_text("x")
    with pytest.raises(FolderError, match=r"holds letter.txt and no data of ldpstream"):
        DataFolder(path)
    assert [file.name for file in path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("found", [FORMAT - 1, FORMAT + 1])
def test_another_format_is_refused_and_left_alone(path: Path, found: int) -> None:
    DataFolder(path).close()
    with closing(sqlite3.connect(path / FILE)) as db:
        db.execute(f"PRAGMA user_version={found}")
    before = (path / FILE).read_bytes()
    who = "a newer version wrote it; run that version" if found > FORMAT else "run the version that wrote it"
    with pytest.raises(OtherFormat, match=f"has format {found}, this version needs format {FORMAT}; {who}"):
        DataFolder(path)
    with pytest.raises(OtherFormat), looking(path / FILE):
        pass
    assert (path / FILE).read_bytes() == before


def test_another_program_s_database_is_refused(path: Path) -> None:
    path.mkdir()
    with closing(sqlite3.connect(path / FILE)) as db:
        db.execute("CREATE TABLE x (y)")
    with pytest.raises(FolderError, match="is not a data file of ldpstream"):
        DataFolder(path)
    (path / FILE).write_bytes(b"text" * 1000)
    with pytest.raises(FolderError, match="is not a data file of ldpstream"):
        DataFolder(path)


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(FolderError, match="cannot be used as data folder"):
            DataFolder(path)


# ---- crashes and the disk


def test_expired_records_leave_the_file(folder: DataFolder) -> None:
    for i in range(50):
        append(folder, b"secret" + bytes([i]) * 4000)
    assert expire(folder, NOW_MS + 1, 1000) == 0  # none is counted
    with folder.write() as db:
        db.execute("INSERT INTO checkpoint VALUES (1, 0, 45, 0, '{}', '', '', '', '{}', 0)")
    assert expire(folder, NOW_MS + 1, 1000) == 0  # nothing is published
    with folder.write() as db:
        db.execute("INSERT INTO progress VALUES (1, x'00')")
    before = folder._writer.execute("PRAGMA page_count").fetchone()[0]
    assert (expire(folder, NOW_MS, 1000), expire(folder, NOW_MS + 1, 20), expire(folder, NOW_MS + 1, 1000)) == (0, 20, 25)
    assert folder._writer.execute("PRAGMA page_count").fetchone()[0] < before / 2
    folder._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw = folder.file.read_bytes()
    assert raw.count(b"secret") == 5


def test_a_copy_beside_another_write_ahead_log_is_refused(folder: DataFolder, tmp_path: Path) -> None:
    """A killed process leaves its write-ahead log. SQLite would write it into the copy, and undo or damage the restore."""
    append(folder, b"a")
    backup(folder.file, tmp_path / "copy")
    append(folder, b"b")
    killed = tmp_path / "killed"
    killed.mkdir()
    shutil.copy(tmp_path / "copy", killed / FILE)
    shutil.copy(f"{folder.file}-wal", killed / f"{FILE}-wal")
    with pytest.raises(FolderError, match=f"{FILE}-wal: belongs to other data than {FILE}; put the copy into an empty folder"):
        DataFolder(killed)
    assert (killed / FILE).read_bytes() == (tmp_path / "copy").read_bytes()
    shutil.copy(folder.file, killed / FILE)  # with its own log: the killed process starts again
    with closing(DataFolder(killed)) as again:
        assert values(again) == [b"a", b"b"]


def test_an_empty_file_is_refused_and_an_unfinished_file_is_ignored(path: Path) -> None:
    """A copy that failed may leave an empty file. A process that was killed at its first start may leave an unfinished file."""
    path.mkdir()
    for name in (PART, f"{PART}-journal"):
        (path / name).write_bytes(b"x")
    DataFolder(path).close()
    assert {file.name for file in path.iterdir()} <= {FILE, LOCK, f"{PART}-journal"}
    (path / FILE).write_bytes(b"")
    with pytest.raises(FolderError, match="is not a data file of ldpstream"):
        DataFolder(path)


def test_a_copy_that_fails_leaves_no_file(folder: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(folder, b"a")
    copies = tmp_path / "copies"
    copies.mkdir()

    def fails(_: int) -> None:
        (part,) = copies.iterdir()
        assert part.suffix == ".part"
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(FolderError, match=r"copy: cannot be written: Input/output error"):
        patch.setattr(os, "fsync", fails)
        backup(folder.file, copies / "copy")
    assert not list(copies.iterdir())
    backup(folder.file, copies / "copy")
    (copy,) = copies.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
