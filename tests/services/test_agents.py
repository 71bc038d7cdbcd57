"""Agents as real processes with a real Kafka and a real Redis, and the `Site` that other service tests share."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from agents import Record, tally
from mechanisms import CountTable
from runtime.clock import now_ms
from runtime.settings import Settings
from runtime.topics import TopicError, ensure_topics
from stores import CountStore, PaneKey
from stores.redis_store import RedisCountStore
from surveys import REASONS, Reason, Survey, load_survey
from tests.agents.samples import PANES, sound, spoilt

from .conftest import MakeTopic
from .rig import ENDED_S, PATIENCE_S, free_ports

PARTITIONS = 4
ROOT = Path(__file__).parents[2]
CHANGED = Path(__file__).with_name("changed_agents.py")

SURVEY = """
name = "{name}"
start = {start}
step_seconds = {step_seconds}
window_steps = 3
lateness_steps = 2
skew_seconds = 2
collection = "smp"
[[attribute]]
name = "mode"
values = ["car", "bus", "bicycle", "train", "foot"]
level = [{{ name = "only", mechanism = "L-GRR", eps_inf = 4.0, eps_1 = 2.0 }}]
[[attribute]]
name = "zone"
size = 12
level = [
  {{ name = "standard", mechanism = "L-OSUE", eps_inf = 4.0, eps_1 = 2.0 }},
  {{ name = "cautious", mechanism = "L-OLH", eps_inf = 2.0, eps_1 = 1.0 }},
]
"""


class Worker:
    """An agent as a separate process."""

    def __init__(self, environment: dict[str, str], log: Path, changed: Sequence[str] = ()) -> None:
        self.log = log
        with log.open("ab") as out:
            faust = ["-m", "faust", "-A", "agents.app", "worker", "-l", "warn"]
            command = [sys.executable, *(["-P", str(CHANGED), *changed] if changed else faust)]
            self.process = subprocess.Popen(command, env=environment, cwd=log.parent, stdout=out, stderr=out)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Sends SIGTERM. The agent must end with status 0 within `ENDED_S`."""
        self.process.terminate()
        assert self.process.wait(ENDED_S) == 0, self.log.read_text()


@dataclass
class Site:
    """A survey that has just begun, its topics, and the records sent to these topics."""

    survey: Survey
    settings: Settings
    store: CountStore
    environment: dict[str, str]
    folder: Path
    sent: Counter[Reason | None] = field(default_factory=Counter)
    judged: dict[bytes, tuple[Reason | None, int]] = field(default_factory=dict)  # by record: reject reason (unless late), step
    workers: list[Worker] = field(default_factory=list)

    def start(self, changed: Sequence[str] = (), **environment: str) -> Worker:
        """Starts an agent, or the agent of `changed_agents.py` with these arguments."""
        worker = Worker(self.environment | environment, self.folder / f"agent-{len(self.workers)}.log", changed)
        self.workers.append(worker)
        return worker

    def producer(self, **options: Any) -> KafkaProducer:
        return KafkaProducer(bootstrap_servers=self.settings.kafka, enable_idempotence=True, acks="all", **options)

    def send(self, producer: KafkaProducer, rng: np.random.Generator, n_envelopes: int) -> None:
        """Sends envelopes of the current step to random partitions. One envelope in ten is spoilt in a random way."""
        for _ in range(n_envelopes):
            step, reason = self.survey.step_at(now_ms()), None
            if rng.random() < 0.1:
                reason = REASONS[int(rng.integers(len(REASONS) - 1))]  # not "too large": the broker refuses it
                value = spoilt(self.survey, rng, step, reason)
            else:
                value = sound(self.survey, rng, step, int(rng.integers(len(PANES))), int(rng.integers(1, 20)))
            producer.send(self.survey.reports_topic, value, partition=int(rng.integers(PARTITIONS)))
            self.sent[reason] += 1
            self.judged[value] = reason, step
        producer.flush(timeout=PATIENCE_S)

    @property
    def n_sent(self) -> int:
        return self.sent.total()

    def counted(self) -> int:
        """Number of records below the stored offsets."""
        return sum(self.store.positions().values())

    def until(self, reached: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Waits until `reached` is true; fails after `seconds` seconds."""
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline:
                logs = "\n".join(worker.log.read_text()[-3000:] for worker in self.workers)
                pytest.fail(f"not within {seconds} s: {self.counted()} of {self.n_sent} counted\n{logs}")
            time.sleep(0.05)

    def read(self, topic: str) -> Iterator[Any]:
        """Yields all records of a topic."""
        with KafkaConsumer(bootstrap_servers=self.settings.kafka) as consumer:
            partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(p) < ends[p] for p in partitions):
                for records in consumer.poll(timeout_ms=500).values():
                    yield from records

    def group_offsets(self) -> dict[int, int]:
        """Offsets that the consumer group has committed, by partition."""
        group = f"ldpstream-{self.survey.name}-{self.survey.fingerprint.hex()}"
        with KafkaConsumer(bootstrap_servers=self.settings.kafka, group_id=group, enable_auto_commit=False) as consumer:
            found = {p: consumer.committed(TopicPartition(self.survey.reports_topic, p)) for p in range(PARTITIONS)}
        return {p: offset for p, offset in found.items() if offset is not None}

    def reason(self, record: Record) -> Reason | None:
        """The reason why agents must reject a sent record. On a slow machine the record may have been appended too late."""
        reason, step = self.judged[record.value]
        late = record.appended_ms >= self.survey.closes_ms(step)
        return "step too old" if late and reason in (None, "symbol out of range", "padding bits set") else reason

    def check(self) -> None:
        """Checks that the store equals a direct tally of the log, and that the log holds all records sent."""
        logs: dict[int, list[Record]] = {p: [] for p in range(PARTITIONS)}
        for record in self.read(self.survey.reports_topic):
            logs[record.partition].append(Record(record.offset, record.timestamp, record.value))
        counts: dict[PaneKey, CountTable] = {}
        letters: set[tuple[int, int, str, bytes]] = set()
        for partition, log in logs.items():
            added = tally(self.survey, log)
            for key, table in added.counts.items():
                counts[key] = counts[key] + table if key in counts else table
            values = {record.offset: record.value for record in log}
            letters |= {(partition, offset, reason, values[offset]) for offset, reason in added.rejected}
        rejected = Counter(reason for _, _, reason, _ in letters)
        wanted = Counter(self.reason(record) for log in logs.values() for record in log)
        assert wanted.total() == self.n_sent
        assert rejected == {reason: n for reason, n in wanted.items() if reason is not None}
        assert self.store.tables(range(10_000)) == counts
        assert self.store.rejected() == rejected
        assert self.store.positions() == {p: log[-1].offset + 1 for p, log in logs.items() if log}
        self.until(lambda: self.group_offsets() == self.store.positions())
        found = [(dict(letter.headers), letter.value) for letter in self.read(self.survey.rejected_topic)]
        as_set = {(int(h["partition"]), int(h["offset"]), h["reason"].decode(), value) for h, value in found}
        assert as_set == letters

    def check_logs(self) -> None:
        """Checks that the agents log no content of reports and no tracebacks."""
        for worker in self.workers:
            for line in worker.log.read_text().splitlines():
                logger = json.loads(line).get("logger", "") if line.startswith("{") else ""
                assert "not msgpack" not in line
                if not logger.startswith(("kafka", "aiokafka")):  # both libraries log tracebacks if a broker is unreachable
                    assert "Traceback" not in line, worker.log.read_text()


def new_site(folder: Path, kafka: str, url: str, step_seconds: int = 2) -> Site:
    """Creates a survey that begins now, with topics in the given Kafka and counts in the given Redis."""
    file = folder / "survey.toml"
    start = datetime.now(UTC).replace(microsecond=0).isoformat()
    file.write_text(SURVEY.format(name=f"s{time.time_ns()}", start=start, step_seconds=step_seconds))
    named = {"LDPSTREAM_KAFKA": kafka, "LDPSTREAM_REDIS": url, "LDPSTREAM_SURVEY": str(file)}
    environment = os.environ | named | {"PYTHONPATH": str(ROOT), "LDPSTREAM_COMMIT_INTERVAL_MS": "200"}
    survey = load_survey(file)
    settings = Settings(kafka=kafka, redis=url, partitions=PARTITIONS)
    ensure_topics(settings, survey)
    return Site(survey, settings, RedisCountStore(survey, settings), environment, folder)


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[[str, str], Site]]:
    """Creates sites (see `new_site`) and kills their agents at the end."""
    sites: list[Site] = []

    def make(kafka: str, url: str, step_seconds: int = 2) -> Site:
        sites.append(new_site(tmp_path, kafka, url, step_seconds))
        return sites[-1]

    yield make
    for site in sites:
        for worker in site.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()


def test_a_stopping_agent_commits_and_counts_transactions(
    kafka: str, redis_url: str, make_site: Callable[[str, str], Site]
) -> None:
    site = make_site(kafka, redis_url)
    rng, port = np.random.default_rng(1), free_ports(1)[0]
    with site.producer() as producer:
        site.send(producer, rng, 200)
    with site.producer(transactional_id=site.survey.name) as producer:
        producer.init_transactions()
        for end in (
            producer.commit_transaction,
            producer.abort_transaction,
        ):  # reports of committed and of aborted transactions are counted
            producer.begin_transaction()
            site.send(producer, rng, 20)
            end()
    with site.producer() as producer:
        site.send(producer, rng, 200)
    worker = site.start(LDPSTREAM_COMMIT_INTERVAL_MS="60000", LDPSTREAM_METRICS_PORT=str(port))

    def get(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            error.close()
            return str(error.code)
        except OSError:
            return ""

    site.until(lambda: f"ldpstream_records_total {site.n_sent:.1f}" in get("/metrics"))
    assert get("/ready") == "ok\n"
    assert get("/nowhere") == "404"
    assert site.counted() < site.n_sent
    worker.stop()
    site.check()
    site.check_logs()


class _NotUtf8(str):
    """A header name that our client library cannot encode; other clients send such names."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff"


def test_unreadable_batches_do_not_stop_an_agent(kafka: str, redis_url: str, make_site: Callable[[str, str], Site]) -> None:
    """The broker accepts a batch of 40 MB in 40 kB, and a header name that is not UTF-8. Sound gzip batches are counted."""
    site = make_site(kafka, redis_url)
    rng, topic = np.random.default_rng(1), site.survey.reports_topic
    with site.producer(compression_type="gzip") as producer:
        site.send(producer, rng, 200)
    with site.producer(compression_type="gzip", batch_size=10**8, linger_ms=3000, max_request_size=10**8) as producer:
        large = [producer.send(topic, bytes(10**6), partition=1) for _ in range(40)]
        producer.flush(timeout=PATIENCE_S)
    assert len({future.get().offset for future in large}) == 40
    with site.producer() as producer:
        producer.send(topic, b"x", partition=2, headers=[(_NotUtf8("name"), b"x")]).get()
        site.send(producer, rng, 200)
    worker = site.start()
    site.until(lambda: site.counted() == site.n_sent + 41)
    worker.stop()
    letters = [(dict(x.headers), x.value) for x in site.read(site.survey.rejected_topic)]
    (bomb,) = (value for h, value in letters if h["records"] == b"40" and h["partition"] == b"1")
    assert len(bomb) < 60_000
    assert {h["records"] for h, _ in letters} == {b"1", b"40"}
    assert site.store.rejected()["too large"] == 40
    assert sum(table.n for table in site.store.tables(range(10_000)).values()) > 1000
    site.check_logs()


def test_topics_are_created_once_with_all_partitions(kafka: str, redis_url: str, make_site: Callable[[str, str], Site]) -> None:
    site = make_site(kafka, redis_url)
    ensure_topics(site.settings, site.survey)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        topics = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
    assert topics[site.survey.reports_topic] == PARTITIONS
    assert topics[site.survey.rejected_topic] == topics[site.survey.estimates_topic] == 1


def test_a_reports_topic_with_producer_time_stamps_is_refused(kafka: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(**{"message.timestamp.type": "CreateTime"})
    file = tmp_path / "survey.toml"
    file.write_text(SURVEY.format(name="refused", start="2026-01-05T00:00:00Z", step_seconds=2))
    survey = load_survey(file)
    object.__setattr__(survey, "name", topic)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        options = {"num_partitions": 1, "replication_factor": 1, "configs": {"message.timestamp.type": "CreateTime"}}
        admin.create_topics({survey.reports_topic: options}, wait_for_metadata=True)
    with pytest.raises(TopicError, match=r"message\.timestamp\.type=LogAppendTime, got CreateTime"):
        ensure_topics(Settings(kafka=kafka), survey)
