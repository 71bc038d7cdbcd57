"""Devices that report through a rough relay, while `ldpstream serve` is killed again and again.

The relay drops requests and answers, delays requests so that others overtake them, and sends requests again, at once or later.
Each simulated device makes one report and sends it until the gateway's answer arrives. So the counts must be the tally of all
reports, each once. If `records in the log` is larger than `reports`, the service has left out repetitions.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ldpstream.agents import tally
from ldpstream.agents.tally import Record
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.gateway.relay_keys import rotate
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.relay_sink import RelaySink
from ldpstream.producers.values import MarkovValues
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.services.sinks import relay_of
from ldpstream.services.trial.ports import LOOPBACK
from ldpstream.services.trial.relay import Reply, TrialRelay
from tests.conftest import Figures
from tests.faults.invariant import numbers_of
from tests.ldpstream.test_serve import Served

from .retries import differences
from .rig import wait_until

DEVICES, KILLS = 400, 2
STEP_S = 3600  # the step stays open
PATIENCE_S = 3600.0  # a device tries again until its report is in the log
LOST = Reply(502, "text/plain", b"")


class RoughRelay(TrialRelay):
    """A relay that loses, delays and repeats, at random.

    Args:
        port: the gateway's port.
        seed: of the choices.

    Attributes:
        done: how often it did what.
    """

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(0, port)
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._later: list[threading.Timer] = []

    def forward(self, body: bytes) -> Reply:
        what = self._random.choices(
            ("pass on", "drop", "drop the answer", "delay", "repeat", "repeat later"), (70, 5, 5, 10, 5, 5)
        )[0]
        self.done[what] += 1
        if what == "drop":
            return LOST
        if what == "delay":
            time.sleep(self._random.uniform(0, 2))
        if what == "repeat":
            super().forward(body)
        if what == "repeat later":
            self._later.append(threading.Timer(self._random.uniform(0, 5), super().forward, (body,)))
            self._later[-1].start()
        reply = super().forward(body)
        return LOST if what == "drop the answer" else reply

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serves in a thread. At the end, waits for the repetitions that are still to come."""
        thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
            for timer in self._later:
                timer.join()
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Recorder:
    """A sink that remembers all envelopes."""

    def __init__(self, sink: RelaySink) -> None:
        self._sink, self.sent = sink, list[bytes]()

    def send(self, envelope: bytes) -> None:
        self.sent.append(envelope)
        self._sink.send(envelope)

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self._sink.close()


class RelayedService:
    """`ldpstream serve` with a survey that requires a relay."""

    def __init__(self, folder: Path) -> None:
        self.served, self.keys = Served(folder, STEP_S), folder / "relay-keys.json"
        self.served.survey_file.write_text('relay = "required"\n' + self.served.survey_file.read_text())
        rotate(self.keys, datetime.now(UTC))
        self.start()

    def start(self) -> None:
        self.served.start(LDPSTREAM_GATEWAY_RELAY_KEYS_FILE=str(self.keys), LDPSTREAM_GATEWAY_RELAYS=LOOPBACK)
        self.served.wait_until_ready()

    def kill(self) -> None:
        """Kills the process and starts it again."""
        self.served.kill()
        self.start()


def run(folder: Path, devices: int, kills: int, seed: int) -> Counter[str]:
    """Sends one report of each device through the relay, kills the process meanwhile, and checks the counts.

    Returns:
        Numbers of events. "lost" and "doubled" count reports.
    """
    service, drawn, over = RelayedService(folder), random.Random(seed), threading.Event()
    survey, port = service.served.survey, service.served.gateway
    relay = RoughRelay(port, seed)
    way = relay_of(relay.url, f"http://{LOOPBACK}:{port}", Settings(gateway_relay_keys_file=service.keys))
    done: Counter[str] = Counter(kills=0)

    def kill() -> None:
        for number in range(kills):
            reached = (number + 0.5) * devices / kills
            wait_until(partial(lambda n: over.is_set() or relay.done.total() > n, reached), lambda: "too few requests")
            if over.wait(drawn.uniform(0, 0.5)):
                return
            service.kill()
            done["kills"] += 1

    try:
        with relay.serving(), closing(Recorder(RelaySink(survey, way, patience_s=PATIENCE_S))) as sink:
            killer = threading.Thread(target=kill)
            killer.start()
            try:
                step = survey.step_at(now_ms())
                population = Population(survey, MarkovValues(survey, devices, 1, seed), seed)
                told = produce_step(survey, population, sink, step, 0, envelope_bytes=1)
            finally:
                over.set()
                killer.join()
        assert service.served.stop() == 0  # SIGTERM: counts the rest of the log
    finally:
        service.served.kill()
    done["reports"], done["devices"] = len(sink.sent), devices
    assert sum(truth.reports for truth in told.values()) == len(sink.sent)
    done.update(relay.done)
    done.update(_checked(service.served, sink.sent, step))  # a sum of counters would leave out zeros
    return done


def _checked(served: Served, sent: list[bytes], step: int) -> Counter[str]:
    at = served.survey.opens_ms(step) + 1
    wanted = {
        key: numbers_of(t) for key, t in tally(served.survey, [Record(i, at, e) for i, e in enumerate(sent)]).counts.items()
    }
    with closing(DataFolder(served.data)) as folder:
        records = FolderLog(folder, served.survey, now_ms).read(0, 10**9)
        tables = FolderCountStore(folder, served.survey).tables(range(10**6))
    found = differences(wanted, {key: numbers_of(table) for key, table in tables.items()})
    found["records in the log"] = sum(map(bool, records.values))
    return found


def test_reports_through_a_rough_relay_count_once(tmp_path: Path, figures: Figures) -> None:
    """As a control, the relay has done all its faults, and the log has reports more than once."""
    done = run(tmp_path, DEVICES, KILLS, seed=1)
    figures["devices behind a rough relay, ldpstream serve"] = done
    assert (done["lost"], done["doubled"], done["tables that differ"]) == (0, 0, 0), done
    assert done["reports"] == done["reports counted"] == DEVICES, done
    assert done["kills"] == KILLS
    for fault in ("drop", "drop the answer", "delay", "repeat", "repeat later"):
        assert done[fault] >= 3, done
    assert done["records in the log"] > DEVICES, done
