"""Runs the programs of docs/device.md against a real gateway.

When answers are lost, the programs neither lose nor duplicate a report.
"""

import random
import re
import secrets
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ldpstream.producers.device import Device, Waiting
from ldpstream.producers.gateway.problems import FINAL, STATUS
from ldpstream.rehearse import rehearse
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey, load_survey, open_envelope

from .gateway_rig import Served

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "device.md").read_text()
(FIRST,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
LINES = TEXT.split("## In an application")[1].split("## Guarantees")[0].split('    {"type"')[0].splitlines()
PROGRAM = "\n".join(line[4:] for line in LINES if line.startswith("    ") or not line)
FUNCTIONS = PROGRAM[PROGRAM.index("import http.client") : PROGRAM.index("\nwhile ")]
URL, TOKEN = "https://gateway.example", "token-of-the-gateway"
COMMUTE = """
name = "commute"
start = START
step_seconds = 86400
window_steps = 1
lateness_steps = 2
collection = "smp"

[[attribute]]
name = "mode"
values = ["car", "bus", "bicycle"]
[[attribute.level]]
name = "standard"
mechanism = "L-GRR"
eps_inf = 2.0
eps_1 = 1.0
[[attribute.level]]
name = "cautious"
mechanism = "L-OSUE"
eps_inf = 1.0
eps_1 = 0.5
"""


class Killed(BaseException):
    """Simulates a kill of the device's process."""


class Network:
    """Routes `urllib.request.urlopen` to a gateway, loses some requests and answers, and sometimes kills the device.

    Args:
        url: the gateway's URL.
        seed: seed of the faults.
    """

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._rng, self._urlopen = url, random.Random(seed), urllib.request.urlopen
        self.lost = 0

    def urlopen(self, request: urllib.request.Request, timeout: float) -> Any:
        assert request.full_url.startswith(URL)
        luck = self._rng.random()
        if luck < 0.1:
            raise urllib.error.URLError("no connection")
        request.full_url = request.full_url.replace(URL, self._url)
        answer = self._urlopen(request, timeout=timeout)
        if luck < 0.4:
            answer.close()
            self.lost += 1
            raise ConnectionResetError if luck < 0.3 else Killed
        return answer


@pytest.fixture
def commute(tmp_path: Path) -> Survey:
    """Returns a survey that began yesterday and whose reports are not late even if a test runs over midnight."""
    yesterday = datetime.fromtimestamp(time.time() - 86_400, UTC).replace(microsecond=0)
    (tmp_path / "trips.toml").write_text(COMMUTE.replace("START", yesterday.isoformat()))
    return load_survey(tmp_path / "trips.toml")


@pytest.fixture
def gateway(commute: Survey) -> Iterator[Served]:
    with closing(Served(survey=commute, tokens=[TOKEN], now_ms=now_ms)) as served:
        yield served


class Patience:
    """A sleep that takes no time and stops a program that would wait without limit."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, seconds: float) -> None:
        self.calls += 1
        assert self.calls < 10_000, "the program does not end"


def appended_by_devices(
    commute: Survey, gateway: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[list[bytes]], int]:
    """Runs the program for 60 devices. Returns the counted envelopes of each device, and the number of lost answers.

    A killed program is restarted. A program that has finished is started once more.
    """
    network = Network(gateway.url, seed=1)
    monkeypatch.setattr(urllib.request, "urlopen", network.urlopen)
    monkeypatch.setattr(time, "sleep", Patience())
    brought = []
    for device in range(60):
        home = folder / str(device)
        home.mkdir()
        shutil.copy(folder / "trips.toml", home)
        monkeypatch.chdir(home)
        before, ended = len(gateway.rig.log.counted()), 0
        while ended < 2:
            with suppress(Killed):
                exec(PROGRAM, {})  # our own documentation
                ended += 1
        brought.append([envelope for batch in gateway.rig.log.counted()[before:] for envelope in batch])
    return brought, network.lost


def test_the_program_counts_each_device_once(
    commute: Survey, gateway: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought, lost = appended_by_devices(commute, gateway, tmp_path, monkeypatch)
    assert lost >= 20
    assert [len(envelopes) for envelopes in brought] == [1] * 60
    assert {open_envelope(commute, raw, now_ms()).level for (raw,) in brought} == {1}


def test_a_key_drawn_for_each_attempt_counts_twice(
    commute: Survey, gateway: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the test above must detect a device that draws a new key for each attempt."""
    kept, settle, true = Device.waiting, Device.settle, dict[str, Waiting]()

    def waiting(device: Device) -> list[Waiting]:
        reports = [replace(report, key=secrets.token_urlsafe(16)) for report in kept(device)]
        true.update({fresh.key: report for fresh, report in zip(reports, kept(device), strict=True)})
        return reports

    monkeypatch.setattr(Device, "waiting", waiting)
    monkeypatch.setattr(Device, "settle", lambda device, report: settle(device, true[report.key]))
    brought, _ = appended_by_devices(commute, gateway, tmp_path, monkeypatch)
    assert sum(len(envelopes) > 1 for envelopes in brought) >= 5


# ---- a first report


def appended_by_two_runs(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the first program twice; the first run loses its answer. Returns the number of envelopes in the log."""
    monkeypatch.chdir(folder)
    survey = rehearse(ROOT / "surveys" / "samples" / "ms_fimu.toml", folder / "now.toml", 86_400, time.time())
    urlopen, lost = urllib.request.urlopen, iter([True, False])

    def losing(request: urllib.request.Request) -> Any:
        answer = urlopen(request, timeout=60)
        if next(lost):
            answer.close()
            raise ConnectionResetError
        return answer

    monkeypatch.setattr(urllib.request, "urlopen", losing)
    with closing(Served(survey=survey, now_ms=now_ms)) as served:
        program = program.replace("http://127.0.0.1:8081", served.url)
        with pytest.raises(ConnectionResetError):
            exec(program, {})  # our own documentation
        exec(program, {})
        assert not Device(survey, folder / "first.device").waiting()
        return len(served.rig.log.counted())


def test_the_first_program_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert appended_by_two_runs(FIRST, tmp_path, monkeypatch) == 1


def test_the_first_program_without_the_devices_key_counts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the test above must detect a program that draws a new key for each attempt."""
    program = FIRST.replace("report.key", "__import__('secrets').token_urlsafe(16)")
    assert appended_by_two_runs(program, tmp_path, monkeypatch) == 2


# ---- one call of deliver


class Memory:
    """A device with two waiting reports, which records the settled reports."""

    def __init__(self) -> None:
        self.settled: list[object] = []

    def waiting(self) -> list[str]:
        return ["one", "other"]

    def settle(self, report: object) -> None:
        self.settled.append(report)


@pytest.mark.parametrize(
    ("answer", "settled"),
    [
        (202, True),
        *[(status, status == FINAL) for status in {*STATUS.values()}],
        *[(status, False) for status in (0, 200, 301, 403, 411, 413, 417, 421, 426, 431, 502)],
    ],
)
def test_a_report_waits_until_its_outcome_is_known(answer: int, settled: bool) -> None:
    memory, names = Memory(), dict[str, Any]()
    exec(FUNCTIONS, names)  # our own documentation
    names["post"] = lambda report, url, token: (answer, 7) if report == "one" else (503, 5)
    assert names["deliver"](memory, URL, TOKEN) == 5
    assert memory.settled == ["one"] * settled
    names["post"] = lambda report, url, token: (202, 30)
    assert names["deliver"](memory, URL, TOKEN) is None


def test_post_returns_status_and_wait(commute: Survey, gateway: Served, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(FUNCTIONS, names)  # our own documentation
    device, step = Device(commute, tmp_path), commute.step_at(now_ms())
    for reported in (step, step + 9):
        device.report("mode", "bus", reported)
    good, early = device.waiting()
    assert names["post"](good, gateway.url, TOKEN) == (202, names["WAIT_S"])
    assert names["post"](good, gateway.url, "another-token") == (401, names["WAIT_S"])
    assert names["post"](early, gateway.url, TOKEN) == (409, 86_400)
    assert names["post"](replace(good, envelope=b"?"), gateway.url, TOKEN)[0] == 422
    assert names["post"](good, "http://127.0.0.1:9", TOKEN) == (0, names["WAIT_S"])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            with listening.accept()[0] as connection:
                connection.recv(65536)

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert names["post"](good, f"http://127.0.0.1:{listening.getsockname()[1]}", TOKEN)[0] == 0
        thread.join()
