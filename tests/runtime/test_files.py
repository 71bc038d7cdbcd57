"""Tests of the files that a user names: regular files are replaced whole, anything else is written to as it is."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.panels import Curve, Panel, draw_panels
from ldpstream.runtime.files import write_file
from ldpstream.services.rehearse import rehearse

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "surveys" / "samples" / "demo.toml"


def ledger(path: Path) -> None:
    subprocess.run([sys.executable, "-m", "ldpstream", "ledger", DEMO, "--json", path], check=True, stdout=subprocess.DEVNULL)


def picture(path: Path) -> None:
    draw_panels([Panel("a", "x", "y", [Curve("c", [0.0, 1.0], [0.0, 1.0])])], "title", path)


def rehearsal(path: Path) -> None:
    rehearse(DEMO, path, 60, 1.8e9)


WRITERS = pytest.mark.parametrize("write", [ledger, picture, rehearsal])
Write = Callable[[Path], None]


@WRITERS
def test_a_pipe_stays_and_its_reader_gets_the_file(write: Write, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.svg")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert len(got[0]) > 100


@WRITERS
def test_a_link_and_the_mode_of_its_file_stay(write: Write, tmp_path: Path) -> None:
    (folder := tmp_path / "elsewhere").mkdir()
    (file := folder / "file.svg").write_text("before")
    file.chmod(0o640)
    (link := tmp_path / "link.svg").symlink_to(file)
    write(link)
    assert link.is_symlink()
    assert file.read_text() != "before"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [*tmp_path.iterdir(), *folder.iterdir()] == [*tmp_path.iterdir(), file]


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_output_gets_the_json_after_the_table(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ldpstream", "ledger", str(DEMO), "--json", "/dev/stdout"]
    if kind == "pipe":
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        with (file := tmp_path / "out").open("w") as out:
            subprocess.run(command, stdout=out, check=True)
        said = file.read_text()
    assert said.index("screen") < said.index('\n{"survey"')
    assert said.endswith("}\n")


def test_a_file_that_we_may_not_write_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where we may replace it. Our own standard output, which root may have opened for us, is written all the same."""
    (file := tmp_path / "file").write_text("before")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write any file
    with pytest.raises(PermissionError, match="Permission denied"):
        write_file(file, b"after")
    assert file.read_text() == "before"
    write_file(Path("/dev/stdout"), b"after\n")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (file := tmp_path / "file").write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(file, b"after")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_without_space_is_named_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ldpstream", "ledger", DEMO, "--json", "/dev/full"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "ldpstream: /dev/full: cannot be written: No space left on device\n")
