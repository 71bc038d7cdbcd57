"""Devices that report through a rough relay, while the service is killed again and again.

    python -m tests.services.relayed --devices 20000               # `ldpstream serve`
    python -m tests.services.relayed --devices 20000 --services    # Kafka, Redis, two gateways, two agents

The relay drops requests and answers, delays requests so that others overtake them, and sends requests again, at once or later.
Each simulated device makes one report and sends it until the gateway's answer arrives. So the counts must be the tally of all
reports, each once. If `records in the log` is larger than `reports`, the service has left out repetitions.
"""

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ldpstream.agents import tally
from ldpstream.agents.tally import Record
from ldpstream.commands.service import relay_of
from ldpstream.engines import CountStore
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
from ldpstream.services.trial.ports import LOOPBACK
from ldpstream.services.trial.relay import Reply, TrialRelay
from ldpstream.surveys import Survey
from tests.faults.invariant import numbers_of
from tests.ldpstream.test_serve import Served

from .agent_site import new_site
from .retries import differences, gateway_of
from .rig import KafkaNode, RedisNode, wait_until

STEP_S = 3600  # the step stays open
KEYS, GATEWAYS, AGENTS = "relay-keys.json", 2, 2
PATIENCE_S = 3600.0  # a device tries again until its report is in the log
LOST = Reply(502, "text/plain", b"")


class RoughRelay(TrialRelay):
    """A relay that loses, delays and repeats, at random.

    Args:
        ports: the gateways' ports; each request goes to one of them.
        seed: of the choices.

    Attributes:
        done: how often it did what.
    """

    def __init__(self, ports: Sequence[int], seed: int) -> None:
        super().__init__(0, ports[0])
        self._host, self._ports, self._random = f"{LOOPBACK}:{ports[0]}", ports, random.Random(seed)
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
            self._pass_on(body)
        if what == "repeat later":
            self._later.append(threading.Timer(self._random.uniform(0, 5), self._pass_on, (body,)))
            self._later[-1].start()
        reply = self._pass_on(body)
        return LOST if what == "drop the answer" else reply

    def _pass_on(self, body: bytes) -> Reply:
        return self.send_to(self._random.choice(self._ports), self._host, body)

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


class Place(NamedTuple):
    """A running service.

    Attributes:
        ports: of its gateways.
        keys: the file of relay keys.
        kill: kills a process and starts it again.
        counted: waits until all records are counted; returns the count store and the number of records in the log.
    """

    survey: Survey
    ports: list[int]
    keys: Path
    kill: Callable[[], None]
    counted: Callable[[], tuple[CountStore, int]]


def run(place: Place, devices: int, kills: int, seed: int) -> Counter[str]:
    """Sends one report of each device through the relay, kills processes meanwhile, and checks the counts.

    Returns:
        Numbers of events. "lost" and "doubled" count reports.
    """
    drawn, over = random.Random(seed), threading.Event()
    population = Population(place.survey, MarkovValues(place.survey, devices, 1, seed), seed)
    relay = RoughRelay(place.ports, seed)
    way = relay_of(relay.url, f"http://{LOOPBACK}:{place.ports[0]}", Settings(gateway_relay_keys_file=place.keys))
    done: Counter[str] = Counter(kills=0)

    def kill() -> None:
        for number in range(kills):
            reached = (number + 0.5) * devices / kills
            wait_until(partial(lambda n: over.is_set() or relay.done.total() > n, reached), lambda: "too few requests")
            if over.wait(drawn.uniform(0, 0.5)):
                return
            place.kill()
            done["kills"] += 1

    with relay.serving(), closing(Recorder(RelaySink(place.survey, way, patience_s=PATIENCE_S))) as sink:
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            step = place.survey.step_at(now_ms())
            told = produce_step(place.survey, population, sink, step, 0, envelope_bytes=1)
        finally:
            over.set()
            killer.join()
    done["reports"], done["devices"] = len(sink.sent), devices
    assert sum(truth.reports for truth in told.values()) == len(sink.sent)
    done.update(relay.done)
    done.update(_checked(place, sink.sent, step))  # a sum of counters would leave out zeros
    return done


def _checked(place: Place, sent: list[bytes], step: int) -> Counter[str]:
    store, records = place.counted()
    at = place.survey.opens_ms(step) + 1
    wanted = {
        key: numbers_of(t) for key, t in tally(place.survey, [Record(i, at, e) for i, e in enumerate(sent)]).counts.items()
    }
    stored = {key: numbers_of(table) for key, table in store.tables(range(10**6)).items()}
    found = differences(wanted, stored)
    found["records in the log"] = records
    return found


@contextmanager
def on_one_machine(folder: Path) -> Iterator[Place]:
    """Runs `ldpstream serve`."""
    served = Served(folder, STEP_S)
    served.survey_file.write_text('relay = "required"\n' + served.survey_file.read_text())
    rotate(keys := folder / KEYS, datetime.now(UTC))

    def start() -> None:
        served.start(LDPSTREAM_GATEWAY_RELAY_KEYS_FILE=str(keys), LDPSTREAM_GATEWAY_RELAYS=LOOPBACK)
        served.wait_until_ready()

    def kill() -> None:
        served.kill()
        start()

    def counted() -> tuple[CountStore, int]:
        assert served.stop() == 0  # SIGTERM: counts the rest of the log
        opened = DataFolder(served.data)
        records = FolderLog(opened, served.survey, now_ms).read(0, 10**9)
        return FolderCountStore(opened, served.survey), sum(map(bool, records.values))

    start()
    try:
        yield Place(served.survey, [served.gateway], keys, kill, counted)
    finally:
        served.kill()


@contextmanager
def on_services(folder: Path, kafka: str, redis: str) -> Iterator[Place]:
    """Runs two gateways and two agents, with the given Kafka and Redis."""
    rotate(keys := folder / KEYS, datetime.now(UTC))
    site = new_site(folder, kafka, redis, STEP_S, relay=True)
    more: Mapping[str, str] = {"GATEWAY_RELAY_KEYS_FILE": str(keys), "GATEWAY_RELAYS": LOOPBACK}
    site.environment |= {f"LDPSTREAM_{name}": value for name, value in more.items()}
    gateways = [gateway_of(site, number) for number in range(GATEWAYS)]
    drawn = random.Random(1)

    def kill() -> None:
        gateway = drawn.choice(gateways)
        gateway.kill()
        gateway.start()
        worker = drawn.choice([worker for worker in site.workers if worker.process.poll() is None])
        worker.kill()
        site.start()

    def counted() -> tuple[CountStore, int]:
        records = [r for r in site.read(site.survey.reports_topic) if r.value]
        ends = {p: max(r.offset for r in records if r.partition == p) + 1 for p in {r.partition for r in records}}
        site.until(lambda: all(site.store.positions().get(p, 0) >= end for p, end in ends.items()))
        return site.store, len(records)

    try:
        for gateway in gateways:
            wait_until(gateway.ready, gateway.log.read_text)
        for _ in range(AGENTS):
            site.start()
        yield Place(site.survey, [gateway.port for gateway in gateways], keys, kill, counted)
    finally:
        for gateway in gateways:
            gateway.kill()
        for worker in site.workers:
            worker.kill()


def main() -> None:
    """Runs the trial, and prints the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--services", action="store_true", help="Kafka and Redis in place of `ldpstream serve`")
    given = parser.parse_args()

    def tell(place: Place) -> None:
        for name, number in sorted(run(place, given.devices, given.kills, given.seed).items()):
            print(f"{name:24} {number:>10,}")

    with tempfile.TemporaryDirectory() as folder:
        if given.services:
            with KafkaNode() as kafka, RedisNode() as redis, on_services(Path(folder), kafka.bootstrap, redis.url) as place:
                tell(place)
        else:
            with on_one_machine(Path(folder)) as place:
                tell(place)


if __name__ == "__main__":
    main()
