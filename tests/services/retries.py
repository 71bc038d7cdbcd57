"""Devices that post every envelope several times, through several gateways, while processes are killed.

Every device posts one envelope or a batch with one `Idempotency-Key`, to gateways chosen at random, until a gateway accepts
the envelopes. Then the device posts the same body again, once or twice. Meanwhile gateways, agents and the broker are killed
or frozen, Redis loses its data, and the topic gets more partitions.

The check does not use the keys. All envelopes are different, so the first accepted record of each envelope gives the counts
that the service must have. A report that is counted more often is *doubled*; an acknowledged report that is not counted is
*lost*. `repeated in the log` is the number of records that the agents had to leave out.
"""

import http.client
import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
from kafka import KafkaAdminClient

from ldpstream.agents import tally
from ldpstream.agents.tally import Record
from ldpstream.engines import PaneKey
from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey, seal
from tests.faults.invariant import numbers_of

from .agent_site import PARTITIONS, Site
from .rig import COLLECTS, PATIENCE_S, Gateway, KafkaNode, RedisNode, freeze, wait_until, with_collector

GATEWAYS, CLIENTS = 3, 8
STEP_S, REPORTS = 20, 16
MORE_PARTITIONS = PARTITIONS + 2
RETRY_S = 0.2  # a client waits this long after a refusal
BATCH_OF = 5

Numbers = Mapping[PaneKey, tuple[int, tuple[int, ...]]]


def gateway_of(site: Site, number: int) -> Gateway:
    """Starts a gateway of the site's survey."""
    environment = site.environment | with_collector(site.folder) | {"LDPSTREAM_PARTITIONS": str(PARTITIONS)}
    return Gateway(site.folder / f"gateway-{number}.log", environment, environment["LDPSTREAM_SURVEY"])


class Devices(threading.Thread):
    """One thread of devices: each device posts one body until it is accepted, and then once or twice more.

    Attributes:
        accepted: the acknowledged envelopes.
        answers: number of posts by status; 0 without an answer.
    """

    def __init__(self, survey: Survey, ports: list[int], seed: int) -> None:
        super().__init__(daemon=True)
        self._survey, self._ports = survey, ports
        self._random, self._rng = random.Random(seed), np.random.default_rng(seed)
        self._connections: dict[int, http.client.HTTPConnection] = {}
        self._over = threading.Event()
        self.accepted: set[bytes] = set()
        self.answers: Counter[int] = Counter()

    def run(self) -> None:
        while not self._over.is_set():
            envelopes = [self._envelope() for _ in range(self._random.choice((1, 1, 1, BATCH_OF)))]
            body, kind = (envelopes[0], ENVELOPE) if len(envelopes) == 1 else (msgspec.msgpack.encode(envelopes), BATCH)
            key, further = secrets.token_urlsafe(16), self._random.choice((1, 1, 2))
            while further >= 0:
                status = self._post(body, {"Content-Type": kind, "Idempotency-Key": key})
                self.answers[status] += 1
                if status == 202:
                    self.accepted.update(envelopes)
                    further -= 1
                elif status == 422:  # the step has closed
                    break
                else:
                    time.sleep(RETRY_S)

    def finish(self) -> None:
        """Stops after the present body."""
        self._over.set()

    def _envelope(self) -> bytes:
        """Sixteen reports of twelve random bits, which no other envelope has."""
        mechanism = self._survey.mechanisms[1][0]
        reports = mechanism.simulate(self._rng.integers(0, mechanism.k, REPORTS), self._rng)
        return seal(self._survey, 1, 0, self._survey.step_at(now_ms()), reports)

    def _post(self, body: bytes, headers: dict[str, str]) -> int:
        port = self._random.choice(self._ports)
        connection = self._connections.setdefault(port, http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S))
        try:
            connection.request("POST", "/v1/reports", body, headers | COLLECTS)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connections.pop(port).close()
            return 0
        return answer.status


class Faults:
    """Random faults of all processes, one at a time.

    Args:
        every_s: shortest and longest time between two faults.
    """

    def __init__(
        self, site: Site, kafka: KafkaNode, store: RedisNode, gateways: list[Gateway], every_s: tuple[float, float], seed: int
    ) -> None:
        self._site, self._kafka, self._redis, self._gateways = site, kafka, store, gateways
        self._every_s, self._random = every_s, random.Random(seed)
        self.done: Counter[str] = Counter()
        self._faults: list[tuple[float, Callable[[], None]]] = [
            (6, self.kill_gateway), (2, self.freeze_gateway), (4, self.kill_agent), (2, self.freeze_agent),
            (1, self.flush_redis), (1, self.kill_broker),
        ]  # fmt: skip

    def run_one(self) -> None:
        """Waits a random time, then carries out a random fault."""
        time.sleep(self._random.uniform(*self._every_s))
        faults, weights = [fault for _, fault in self._faults], [weight for weight, _ in self._faults]
        (fault,) = self._random.choices(faults, weights)
        self.done[fault.__name__] += 1
        fault()

    def kill_gateway(self) -> None:
        """Kills a gateway and starts it again."""
        gateway = self._random.choice(self._gateways)
        gateway.kill()
        gateway.start()

    def freeze_gateway(self) -> None:
        """Stops a gateway for some seconds: its requests end late or without an answer."""
        process = self._random.choice(self._gateways).process
        freeze(process)
        time.sleep(self._random.uniform(0.5, 3))
        process.send_signal(signal.SIGCONT)

    def kill_agent(self) -> None:
        """Kills an agent and starts another."""
        self._random.choice([worker for worker in self._site.workers if worker.process.poll() is None]).kill()
        self._site.start()

    def freeze_agent(self) -> None:
        """Stops an agent for so long that the group gives its partitions to others."""
        process = self._random.choice([w for w in self._site.workers if w.process.poll() is None]).process
        freeze(process)
        time.sleep(self._random.choice((1.0, 8.0)))
        process.send_signal(signal.SIGCONT)

    def flush_redis(self) -> None:
        """Deletes everything in Redis: the agents count the log again."""
        with self._redis.client() as client:
            client.flushall()

    def kill_broker(self) -> None:
        """Kills the broker and starts it again."""
        self._kafka.kill()
        self._kafka.start()


def run(site: Site, kafka: KafkaNode, store: RedisNode, posts: int, every_s: tuple[float, float], seed: int) -> Counter[str]:
    """Runs devices and faults until the devices have posted `posts` times, then checks the counts.

    Args:
        every_s: shortest and longest time between two faults, in seconds.

    Returns:
        Numbers of events. "lost" and "doubled" count reports.
    """
    gateways = [gateway_of(site, number) for number in range(GATEWAYS)]
    try:
        for gateway in gateways:
            wait_until(gateway.ready, gateway.log.read_text)
        for _ in range(2):
            site.start()
        faults = Faults(site, kafka, store, gateways, every_s, seed)
        devices = [Devices(site.survey, [g.port for g in gateways], seed + i) for i in range(CLIENTS)]
        for device in devices:
            device.start()
        while sum(device.answers.total() for device in devices) < posts / 10:
            faults.run_one()
        with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
            admin.create_partitions({site.survey.reports_topic: MORE_PARTITIONS})
        while sum(device.answers.total() for device in devices) < posts:
            faults.run_one()
        for device in devices:
            device.finish()
        for device in devices:
            device.join(PATIENCE_S)
            assert not device.is_alive(), "a device still waits for an answer"
        return Counter(dict(faults.done) | dict(_check(site, devices)))
    finally:
        for gateway in gateways:
            gateway.kill()


def _check(site: Site, devices: list[Devices]) -> Counter[str]:
    """Waits until all records are counted, and compares the counts with the first accepted record of each envelope."""
    records = [r for r in site.read(site.survey.reports_topic) if r.value]
    ends = {p: max(r.offset for r in records if r.partition == p) + 1 for p in {r.partition for r in records}}
    site.until(lambda: all(site.store.positions().get(p, 0) >= end for p, end in ends.items()))
    accepted = set().union(*(device.accepted for device in devices))
    done: Counter[str] = Counter(posts=0, doubled=0, lost=0)
    for device in devices:
        done.update({f"answer {status or 'none'}": n for status, n in device.answers.items()})
        done["posts"] += device.answers.total()
    done["envelopes acknowledged"] = len(accepted)
    done["records"], done["repeated in the log"] = len(records), len(records) - len({r.value for r in records})
    done["partitions used"] = len(ends)
    first: dict[bytes, Record] = {}
    newest: dict[int, int] = {}
    for r in sorted(records, key=lambda r: (r.partition, r.offset)):
        newest[r.partition] = at = max(newest.get(r.partition, 0), r.timestamp)
        if r.value not in first and not tally(site.survey, [Record(r.offset, at, r.value)]).rejected:
            first[r.value] = Record(r.offset, at, r.value)
    done["lost"] += REPORTS * len(accepted - {r.value for r in records})
    sum_of_all = tally(site.survey, [Record(i, r.appended_ms, r.value) for i, r in enumerate(first.values())])
    wanted = {key: numbers_of(table) for key, table in sum_of_all.counts.items()}
    stored = {key: numbers_of(table) for key, table in site.store.tables(range(10**6)).items()}
    done.update(differences(wanted, stored))  # a sum of counters would leave out zeros
    return done


def differences(wanted: Numbers, stored: Numbers) -> Counter[str]:
    """Compares the numbers of the tables that the service must have with those of the tables that it has."""
    found = Counter({"lost": 0, "doubled": 0, "tables that differ": 0, "reports counted": sum(n for n, _ in stored.values())})
    for key in wanted.keys() | stored.keys():
        difference = wanted.get(key, (0, ()))[0] - stored.get(key, (0, ()))[0]
        found["lost"] += max(0, difference)
        found["doubled"] += max(0, -difference)
        found["tables that differ"] += wanted.get(key) != stored.get(key)
    return found
