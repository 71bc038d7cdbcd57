"""A survey on a real Kafka and a real Redis, with agents as real processes; many service tests share it."""

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from deploy.local.children import start_child
from ldpstream.agents import Record, tally
from ldpstream.engines import CountStore, PaneKey
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import ensure_topics, group_id
from ldpstream.mechanisms import CountTable
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import REASONS, Reason, Survey, load_survey
from tests.agents.samples import PANES, sound, spoilt

from .rig import ENDED_S, PATIENCE_S, STOPPED, patiently, read_records, wait_until

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
ends = 1_000_000
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
            faust = ["-m", "faust", "-A", "ldpstream.agents.app", "worker", "-l", "warn"]
            command = [sys.executable, *(["-P", str(CHANGED), *changed] if changed else faust)]
            self.process = start_child(command, env=environment, cwd=log.parent, stdout=out, stderr=out)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Sends SIGTERM. The agent must end within `ENDED_S`, with a status of `STOPPED`.

        An agent whose log is empty is still loading, and has no handler of the signal yet.
        """
        loading = not self.log.stat().st_size
        self.process.terminate()
        ended = self.process.wait(ENDED_S)
        assert ended in STOPPED or (loading and ended == -signal.SIGTERM), (ended, self.log.read_text())


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

    def until(self, reached: Callable[[], bool]) -> None:
        """Waits as `wait_until`."""

        def what() -> str:
            logs = "\n".join(worker.log.read_text()[-3000:] for worker in self.workers)
            return f"{self.counted()} of {self.n_sent} counted\n{logs}"

        wait_until(reached, what)

    def read(self, topic: str) -> list[Any]:
        return read_records(self.settings.kafka, topic)

    @property
    def group(self) -> str:
        return group_id(self.survey)

    def group_offsets(self) -> dict[int, int]:
        """Offsets that the consumer group has committed, by partition."""
        with KafkaConsumer(bootstrap_servers=self.settings.kafka, group_id=self.group, enable_auto_commit=False) as consumer:
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
        rejected: Counter[str] = Counter()
        for log in logs.values():
            added = tally(self.survey, log)
            for key, table in added.counts.items():
                counts[key] = counts[key] + table if key in counts else table
            rejected.update(reason for _, reason in added.rejected)
        wanted = Counter(self.reason(record) for log in logs.values() for record in log)
        assert wanted.total() == self.n_sent
        assert rejected == {reason: n for reason, n in wanted.items() if reason is not None}
        assert self.store.tables(range(10_000)) == counts
        assert self.store.rejected() == rejected
        assert self.store.positions() == {p: log[-1].offset + 1 for p, log in logs.items() if log}
        self.until(lambda: self.group_offsets() == self.store.positions())

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
    environment = os.environ | named | {"PYTHONPATH": str(ROOT)}
    survey = load_survey(file)
    settings = Settings(kafka=kafka, redis=url, partitions=PARTITIONS)
    patiently(lambda: ensure_topics(settings, survey))
    return Site(survey, settings, RedisCountStore(survey, connect(settings)), environment, folder)


class MakeSite(Protocol):
    """The fixture `make_site`: creates a site in the given Kafka and Redis."""

    def __call__(self, kafka: str, url: str, step_seconds: int = 2) -> Site: ...
