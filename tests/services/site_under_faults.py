"""Runs lists of faults on real processes: agents, an estimator, a real Kafka and a real Redis, under traffic.

The operations come from `tests.faults.operations`; a few operations do not apply to real processes. The invariant has three
parts. The count tables equal a direct tally of the topic. The topic holds every record that the broker acknowledged. Every
complete publication equals the direct tally of all records that were ever in the topic. The reference computes the direct tally
and shares no code with the service. Most records have a report key and are sent several times; the direct tally counts each of
them once.

If an operation removes records from the log (`LOSES`), the first two parts become inequalities. The third stays as it is.
"""

import contextlib
import heapq
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import redis
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from ldpstream.agents import Record
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.count_store import StoreUnavailable
from ldpstream.engines.kafka.log_position import KafkaLogPosition, LogClient
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import REASONS
from ldpstream.surveys.report_key import REPORT_KEY_BYTES
from tests.agents.samples import PANES, sound, spoilt
from tests.faults import operations as op
from tests.faults.code import Code
from tests.faults.invariant import (
    Published,
    Tallied,
    direct_tally,
    judged_in_order,
    numbers_of,
    publish_counts,
    truth_of,
)
from tests.faults.memory_store import MemoryResults

from .agent_site import PARTITIONS, Site, Worker
from .rig import PATIENCE_S, KafkaNode, RedisNode, freeze, reached

MAX_AGENTS = 3
ENOUGH = 600  # minimum number of records in a run
SESSION_S = 6.0
EVERY_S, AT_ONCE = 0.05, 4  # the traffic sends AT_ONCE new records every EVERY_S seconds
AGAIN_S = 8.0  # longest delay until a record is sent again; then its step has closed
LOSES = (op.Expire, op.Remove)
LENGTH_AT, BATCHES_AT = 8, 12  # a batch in a segment: its length is at byte 8, and is the number of bytes from byte 12 on


def remove_batches(kafka: KafkaNode, topic: str, partition: int, n: int, back: int) -> int:
    """Removes n batches from the middle of a partition's log while the broker is down, as compaction does.

    Args:
        kafka: the broker; it is restarted.
        topic: the topic.
        partition: the partition.
        n: the number of batches to remove.
        back: the number of batches at the end that remain.

    Returns:
        The number of removed batches, less than n if the log has fewer.
    """
    kafka.stop()
    [segment] = Path(kafka.folder).rglob(f"{topic}-{partition}/*.log")
    raw, at, batches = segment.read_bytes(), 0, list[bytes]()
    while at + BATCHES_AT < len(raw) and (length := int.from_bytes(raw[at + LENGTH_AT : at + BATCHES_AT], "big")):
        batches.append(raw[at : at + BATCHES_AT + length])
        at += BATCHES_AT + length
    end = max(0, len(batches) - back)
    removed = batches[max(0, end - n) : end]
    segment.write_bytes(b"".join(batches[: max(0, end - n)] + batches[end:]))
    for derived in (*segment.parent.glob("*index"), *segment.parent.glob("*.snapshot")):
        derived.unlink()
    kafka.start()
    return len(removed)


def expire(kafka: KafkaNode, topic: str, partition: int, before: int) -> None:
    """Removes the records of a partition before an offset, as retention does. With -1 removes all records."""
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, partition): before})


class Traffic(threading.Thread):
    """Devices that report continuously. Three records in four have a report key and are sent two or three times.

    Attributes:
        acknowledged: number of records that the broker acknowledged, by partition and value.
        records: these records, by partition and offset.
        unknown: number of records without an acknowledgement.
    """

    def __init__(self, site: Site, seed: int) -> None:
        super().__init__(daemon=True)
        self.site, self._rng = site, np.random.default_rng(seed)
        self._over, self._lock = threading.Event(), threading.Lock()
        self._sent: list[tuple[int, bytes, bytes, Any]] = []
        self._due: list[tuple[float, int, bytes, bytes]] = []  # a heap of the records to send again, by their time in seconds
        self.acknowledged: Counter[tuple[int, bytes]] = Counter()
        self.records: dict[tuple[int, int], Record] = {}
        self.unknown = 0
        self._producer: KafkaProducer = site.producer(linger_ms=5, delivery_timeout_ms=round(PATIENCE_S * 1000))

    def run(self) -> None:
        while not self._over.wait(EVERY_S):
            for _ in range(AT_ONCE):
                self.send(self._sound())
            while self._due and self._due[0][0] < time.monotonic():
                self._put(*heapq.heappop(self._due)[1:])

    def _step(self) -> int:
        return self.site.survey.step_at(now_ms())

    def _sound(self) -> bytes:
        with self._lock:
            rng = self._rng
            return sound(self.site.survey, rng, self._step(), int(rng.integers(len(PANES))), int(rng.integers(1, 8)))

    @property
    def sent(self) -> int:
        """Number of records sent so far."""
        return len(self._sent)

    def send(self, value: bytes, partition: int | None = None) -> None:
        """Sends one record, to a random partition if none is given."""
        with self._lock:
            where = int(self._rng.integers(PARTITIONS)) if partition is None else partition % PARTITIONS
            key = self._rng.bytes(REPORT_KEY_BYTES) if self._rng.random() < 0.75 else b""
            for _ in range(int(self._rng.integers(1, 3)) if key else 0):
                delay_s = AGAIN_S * self._rng.random() ** 3
                heapq.heappush(self._due, (time.monotonic() + delay_s, where, value, key))
        self._put(where, value, key)

    def _put(self, where: int, value: bytes, key: bytes) -> None:
        headers = [("key", key)] if key else []
        with self._lock, contextlib.suppress(KafkaError):  # the producer may not queue the record
            future = self._producer.send(self.site.survey.reports_topic, value, partition=where, headers=headers)
            self._sent.append((where, value, key, future))

    def produce(self, n: int, partition: int) -> None:
        """Sends sound envelopes of the current step."""
        for _ in range(n):
            self.send(self._sound(), partition)

    def poison(self, reason: int, partition: int) -> None:
        """Sends an envelope that agents reject. Omits the reason "too large", because the broker would refuse such a record."""
        with self._lock:
            value = spoilt(self.site.survey, self._rng, self._step(), REASONS[reason % (len(REASONS) - 1)])
        self.send(value, partition)

    def repeat(self, n: int) -> None:
        """Sends the last n records again."""
        for where, value, key, _ in self._sent[-n:]:
            self._put(where, value, key)

    def finish(self) -> None:
        """Stops sending, and waits for the outcome of every record."""
        self._over.set()
        self.join()
        with contextlib.suppress(KafkaError):
            self._producer.flush(timeout=PATIENCE_S)
        for where, value, key, future in self._sent:
            if future.succeeded():
                self.acknowledged[where, value] += 1
                self.records[where, future.value.offset] = Record(future.value.offset, future.value.timestamp, value, key)
            else:
                self.unknown += 1
        self._producer.close(timeout=5)


class _Unpruned(RedisCountStore):
    """A count store that never removes panes; the check at the end compares all panes."""

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        """Does nothing."""


class Estimator(threading.Thread):
    """The real schedule, with the agents' Kafka and Redis. The publications contain counts instead of estimates.

    The estimator's clock is `ahead_ms` ahead.
    """

    def __init__(self, site: Site, ahead_ms: int = 0) -> None:
        super().__init__(daemon=True)
        self.ahead_ms = ahead_ms
        self.site, self._over = site, threading.Event()
        self.told: list[Published] = []
        self.results = MemoryResults()
        self.error: BaseException | None = None

    def run(self) -> None:
        module = Code.real().schedule
        publish_counts(module)
        try:
            client = LogClient(self.site.settings)
            position = KafkaLogPosition(self.site.survey, client)
            store = _Unpruned(self.site.survey, connect(self.site.settings))
            schedule = module.Schedule(self.site.survey, store, position, self.results, [self])
            while not self._over.wait(0.2):
                with contextlib.suppress(LogUnavailable, StoreUnavailable):
                    schedule.run(now_ms() + self.ahead_ms)
            client.close()
        except BaseException as error:
            self.error = error

    def publish(self, publications: list[Published]) -> None:
        """Keeps the publications."""
        self.told += publications

    def finish(self) -> None:
        """Ends the thread and raises its error, if any."""
        self._over.set()
        self.join(PATIENCE_S)
        if self.error is not None:
            raise self.error


class Run:
    """Carries out a list of operations.

    Attributes:
        done: number of events by kind.
    """

    def __init__(self, site: Site, kafka: KafkaNode, store: RedisNode, seed: int) -> None:
        self.site, self._kafka, self._redis = site, kafka, store
        self._random = random.Random(seed)
        self._timers: list[threading.Timer] = []
        self._agent: list[str] = []  # arguments of the agents that start from now on
        self._seen: dict[tuple[int, int], Record] = {}  # the records of the log before a loss, by partition and offset
        self.lossy = False
        self.done: Counter[str] = Counter()
        self.traffic, self.estimator = Traffic(site, seed), Estimator(site)

    @property
    def _living(self) -> list[Worker]:
        return [worker for worker in self.site.workers if worker.process.poll() is None]

    def run(self, operations: Sequence[op.Operation], n_agents: int = 2) -> None:
        """Carries out the list under traffic, waits until all records are counted, and checks the invariant."""
        try:
            self.traffic.start()
            self.estimator.start()
            for _ in range(n_agents):
                self.site.start()
            self.site.until(lambda: self.site.counted() > 0)
            for operation in operations:
                self.done[type(operation).__name__] += 1
                self.lossy |= isinstance(operation, LOSES)
                self._do(operation)
            self._settle()
        finally:
            for timer in self._timers:
                timer.join()
        self.check()
        for worker in self._living:
            worker.stop()
            self.done["agents stopped in order"] += 1
        self.check()
        self.site.check_logs()

    def _settle(self) -> None:
        for timer in self._timers:
            timer.join()
        self.site.until(lambda: self.traffic.sent > ENOUGH)
        self.traffic.finish()
        if not self._living:
            self.site.start(self._agent)
        last = self.site.survey.step_at(now_ms())

        def published() -> bool:
            if self.estimator.error is not None:
                raise self.estimator.error
            return reached(self.estimator.results.progress(), last)

        self.site.until(published)
        self.estimator.finish()
        ends = {record.partition: record.offset + 1 for record in self.site.read(self.site.survey.reports_topic)}
        self.site.until(lambda: all(self.site.store.positions().get(p, 0) >= end for p, end in ends.items()))

    # ---- operations

    def _do(self, what: op.Operation) -> None:
        match what:
            case op.Wait(seconds):
                time.sleep(seconds)
            case op.Produce(partition, n, _):
                self.traffic.produce(n, partition)
            case op.PoisonRecords(partition, reason):
                self.traffic.poison(reason, partition)
            case op.Duplicate(_, n):
                self.traffic.repeat(n)
            case op.AddAgent():
                if len(self._living) < MAX_AGENTS:
                    self._changed()
                    self.site.start(self._agent)
            case op.AgentClock(behind_ms):
                self._agent = ["slow-clock"] if behind_ms else []
            case op.EstimatorClock(ahead_ms):
                self.estimator.ahead_ms = ahead_ms
            case op.Expire(partition, _, blind):
                self._see()
                counted = self.site.store.positions().get(partition % PARTITIONS, 0)
                expire(self._kafka, self.site.survey.reports_topic, partition % PARTITIONS, -1 if blind else counted)
            case op.Remove(partition, n, back):
                self._see()
                remove_batches(self._kafka, self.site.survey.reports_topic, partition % PARTITIONS, n, back)
                self._changed()
            case op.PauseRedis(seconds):
                self._for_a_while(self._redis.pause, self._redis.resume, seconds)
            case op.FlushRedis():
                with redis.Redis.from_url(self._redis.url) as client:
                    client.flushall()
            case op.RestartRedis(lost):
                self._restart_redis(lost)
            case op.BrokerAway(seconds):
                self._for_a_while(self._kafka.pause, self._kafka.resume, seconds)
            case op.RestartBroker():
                self._kafka.kill()
                self._kafka.start()
                self._changed()
            case op.KillAgent(agent) | op.StopAgent(agent) | op.FreezeAgent(agent):
                if self._living:
                    self._do_to_agent(what, self._living[agent % len(self._living)])
            case _:
                raise ValueError(f"{what} does not apply to real processes")

    def _do_to_agent(self, what: op.Operation, worker: Worker) -> None:
        self._changed()
        match what:
            case op.KillAgent():
                worker.kill()
            case op.StopAgent():
                worker.stop()
            case op.FreezeAgent(_, seconds):
                if seconds > SESSION_S:
                    self._changed()  # the agent leaves the group and rejoins
                freeze(worker.process)
                self._later(seconds, lambda: worker.process.send_signal(signal.SIGCONT))

    def _see(self) -> None:
        for record in self.site.read(self.site.survey.reports_topic):
            key = dict(record.headers).get("key", b"")
            self._seen[record.partition, record.offset] = Record(record.offset, record.timestamp, record.value, key)

    def _changed(self) -> None:
        self.done["changes of the group"] += 1

    def _for_a_while(self, begin: Any, end: Any, seconds: float) -> None:
        begin()
        time.sleep(seconds)
        end()

    def _later(self, seconds: float, what: Any) -> None:
        timer = threading.Timer(seconds, what)
        timer.start()
        self._timers.append(timer)

    def _restart_redis(self, lost: int) -> None:
        """Kills Redis and restarts it without the writes of the last `lost` tenths of a second."""
        kept = self._redis.folder / "kept"
        shutil.copytree(self._redis.folder / "appendonlydir", kept)
        time.sleep(lost / 10)
        self._redis.kill()
        if lost:
            shutil.rmtree(self._redis.folder / "appendonlydir")
            kept.rename(self._redis.folder / "appendonlydir")
        else:
            shutil.rmtree(kept)
        self._redis.start()

    # ---- the invariant

    def check(self) -> None:
        """Checks the invariant exactly, and computes the numbers of lost and doubled reports."""
        site = self.site
        self._see()
        found = Counter((partition, record.value) for (partition, _), record in self._seen.items() if record.value)
        if not self.lossy:
            lacking = self.traffic.acknowledged - found
            assert not lacking, f"{lacking.total()} acknowledged records are not in the log"
        ever = self.traffic.records | self._seen
        reports = sum(bool(record.value) for record in ever.values())  # without the markers
        beyond = reports - self.traffic.acknowledged.total()
        assert beyond <= self.traffic.unknown
        logs = {p: [ever[place] for place in sorted(ever) if place[0] == p] for p in range(PARTITIONS)}

        direct = direct_tally(site.survey, list(logs.values()))
        self._check_counts(direct)
        judged = [(p, *found) for p, log in logs.items() for found in judged_in_order(site.survey, log)]
        if not self.lossy:
            assert site.store.rejected() == direct.rejected
            assert site.store.positions() == {p: log[-1].offset + 1 for p, log in logs.items() if log}
        self._check_published(direct)
        self.done["records acknowledged"] = self.traffic.acknowledged.total()
        self.done["reports counted"] = sum(n for n, _ in direct.panes.values())
        self.done["refused"] = sum(direct.rejected.values())
        self.done["duplicates of report keys"] = sum(
            reason == "duplicate" for _, _, reason in judged if isinstance(reason, str)
        )
        self.done["steps published"] = len({p.step for p in self.estimator.told})
        for event, name in EVENTS.items():
            self.done[name] = sum(worker.log.read_text().count(f'"{event}') for worker in site.workers)

    def _check_counts(self, direct: Tallied) -> None:
        stored = {key: numbers_of(table) for key, table in self.site.store.tables(range(10**6)).items()}
        wanted = direct.panes
        if self.lossy:
            lost = {key: counts[0] - stored.get(key, (0, ()))[0] for key, counts in wanted.items()}
            assert stored.keys() <= wanted.keys()
            assert min(lost.values(), default=0) >= 0
            self.done["reports that the log lost before they were counted"] += sum(lost.values())
            return
        for key in wanted.keys() | stored.keys():
            difference = wanted.get(key, (0, ()))[0] - stored.get(key, (0, ()))[0]
            self.done["lost"] += max(0, difference)
            self.done["doubled"] += max(0, -difference)
        assert stored == wanted, (self.done["lost"], self.done["doubled"])

    def _check_published(self, direct: Tallied) -> None:
        """Checks every complete publication. If the log lost nothing, every step with reports has a complete publication."""
        complete = [p for p in self.estimator.told if p.complete]
        for p in complete:
            assert p.counts == truth_of(self.site.survey, direct, p), p.key
        self.done["keys complete"] = len({p.key for p in complete})
        self.done["keys never complete"] = len({p.key for p in self.estimator.told} - {p.key for p in complete})
        if not self.lossy:
            assert {key.step for key in direct.panes} <= {p.step for p in complete}


# key: beginning of a line in the agents' logs; value: name of the event in `done`
EVENTS = {
    "counting": "partitions placed",
    "commit refused": "commits refused",
    "records missing from a delivery": "gaps noticed",
    "trying again": "outages waited out",
}
