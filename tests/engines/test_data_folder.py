"""The data folder of one machine: bad input, a torn log, a full disk, a copy while it runs."""

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ldpstream.engines.checkpoint import MAX_MS, Missing
from ldpstream.engines.count_store import StoreDamaged, StoreUnavailable
from ldpstream.engines.folder.backup import backup
from ldpstream.engines.folder.data_folder import FILE, FORMAT, LOCK, PART, DataFolder, FolderError, looking
from ldpstream.engines.folder.folder_log import CHUNK, FolderLog, expire
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.engines.formats import OtherFormat
from ldpstream.surveys.report_key import batch_keys
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


def test_one_read_takes_bounded_memory(folder: DataFolder) -> None:
    append(folder, *(bytes(1_000_000) for _ in range(40)), b"end")
    log = FolderLog(folder, SURVEY, lambda: NOW_MS)
    assert log.read(0, 1000).offsets == list(range(CHUNK))
    assert log.read(CHUNK, 1000).offsets == list(range(CHUNK, 2 * CHUNK))
    assert log.read(2 * CHUNK, 1000).offsets == list(range(2 * CHUNK, 41))


def test_append_times_never_go_back(folder: DataFolder) -> None:
    assert append(folder, b"a", b"b", now_ms=NOW_MS) == NOW_MS
    assert append(folder, b"c", now_ms=NOW_MS - 5000) == NOW_MS
    assert append(folder, b"d", now_ms=NOW_MS + 1) == NOW_MS + 1
    log = FolderLog(folder, SURVEY, lambda: NOW_MS - 1)
    assert log.mark([0]) == {0: NOW_MS + 1}
    assert log.ends() == {0: 5}
    assert log.earliest_ms() == NOW_MS
    assert log.read(2, 2) == ([2, 3, 4], [NOW_MS, NOW_MS + 1, NOW_MS + 1], [b"c", b"d", b""], [b"", b"", b""])


def test_the_envelopes_of_a_request_are_one_row(folder: DataFolder) -> None:
    """The records are as if each envelope was appended alone, with its report key."""
    log, hashed = FolderLog(folder, SURVEY, lambda: NOW_MS), b"h" * 16
    log.log_id()
    with folder.write() as db:
        for envelopes, key in (([b"a", b"b", b"c"], hashed), ([b"d"], b"k" * 16), ([b"e", b"f"], b"")):
            log.append(db, envelopes, key)
        assert db.execute("SELECT place, n FROM record").fetchall() == [(0, 3), (3, 1), (4, 2)]
    assert log.ends() == {0: 6}
    keys = [*batch_keys(hashed, 3), b"k" * 16, b"", b""]
    assert log.read(0, 6) == (list(range(6)), [NOW_MS] * 6, [b"a", b"b", b"c", b"d", b"e", b"f"], keys)
    assert log.read(3, 6).values == [b"d", b"e", b"f"]


def test_the_log_of_a_survey_keeps_its_id(path: Path) -> None:
    ids = set()
    for _ in range(2):
        with closing(DataFolder(path)) as folder:
            ids.add(FolderLog(folder, SURVEY, lambda: NOW_MS).log_id())
            assert FolderLog(folder, make_survey("other"), lambda: NOW_MS).log_id() not in ids
    assert len(ids) == 1


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


def test_a_folder_that_the_system_refuses_to_look_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="cannot be read: File name too long"), looking(tmp_path / ("x" * 300) / FILE):
        pass


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


def test_a_foreign_count_table_is_refused(folder: DataFolder) -> None:
    store = FolderCountStore(folder, SURVEY)
    assert store.snapshot() == {}
    with folder.write() as db:
        db.execute("INSERT INTO pane VALUES (1, 0, 0, 7, 0, 0, x'00')")
    with pytest.raises(StoreDamaged, match="is not a count table of survey folder"):
        store.snapshot()


# ---- crashes and the disk


def test_a_torn_write_ahead_log_has_every_commit_that_ended(path: Path, tmp_path: Path) -> None:
    """A crash may leave any part of the bytes that were written after the last sync. The earlier bytes are whole."""
    rng, ends = np.random.default_rng(5), [0]
    with closing(DataFolder(path)) as folder:
        wal = path / f"{FILE}-wal"
        for _ in range(12):
            append(folder, *[rng.bytes(int(rng.integers(1, 3000))) for _ in range(3)])
            ends.append(wal.stat().st_size)
        written, whole, file = values(folder), wal.read_bytes(), (path / FILE).read_bytes()
    for cut in map(int, rng.integers(ends[1], len(whole), 40)):
        crashed = tmp_path / f"crashed-{cut}"
        crashed.mkdir(mode=0o700)
        (crashed / FILE).write_bytes(file)
        torn = whole[:cut] + rng.bytes(int(rng.integers(0, 3000)))
        (crashed / f"{FILE}-wal").write_bytes(torn)
        with closing(DataFolder(crashed)) as folder:
            found = values(folder)
        ended = sum(end <= cut for end in ends[1:])
        assert len(found) % 3 == 0
        assert found == written[: len(found)]
        assert len(found) >= 3 * ended
        shutil.rmtree(crashed)


def test_a_full_disk_loses_nothing_and_recovers(folder: DataFolder) -> None:
    append(folder, b"before")
    pages = folder._writer.execute("PRAGMA page_count").fetchone()[0]
    folder._writer.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        append(folder, b"x" * 100_000)
    assert values(folder) == [b"before"]
    folder._writer.execute("PRAGMA max_page_count=100000")
    append(folder, b"x" * 100_000)
    assert len(values(folder)) == 2


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


def test_the_limit_of_expired_records_counts_the_envelopes_of_batches(folder: DataFolder) -> None:
    """A transaction that deleted thousands of large requests would keep the gateway waiting."""
    log = FolderLog(folder, SURVEY, lambda: NOW_MS)
    log.log_id()
    with folder.write() as db:
        for _ in range(10):
            log.append(db, [b"a"] * 7, b"")
        db.execute("INSERT INTO checkpoint VALUES (1, 0, 70, 0, '{}', '', '', '', '{}', 0)")
        db.execute("INSERT INTO progress VALUES (1, x'00')")
    deleted = [expire(folder, NOW_MS + 1, limit) for limit in (1, 7, 8, 20)]
    assert deleted == [7, 7, 14, 21]
    assert log.read(0, 1000).offsets == list(range(49, 70))


def test_a_copy_made_while_the_service_runs_is_whole(folder: DataFolder, tmp_path: Path) -> None:
    append(folder, b"a", b"b")
    copied = tmp_path / "restored"
    copied.mkdir()
    backup(folder.file, copied / FILE)
    append(folder, b"c")
    with closing(DataFolder(copied)) as restored:
        assert values(restored) == [b"a", b"b"]
        assert append(restored, b"d") == NOW_MS
        assert FolderLog(restored, SURVEY, lambda: NOW_MS).log_id() == FolderLog(folder, SURVEY, lambda: NOW_MS).log_id()
    with pytest.raises(FolderError, match="File exists"):
        backup(folder.file, copied / FILE)


def test_a_copy_notes_that_later_reports_are_missing(folder: DataFolder, tmp_path: Path) -> None:
    """The folder itself has no such note. A copy of a restored copy keeps the earlier start of the loss."""
    end = append(folder, b"a", b"b")
    backup(folder.file, tmp_path / "copy")
    assert FolderCountStore(folder, SURVEY).load(0) is None
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(tmp_path / "copy", again / FILE)
    with closing(DataFolder(again)) as restored:
        noted = FolderCountStore(restored, SURVEY).load(0)
        assert noted is not None
        assert (noted.next_offset, noted.missing) == (0, Missing(end, MAX_MS, 2))
        append(restored, b"c", now_ms=end + 5)
        backup(restored.file, tmp_path / "second")
    shutil.copy(tmp_path / "second", again / FILE)
    with closing(DataFolder(again)) as restored:
        noted = FolderCountStore(restored, SURVEY).load(0)
        assert noted is not None
        assert noted.missing == Missing(end, MAX_MS, 3)


@pytest.mark.parametrize(("restored_ms", "missing"), [(NOW_MS, Missing(0, NOW_MS, 0)), (SURVEY.opens_ms(-1), None)])
def test_a_survey_that_a_copy_lacks_may_lack_the_reports_before_the_restore(
    folder: DataFolder, tmp_path: Path, restored_ms: int, missing: Missing | None
) -> None:
    """A survey that starts after the restore lacks no report."""
    again = tmp_path / "again"
    again.mkdir()
    backup(folder.file, again / FILE)
    DataFolder(again, lambda: restored_ms).close()
    with closing(DataFolder(again, lambda: NOW_MS + 5)) as restored:  # a later start is not a restore
        noted = FolderCountStore(restored, SURVEY).load(0)
        assert missing == (None if noted is None else noted.missing)
    assert FolderCountStore(folder, SURVEY).load(0) is None


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


def test_a_file_that_another_process_made_meanwhile_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes start on a new folder. One waits before it takes the lock, until the other has written and ended."""
    take = DataFolder._take

    def late(self: DataFolder) -> None:
        monkeypatch.setattr(DataFolder, "_take", take)
        with closing(DataFolder(path)) as other:
            append(other, b"a")
        take(self)

    monkeypatch.setattr(DataFolder, "_take", late)
    with closing(DataFolder(path)) as folder:
        assert values(folder) == [b"a"]


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


def test_a_damaged_file_is_told_with_its_remedy(path: Path) -> None:
    with closing(DataFolder(path)) as folder:
        append(folder, b"a" * 5000)
    whole = (path / FILE).read_bytes()
    (path / FILE).write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    with (
        pytest.raises((FolderError, StoreDamaged), match=f"{FILE}: is damaged; restore a backup"),
        closing(DataFolder(path)) as folder,
    ):
        values(folder)


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
