"""Measures `ldpstream serve`. Its processor time includes counting and estimates."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from deploy.local.ports import free_ports
from lab.bench.gateway import BATCH, DAY_S, Served, Sizes, answers, bodies, load, measure
from lab.bench.gateway_load import TOKEN
from lab.bench.service_site import Process
from lab.bench.service_survey import ATTRIBUTES, SEED, Asked, random_reports, write_survey
from ldpstream.device.routes import Direct
from ldpstream.engines.folder.data_folder import FILE
from ldpstream.gateway.http.bodies import BATCH as BATCH_KIND
from ldpstream.gateway.http.bodies import ENVELOPE
from ldpstream.producers.gateway_sink import GatewaySink
from ldpstream.publishing.progress import Progress
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import seal

K, MECHANISMS = 1000, ("L-OSUE", "L-OLH")
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class CloseSizes:
    attributes: int
    steps: int
    step_s: int
    reports: int


FULL, QUICK = CloseSizes(20, 15, 3, 1000), CloseSizes(2, 2, 2, 50)


@dataclass(slots=True)
class OneMachine:
    """Results.

    Attributes:
        served: requests of `serve`.
        idle_mib, peak_mib: resident memory of `serve`: when idle, and at most in all requests.
        reports, bytes_per_report: stored records, and the bytes of the database file for each.
        ready_s, counted_s: seconds from the start after a kill until `serve` is ready, and until all records are counted.
        closes_s: seconds from each step's close to its histograms.
    """

    served: list[Served] = field(default_factory=list)
    idle_mib: float = 0.0
    peak_mib: float = 0.0
    reports: int = 0
    bytes_per_report: float = 0.0
    ready_s: float = 0.0
    counted_s: float = 0.0
    closes_s: list[float] = field(default_factory=list)


class Machine:
    def __init__(self, folder: Path, file: Path) -> None:
        self._folder, self._file, self.data = folder, file, folder / "data"
        (folder / "tokens").write_text(f"collector {TOKEN}\n")
        [self.port] = free_ports(1)
        self.start()

    def start(self) -> None:
        given = {
            "LDPSTREAM_GATEWAY_PORT": str(self.port), "LDPSTREAM_PAGE_PORT": "0", "LDPSTREAM_METRICS_PORT": "0",
            "LDPSTREAM_GATEWAY_TOKENS_FILE": str(self._folder / "tokens"), "LDPSTREAM_GATEWAY_CONNECTIONS": "100000",
            "LDPSTREAM_GATEWAY_RATE": "1e9",
        }  # fmt: skip
        arguments = ["serve", str(self._file), "--data", str(self.data)]
        self.process = Process("ldpstream", arguments, given, self._folder / "serve.log")

    def close(self) -> None:
        self.process.stop()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.process.check()
            if time.monotonic() > deadline:
                raise self.process.failed(f"{what}: not within {PATIENCE_S:g} s")
            time.sleep(0.01)

    def ready(self) -> None:
        self.until(partial(answers, self.port), "serve is ready")

    def ask(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.data / FILE}?mode=ro", uri=True)) as db:
            return db.execute(query).fetchall()

    def counted(self) -> bool:
        return self.ask("SELECT max(end) FROM survey") == self.ask("SELECT max(next_offset) FROM checkpoint")

    def resident_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith("VmRSS:"))


def bench(sizes: Sizes, close: CloseSizes, seen: Callable[[str], None] = lambda _: None) -> OneMachine:
    result = OneMachine()
    with TemporaryDirectory(prefix="ldpstream-bench-") as place:
        folder = Path(place)
        own = folder / "one"
        own.mkdir()
        survey = write_survey(own / "survey.toml", "one", DAY_S, ATTRIBUTES)
        single, batches = bodies(survey, folder)
        with closing(Machine(own, own / "survey.toml")) as machine:
            seen("serve")
            _requests(machine, result, sizes, single, batches)
            seen("serve is killed")
            _restart(machine, result, batches)
        seen("from a step's close to its histograms")
        _closes(folder, result, close)
    return result


def _requests(machine: Machine, result: OneMachine, sizes: Sizes, single: Path, batches: Path) -> None:
    machine.ready()
    time.sleep(1)
    result.idle_mib = machine.resident_mib()
    pid = machine.process.pid
    result.served.append(measure("serve", pid, machine.port, sizes, ENVELOPE, single, 1))
    result.served.append(measure("serve, batches", pid, machine.port, sizes, BATCH_KIND, batches, BATCH))
    machine.until(machine.counted, "all reports are counted")
    result.reports = machine.ask("SELECT sum(end) FROM survey")[0][0]
    result.bytes_per_report = (machine.data / FILE).stat().st_size / result.reports
    result.peak_mib = machine.process.peak_mib or 0.0


def _restart(machine: Machine, result: OneMachine, batches: Path) -> None:
    load(machine.port, 10, 0.5, BATCH_KIND, batches)
    machine.process.kill()
    began = time.perf_counter()
    machine.start()
    machine.ready()
    result.ready_s = time.perf_counter() - began
    machine.until(machine.counted, "all reports are counted")
    result.counted_s = time.perf_counter() - began


def _closes(folder: Path, result: OneMachine, sizes: CloseSizes) -> None:
    asked: tuple[Asked, ...] = tuple((f"a{i}", K, MECHANISMS[i % 2]) for i in range(sizes.attributes))
    own = folder / "closing"
    own.mkdir()
    survey, rng = write_survey(own / "survey.toml", "closing", sizes.step_s, asked), np.random.default_rng(SEED)
    given = [random_reports(survey, attribute, sizes.reports, rng) for attribute in range(sizes.attributes)]
    with closing(Machine(own, own / "survey.toml")) as machine:
        machine.ready()
        with closing(GatewaySink(Direct(f"http://127.0.0.1:{machine.port}", TOKEN), "serve")) as sink:
            for measured in range(-2, sizes.steps):  # the first two steps warm up
                step = survey.step_at(now_ms()) + 1
                time.sleep(survey.opens_ms(step) / 1000 - time.time())
                for attribute, reports in enumerate(given):
                    sink.send(seal(survey, attribute, 0, step, reports))
                sink.flush()
                machine.until(partial(_published, machine, step), "an estimate")
                if measured >= 0:
                    result.closes_s.append(time.time() - survey.closes_ms(step) / 1000)


def _published(machine: Machine, step: int) -> bool:
    rows = machine.ask("SELECT progress FROM progress")
    return bool(rows) and msgspec.json.decode(rows[0][0], type=Progress).next_step > step
