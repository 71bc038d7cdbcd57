"""The whole service on one machine, as a real process that is killed: `ldpstream serve`."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import REGISTRY

from ldpstream.agents import Record, metrics, tally
from ldpstream.engines.count_store import StoreUnavailable
from ldpstream.engines.folder.data_folder import FILE, PARTITION, DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.publishing.process.estimator_loop import EstimatorLoop
from ldpstream.publishing.process.prometheus_publisher import SurveyMetrics
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import MARGIN_MS, Schedule
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.services import counting as counting_module
from ldpstream.services import process
from ldpstream.services.counting import FolderCounting, LogCounter
from ldpstream.services.engine import FolderEngine
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.life.folder import SurveyFolder
from ldpstream.surveys.survey import KEPT_MS
from tests.faults.invariant import numbers_of
from tests.services.agent_site import SURVEY
from tests.services.retries import REPORTS, Devices
from tests.services.rig import PATIENCE_S, free_ports, get, start_command, wait_until, with_collector

KILLS, CLIENTS = 6, 3


class Served:
    """The process of `ldpstream serve`, which can be killed and started again.

    Args:
        folder: an empty folder for the survey, the data and what the process writes.
        step_s: length of a step.
    """

    def __init__(self, folder: Path, step_s: int) -> None:
        self.survey_file, self.data, self._log = folder / "survey.toml", folder / "data", folder / "log"
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.survey_file.write_text(SURVEY.format(name="one-machine", start=start, step_seconds=step_s))
        self.gateway, self.page, self.metrics = free_ports(3)

    @property
    def survey(self) -> Survey:
        return load_survey(self.survey_file)

    def start(self, descriptors: int | None = None, **more: str) -> None:
        settings = {"GATEWAY_PORT": self.gateway, "PAGE_PORT": self.page, "METRICS_PORT": self.metrics, "GATEWAY_RATE": 10**6}
        environment = {f"LDPSTREAM_{name}": str(value) for name, value in settings.items()} | more
        environment |= with_collector(self.data.parent)
        limited = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors} && exec "$0" "$@"']
        self.process = start_command(self._log, environment, "serve", self.survey_file, "--data", self.data, through=limited)

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.get(self.gateway, "/ready")[0] == 200, self.said)

    def stop(self) -> int:
        """Sends SIGTERM. Returns the exit status."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def get(self, port: int, path: str) -> tuple[int, str]:
        return get(f"http://127.0.0.1:{port}{path}")

    def status(self) -> Any:
        return json.loads(self.get(self.page, "/api/v1/status?span=step")[1])


@pytest.fixture
def step_s() -> int:
    return 4


@pytest.fixture
def served(tmp_path: Path, step_s: int) -> Iterator[Served]:
    made = Served(tmp_path, step_s)
    made.start()
    yield made
    made.kill()


def test_the_first_line_says_where_everything_is_and_the_gauges_that_it_counts(served: Served) -> None:
    served.wait_until_ready()
    first = served.said().splitlines()[0]
    assert first == (
        f"ldpstream: Devices report to http://127.0.0.1:{served.gateway}, the page is http://127.0.0.1:{served.page}/, "
        f"the data are in {served.data}."
    )
    wait_until(lambda: served.get(served.page, "/")[0] == 200, served.said)
    # LdpstreamAgentsMissing and LdpstreamStoreUnavailable fire if one of these gauges is 0
    shown = ("ldpstream_reports_total 0.0\n", "ldpstream_partitions 1.0\n", "ldpstream_store_available 1.0\n")
    wait_until(lambda: all(line in served.get(served.metrics, "/metrics")[1] for line in shown), served.said)
    assert served.stop() == 0
    assert served.said().count('"ended"') == 1


def test_the_alerts_see_that_its_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey = Served(tmp_path, 600).survey
    (tmp_path / "data").mkdir(mode=0o700)

    def refuse(*_: object) -> bool:
        raise StoreUnavailable("the disk is full")

    with closing(DataFolder(tmp_path / "data")) as folder:
        log, counting = FolderLog(folder, survey, now_ms), FolderCounting(folder, lambda: [survey], True, now_ms, KEPT_MS)
        log.log_id()
        with folder.write() as db:
            log.append(db, [b"no envelope"], b"")
        monkeypatch.setattr(counting_module, "RETRY_S", 0.0)
        with monkeypatch.context() as full:
            full.setattr(FolderCountStore, "commit", refuse)
            counting.count()
        assert (metrics.store_available._value.get(), counting.stalled) == (0, {survey.fingerprint})
        counting.count()
        assert (metrics.store_available._value.get(), counting.stalled) == (1, set())
        assert FolderCountStore(folder, survey).heads()[PARTITION].next_offset == 1


@pytest.mark.parametrize("kept_ms", [0, 3_600_000, Settings().records_retention_ms])
def test_counted_records_stay_as_long_as_the_setting_says(kept_ms: int, tmp_path: Path) -> None:
    survey = Served(tmp_path, 600).survey
    (tmp_path / "data").mkdir(mode=0o700)
    at_ms = [survey.opens_ms(1)]
    with closing(DataFolder(tmp_path / "data")) as folder:
        counting = FolderCounting(folder, lambda: [survey], True, lambda: at_ms[0], kept_ms)
        (log := FolderLog(folder, survey, lambda: at_ms[0])).log_id()
        with folder.write() as db:
            log.append(db, [b"rejected"], b"")
        store, never = FolderCountStore(folder, survey), FolderEngine.deadline_steps
        results = KeptResults(survey, FolderResults(folder, survey))
        schedule = Schedule(survey, store, log, results, [], deadline_steps=never)

        def stored(later_ms: int) -> bool:
            at_ms[0] = max(at_ms[0], survey.opens_ms(1) + later_ms)
            counting.count()
            with folder.read() as db:
                return bool(db.execute("SELECT count(*) FROM record WHERE value = ?", (b"rejected",)).fetchone()[0])

        assert stored(0)
        assert stored(60_000)  # nothing is published
        at_ms[0] = survey.closes_ms(1) + MARGIN_MS
        counting.count()
        assert not schedule.run(at_ms[0])  # appends a marker
        counting.count()
        assert schedule.run(at_ms[0])
        published_ms = at_ms[0] - survey.opens_ms(1)
        assert kept_ms <= published_ms or stored(kept_ms)
        assert not stored(max(kept_ms, published_ms) + 60_001)


def test_killed_again_and_again_it_loses_and_doubles_no_report(served: Served) -> None:
    """The test kills the process at random moments. Devices send every request twice or more, with the request's key."""
    drawn = random.Random(20261125)
    served.wait_until_ready()
    devices = [Devices(served.survey, [served.gateway], seed) for seed in range(CLIENTS)]
    for device in devices:
        device.start()
    for _ in range(KILLS):
        seen = sum(device.answers[202] for device in devices)
        wait_until(lambda seen=seen: sum(device.answers[202] for device in devices) > seen + 20, served.said)  # type: ignore[misc]  # an untyped default
        time.sleep(drawn.uniform(0, 1))
        served.kill()
        served.start()
    for device in devices:
        device.finish()
    for device in devices:
        device.join(PATIENCE_S)
        assert not device.is_alive()
    last = served.survey.step_at(now_ms())
    wait_until(lambda: (served.status()["latest_step"] or 0) >= last, served.said)
    published = {step: series(served, step) for step in range(last + 1)}
    assert served.stop() == 0
    check(served, devices, published)


def series(served: Served, step: int) -> tuple[int, bool]:
    """Returns the published reports of attribute `zone` at a step, and True if they are complete."""
    status, raw = served.get(served.page, f"/api/v1/attributes/zone/histogram?span=step&step={step}")
    if status == 404:
        return 0, True
    found = json.loads(raw)
    return found["reports"], found["complete"]


def check(served: Served, devices: list[Devices], published: dict[int, tuple[int, bool]]) -> None:
    survey, accepted = served.survey, set[bytes]().union(*(device.accepted for device in devices))
    with closing(DataFolder(served.data)) as folder:
        log = FolderLog(folder, survey, now_ms).read(0, 10**6)
        stored = {key: numbers_of(table) for key, table in FolderCountStore(folder, survey).tables(range(10**6)).items()}
        pruned = FolderCountStore(folder, survey).snapshot()[0].pruned_below
    records = [record for record in map(Record, *log[:3]) if record.value]
    first: dict[bytes, Record] = {}
    for record in records:
        if not tally(survey, [record]).rejected:
            first.setdefault(record.value, record)
    wanted = {key: numbers_of(table) for key, table in tally(survey, list(first.values())).counts.items()}
    assert accepted <= first.keys()
    assert {key: one for key, one in stored.items() if key.step >= pruned} == {
        key: one for key, one in wanted.items() if key.step >= pruned
    }
    by_step = Counter[int]()
    for key, (n, _) in wanted.items():
        by_step[key.step] += n
    assert published == {step: (by_step[step], True) for step in published}
    assert sum(n for n, _ in published.values()) == REPORTS * len(first)
    assert len(records) > len(first) > 100


def test_a_second_process_and_a_changed_survey_are_refused_in_one_line(served: Served, tmp_path: Path) -> None:
    served.wait_until_ready()
    environment = {"LDPSTREAM_GATEWAY_PORT": "0", "LDPSTREAM_PAGE_PORT": "0"}

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ldpstream", "serve", str(served.survey_file), "--data", str(served.data)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)

    second = run()
    assert second.returncode == 2
    said = f"ldpstream: {served.data}: another ldpstream process uses this data folder"
    assert second.stderr.splitlines() == [said]
    served.stop()
    text, kept = served.survey_file.read_text(), served.survey.fingerprint.hex()
    served.survey_file.write_text(text.replace("eps_1 = 2.0", "eps_1 = 2.5"))
    changed = run()
    assert changed.returncode == 2
    assert changed.stderr.splitlines() == [
        "ldpstream: survey one-machine: the file holds another survey, but survey one-machine with the fingerprint "
        f'{kept} is open and stays: restore its text, or write replaces = "{kept}" to end it'
    ]
    served.survey_file.write_text(text)
    served.start()
    served.wait_until_ready()


@pytest.mark.parametrize("step_s", [600])  # the step stays open
def test_a_backup_starts_elsewhere_and_counts_no_report_twice(served: Served, tmp_path: Path) -> None:
    """A device sends a report, and sends it again to the restored service, because the first answer was lost."""
    served.wait_until_ready()
    device = Devices(served.survey, [served.gateway], 7)
    body, headers = device._envelope(), {"Content-Type": "application/octet-stream", "Idempotency-Key": "k" * 16}
    assert device._post(body, headers) == 202
    copy = tmp_path / "copy.sqlite3"
    command = [sys.executable, "-m", "ldpstream", "backup", str(copy), "--data", str(served.data)]
    subprocess.run(command, check=True, capture_output=True)
    assert served.stop() == 0
    shutil.rmtree(served.data)
    served.data.mkdir()
    shutil.copy(copy, served.data / FILE)
    served.start()
    served.wait_until_ready()
    assert Devices(served.survey, [served.gateway], 8)._post(body, headers) == 202
    assert served.stop() == 0
    with closing(DataFolder(served.data)) as folder:
        counted = FolderCountStore(folder, served.survey).tables(range(10**6))
        assert sum(table.n for table in counted.values()) == REPORTS


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("gateway_port", None), ("page_port", None), ("metrics_port", None), ("gateway_port", "metrics_port"),
        ("gateway_port", "page_port"), ("metrics_port", "page_port"),
    ],
)  # fmt: skip
def test_a_port_in_use_is_told_before_the_first_line(tmp_path: Path, name: str, same: str | None) -> None:
    """Another process listens on the port, or a second server of this process has the same port."""
    served, said = Served(tmp_path, 4), Event()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"gateway_port": served.gateway, "page_port": served.page, "metrics_port": served.metrics}
        ports[name] = taken.getsockname()[1] if same is None else ports[same]
        with pytest.raises(SettingsError, match=f"LDPSTREAM_{name.upper()}.*Address already in use"):
            process.serve([served.survey_file], Settings.model_validate(ports), served.data, said.set)
    assert not said.is_set()
    assert not any(isinstance(one, SurveyMetrics) for one in REGISTRY._collector_to_names)  # the estimates are closed


@pytest.mark.parametrize("stopped", [False, True])
def test_a_thread_that_fails_at_once_or_at_the_end_ends_the_process_with_its_error(
    served: Served, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """Its signal comes neither before the gateway handles SIGTERM nor after the gateway has ended."""

    def fail(self: FolderCounting, stop: Event) -> None:
        if stopped:
            os.kill(os.getpid(), signal.SIGTERM)
            stop.wait()
        raise StoreUnavailable("a fault in the counting")

    unhandled = list[int]()

    monkeypatch.setattr(FolderCounting, "run", fail)
    served.kill()
    settings = Settings(gateway_port=served.gateway, page_port=served.page, metrics_port=served.metrics)
    before = signal.signal(signal.SIGTERM, lambda number, _: unhandled.append(number))
    try:
        with pytest.raises(StoreUnavailable, match="a fault in the counting"):
            process.serve([served.survey_file], settings, served.data, lambda: None)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not unhandled


def test_it_is_not_ready_while_no_survey_is_both_counted_and_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One survey is published and not counted, the other is counted and not published."""
    text, other = (file := Served(tmp_path, 600).survey_file).read_text(), tmp_path / "second.toml"
    other.write_text(text.replace("one-machine", "second"))
    watch = SurveyFolder([file, other], now_ms)
    counting = FolderCounting(Mock(), watch.listed, False, now_ms, KEPT_MS)
    with closing(EstimatorLoop(watch, Mock(), Event(), Settings(page_port=0))) as loop:
        first, second = loop._estimators.values()
        first.trouble = second.trouble = None
        counting._put_off(first.survey, "a count table is damaged", 30.0, Mock())
        assert process.works(counting, loop)
        second.trouble = "the file holds another survey"
        assert not process.works(counting, loop)
        second.trouble, counting._began_s = None, 0.0
        monkeypatch.setattr(counting_module, "STALL_S", 0.0)
        assert not process.works(counting, loop)  # a round that takes too long


def test_a_survey_whose_reports_never_end_leaves_time_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record arrives before each commit."""
    survey, honest = Served(tmp_path, 600).survey, FolderCountStore.commit
    with closing(DataFolder(tmp_path / "data")) as folder:
        log = FolderLog(folder, survey, now_ms)

        def commit(*arguments: Any) -> bool:
            assert log.ends()[PARTITION] < 100, "the counting does not end"
            log.mark([PARTITION])
            return honest(*arguments)

        monkeypatch.setattr(FolderCountStore, "commit", commit)
        LogCounter(survey, FolderCountStore(folder, survey), log).count()
        assert log.ends()[PARTITION] == 2  # one at the first commit, which has no records; one at the commit of this record
