"""Runs the programs of docs/start/first_device.md and docs/howto/device.md against a real gateway.

When answers are lost, the programs neither lose nor duplicate a report.
"""

import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.local.children import start_child
from ldpstream.device import Device, routes
from ldpstream.device.consent.consent import SWITCHES
from ldpstream.runtime.clock import now_ms
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import Survey, load_survey, open_envelope
from tests.gateway.gateway_rig import Served
from tests.services.rig import free_ports, wait_until
from tests.small_survey import small_text

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "howto" / "device.md").read_text()
START = (ROOT / "docs" / "start" / "first_device.md").read_text()
(LESSON,) = re.findall(r"```python\n(.*?)```", START, re.DOTALL)
FIRST = re.sub(r"(?m)^while .*:$", 'for silence in [device.silence("mode")]:', LESSON)  # once
COMMANDS = re.findall(r"(?m)^    ldpstream (.*)$", START)
LINES = TEXT.split("## In an application")[1].split("## Guarantees")[0].split('    {"type"')[0].splitlines()
PROGRAM = "\n".join(line[4:] for line in LINES if line.startswith("    ") or not line)
URL, TOKEN = "https://gateway.example", "token-of-the-gateway"
LEVELS = [
    {"name": "standard", "mechanism": "L-GRR", "eps_inf": 2.0, "eps_1": 1.0},
    {"name": "cautious", "mechanism": "L-OSUE", "eps_inf": 1.0, "eps_1": 0.5},
]
MODE = {"name": "mode", "values": ["car", "bus", "bicycle"], "level": LEVELS}


@pytest.fixture(autouse=True)
def no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def commute(tmp_path: Path) -> Survey:
    """Returns a survey that began yesterday and whose reports are not late even if a test runs over midnight."""
    yesterday = datetime.fromtimestamp(time.time() - 86_400, UTC).replace(microsecond=0)
    text = small_text(MODE, name="commute", start=yesterday, step_seconds=86400, window_steps=1, lateness_steps=2)
    (tmp_path / "trips.toml").write_text(text)
    return load_survey(tmp_path / "trips.toml")


@pytest.fixture
def gateway(commute: Survey) -> Iterator[Served]:
    with closing(Served(survey=commute, tokens=[TOKEN], now_ms=now_ms)) as served:
        yield served


def test_the_program_counts_its_report_once(
    commute: Survey, gateway: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is lost. A program that has finished is started once more."""
    loses = LosesTheFirst(gateway.url)
    monkeypatch.setattr(routes, "_opener", lambda: loses)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(PROGRAM.replace("0f5c…", commute.pin), {})  # our own documentation
    assert len(gateway.rig.log.appended) == 2
    [(envelope,)] = gateway.rig.log.counted()
    assert open_envelope(commute, envelope, now_ms()).level == 1


# ---- a first report


class LosesTheFirst:
    """An opener of a `Sender` that leads to a gateway and loses the first answer."""

    def __init__(self, url: str) -> None:
        self._url, self._lost = url, False

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        request.full_url = request.full_url.replace(URL, self._url)
        answer = urllib.request.urlopen(request, timeout=timeout)
        if not self._lost:
            self._lost = True
            answer.close()
            raise ConnectionResetError
        return answer


def reporting_at_each_step(survey: Path) -> Survey:
    """Makes the survey's device report at once: the lesson would wait for the device's step."""
    survey.write_text(re.sub(r"(?m)^(every_steps|lifetime_reports) = .*\n", "", survey.read_text()))
    return load_survey(survey)


def appended_by_two_runs(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the first program twice; the first run loses its answer. Returns the number of envelopes in the log."""
    monkeypatch.chdir(folder)
    rehearse(ROOT / "surveys" / "samples" / "travel.toml", folder / "now.toml", 86_400, time.time())
    survey = reporting_at_each_step(folder / "now.toml")
    with closing(Served(survey=survey, now_ms=now_ms)) as served:
        loses = LosesTheFirst(served.url)
        monkeypatch.setattr(routes, "_opener", lambda: loses)
        program = program.replace("http://127.0.0.1:8081", served.url)
        exec(program, {})  # our own documentation
        assert Device(survey, folder / "me.device", consent="simulated").waiting()
        exec(program, {})
        assert not Device(survey, folder / "me.device", consent="simulated").waiting()
        return len(served.rig.log.counted())


def test_the_first_program_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert appended_by_two_runs(FIRST, tmp_path, monkeypatch) == 1


def test_the_first_program_reports_to_the_service_of_its_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make, serve, _ = ([sys.executable, "-m", "ldpstream", *command.split()] for command in COMMANDS)
    gateway, page = (str(port) for port in free_ports(2))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "surveys" / "samples", "surveys/samples")
    assert start_child([*make, "--step-seconds", "86400"]).wait() == 0  # with shorter steps a slow machine would be late
    reporting_at_each_step(Path("now.toml"))
    ports = {"LDPSTREAM_GATEWAY_PORT": gateway, "LDPSTREAM_PAGE_PORT": page}
    with Path("said").open("wb") as said:
        service = start_child(serve, env=ports, stdout=said, stderr=said)
    try:
        wait_until(lambda: b'"serving"' in Path("said").read_bytes(), lambda: Path("said").read_text())
        exec(FIRST.replace("8081", gateway), {})  # our own documentation
        assert capsys.readouterr().out.strip() in START
        assert f"Devices report to http://127.0.0.1:{gateway}, the page is http://127.0.0.1:{page}/" in Path("said").read_text()
    finally:
        service.kill()
        service.wait()
