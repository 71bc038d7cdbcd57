"""A device in Go, written from the documents alone, passes the vectors and the check.

The documents are docs/reference/write_a_device.md and wire_format.md. The device's author had not seen our code, so they are
sufficient. The reports' seed is fixed. With another seed, the check of the correct device would fail with probability at most
0.001. Planted faults are the controls.
"""

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from devices.conformance import listener
from devices.conformance.calls import read_calls
from devices.conformance.conformance import check_device
from devices.conformance.listener import LEAST, listening
from ldpstream.surveys import Cohort, Survey
from tests.conftest import give_up
from tests.producers.samples import level, make_survey, one_question

DEVICE = Path(__file__).parent / "go"
VECTORS = Path(__file__).parents[2] / "devices" / "vectors"
ROUND = "if r >= v {"  # symbol: the other symbols from the value on move up by one
KNOWN = "if !known {"  # the memo of this value is not stored yet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the device."""
    if shutil.which("go") is None:
        give_up("no Go on this machine")
    return Path(shutil.copytree(DEVICE, tmp_path / "go"))


def go(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Go without network; the compiled packages stay in Go's own cache, outside of the tree."""
    local = {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0", "VECTORS": str(VECTORS)}
    command = ["go", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ | local, capture_output=True, text=True, timeout=600, check=False)


def plant(file: Path, text: str, fault: str) -> None:
    """Replaces the only occurrence of a text by a fault."""
    source = file.read_text()
    assert source.count(text) == 1
    file.write_text(source.replace(text, fault))


def built(folder: Path) -> Path:
    """The compiled program of `life/main.go`."""
    done = go(folder, "build", "-o", "program", "./life")
    assert done.returncode == 0, done.stderr
    return folder / "program"


def live(folder: Path, survey: Survey, *arguments: str) -> None:
    """Runs the program on a survey."""
    (folder / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
    command = [str(built(folder)), "-survey", str(folder / "survey.json"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_the_device_passes_all_vectors(folder: Path) -> None:
    done = go(folder, "test", "-count=1", "-vet=off", "-v", ".")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("surveys", "parameters", "forged", "hashes", "draws", "envelopes", "devices"):
        number = len(msgspec.json.decode((VECTORS / f"{name}.json").read_bytes()))
        assert f"{number} {name}" in done.stdout


@pytest.mark.parametrize("memos", [True, False], ids=["correct", "a fresh memo for each report"])
def test_the_check_passes_the_device_and_finds_a_fault(folder: Path, memos: bool) -> None:
    survey = make_survey({"a": (4, [level("L-GRR")])})
    survey = replace(survey, cohort=Cohort(name="version", values=("1.0", "1.1", "other"), least=10))
    if not memos:
        plant(folder / "device.go", KNOWN, "if !known || memo != nil {")
    live(folder, survey, "-seed", "7", "-calls", str(folder / "calls.jsonl"))
    found = check_device(survey, read_calls(survey, folder / "calls.jsonl"))
    assert bool(found.failures) is not memos, found.failures


def test_the_sending_passes_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "RETRY_S", 0)
    survey = one_question("L-OSUE", k=300)  # no two reports are equal
    with listening(survey, "# toml\n", 0) as (sending, url):
        live(folder, survey, "-gateway", url, "-devices", str(2 * LEAST))
        assert sending.verdict() == []
        assert sending.requests == 2 * LEAST
