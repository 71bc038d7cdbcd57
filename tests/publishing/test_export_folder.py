"""`export` from the data folder of `serve`, while a process uses the folder and afterwards."""

from contextlib import closing
from pathlib import Path

import msgspec
import polars as pl
import pytest

from ldpstream.commands.arguments import DEMO_SURVEY
from ldpstream.commands.cli import run
from ldpstream.engines.folder.data_folder import FILE, DataFolder, FolderError
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.formats import OtherFormat
from ldpstream.publishing.history.export import export
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.settings import Settings
from tests.services.test_export import SAMPLE, exported, publication

OTHER = msgspec.structs.replace(SAMPLE, name="other")


def test_the_estimates_of_a_data_folder(tmp_path: Path) -> None:
    data, files = tmp_path / "data", tmp_path / "files"
    with closing(DataFolder(data)) as folder:
        results, other = KeptResults(SAMPLE, FolderResults(folder, SAMPLE)), KeptResults(OTHER, FolderResults(folder, OTHER))
        before, after = Progress(first_step=0, next_step=0), Progress(first_step=0, next_step=2)
        for survey in (SAMPLE, OTHER):
            FolderLog(folder, survey, lambda: 0).log_id()
        assert results.save([publication(SAMPLE, 0, 10), publication(SAMPLE, 1, 5, complete=False)], None, after)
        assert other.save([publication(OTHER, 0, 7)], None, before)
        assert export(SAMPLE, Settings(), files, data=data).publications == 2
        assert exported(files) == [(0, 10, True), (1, 5, False)]
        assert results.save([publication(SAMPLE, 1, 8), publication(SAMPLE, 2, 9)], after, Progress(first_step=0, next_step=3))
        assert export(SAMPLE, Settings(), files, data=data).publications == 3
    assert exported(files) == [(0, 10, True), (1, 8, True), (2, 9, True)]
    rows = pl.read_parquet(files / "**/*.parquet").height
    assert export(SAMPLE, Settings(), files, data=data).publications == 3  # the service is stopped
    assert pl.read_parquet(files / "**/*.parquet").height == rows


def test_a_survey_that_the_folder_does_not_hold_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    DataFolder(tmp_path / "data").close()
    line = ["ldpstream", "export", str(DEMO_SURVEY), str(tmp_path / "files"), "--data", str(tmp_path / "data")]
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(SystemExit, match="2"):
        run()
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"data: does not hold survey demo with the fingerprint {SAMPLE.fingerprint.hex()}; " in said


def test_a_folder_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"nothing: holds no data of ldpstream$"):
        export(SAMPLE, Settings(), tmp_path / "files", data=tmp_path / "nothing")
    with closing(DataFolder(tmp_path / "data")) as folder:
        folder._writer.execute("PRAGMA user_version = 99")
        with pytest.raises(
            OtherFormat, match=r"has format 99, this version needs format \d+; a newer version wrote it; run that version$"
        ):
            export(SAMPLE, Settings(), tmp_path / "files", data=tmp_path / "data")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / FILE).write_text("no database at all, and longer than a header of SQLite" * 9)
    with pytest.raises(FolderError, match=r"cannot be read: is not a data file of ldpstream$"):
        export(SAMPLE, Settings(), tmp_path / "files", data=tmp_path / "text")
