"""Isolated surveys on a real Kafka and a real Redis, with a random name and separate topics, keys and processes."""

import json
import logging
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove

from deploy.local.children import start_child
from deploy.local.ports import free_ports
from lab.bench.service_survey import Asked, write_survey
from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey

T = TypeVar("T")
P = TypeVar("P", bound="Process")

PATIENCE_S = 600.0
POLL_S = 0.02
END_S = 20.0


class BenchError(RuntimeError):
    pass


class Process:
    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.name, self._log = " ".join((module, *arguments[:1])), log
        with log.open("wb") as err:
            command = [sys.executable, "-m", module, *arguments]
            self._process = start_child(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=err)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cpu_s(self) -> float | None:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def peak_mib(self) -> float | None:
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) / 2**10 for line in lines if line.startswith("VmHWM:")), None)

    def placed_s(self) -> list[float]:
        lines = self._log.read_text(errors="replace").splitlines()
        told = [json.loads(line) for line in lines if '"event": "counting"' in line]
        return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in told]

    def check(self) -> None:
        if self._process.poll() is not None:
            raise self.failed(f"ended with status {self._process.returncode}")

    def failed(self, what: str) -> BenchError:
        tail = self._log.read_text(errors="replace").strip().splitlines()[-5:]
        return BenchError("\n".join((f"{self.name} {what}", *tail)))

    def answer(self, patience_s: float = PATIENCE_S) -> Any:
        try:
            out, _ = self._process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end within {patience_s:g} s") from None
        try:
            return json.loads(out)
        except ValueError:
            raise self.failed(f"ended with status {self._process.returncode}") from None

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def tell_to_end(self) -> None:
        self._process.terminate()

    def stop(self) -> None:
        self.tell_to_end()
        try:
            self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Agent(Process):
    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        [self.port] = free_ports(1)
        served = {"LDPSTREAM_METRICS_PORT": str(self.port), "LDPSTREAM_METRICS_HOST": "127.0.0.1"}
        super().__init__(module, arguments, environment | served, log)

    def partitions(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=2):
                pass
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as page:
                lines = page.read().decode().splitlines()
        except OSError:
            return 0
        return int(float(next(line for line in lines if line.startswith("ldpstream_partitions ")).split()[1]))


class BaseSite:
    patience_s = PATIENCE_S  # longest wait of `until`

    def __init__(self, settings: Settings, folder: Path, name: str, surveys: list[Survey], partitions: int) -> None:
        self.partitions, self.surveys = partitions, surveys
        self.settings = settings.model_copy(update={"partitions": partitions})
        self._folder, self._name = folder, name
        self.redis = connect(settings, timeout_s=10)
        self._processes: list[Process] = []
        RedisCountStore(surveys[0], self.redis).positions()  # raises here if Redis cannot be used
        for survey in surveys:
            ensure_topics(self.settings, survey)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def started(self, kind: type[P], module: str, *arguments: str, **environment: str) -> P:
        ports = {"LDPSTREAM_PAGE_PORT": "0", "LDPSTREAM_METRICS_PORT": "0"}
        common = ports | {"LDPSTREAM_PARTITIONS": str(self.partitions), "LDPSTREAM_LOG_LEVEL": "info"}
        log = self._folder / f"{self._name}-{len(self._processes)}.log"
        process = kind(module, list(arguments), common | environment, log)
        self._processes.append(process)
        return process

    def until(self, condition: Callable[[], T], processes: Sequence[Process], what: str, poll_s: float = POLL_S) -> T:
        """Waits until the condition returns a true value, and returns this value.

        Raises:
            BenchError: if a process ends during the wait, or if the wait exceeds `patience_s`.
        """
        deadline = time.monotonic() + self.patience_s
        while not (found := condition()):
            for process in processes:
                process.check()
            if time.monotonic() > deadline:
                raise (processes[0].failed if processes else BenchError)(f"{what}: not within {self.patience_s:g} s")
            time.sleep(poll_s)
        return found

    def forget(self) -> None:
        for key in self.redis.scan_iter(match=f"ldpstream:*{self._name}*", count=1000):
            self.redis.delete(key)

    def close(self) -> None:
        for process in self._processes:
            process.tell_to_end()
        for process in self._processes:
            process.stop()
        self.forget()
        self.redis.close()
        topics = {topic for s in self.surveys for topic in (s.reports_topic, s.survey_topic, s.estimates_topic)}
        with _administrator(self.settings) as admin:
            admin.delete_topics(sorted(topics & set(admin.list_topics())))
            groups = [group["group_id"] for group in admin.list_groups() if self._name in group["group_id"]]
            for group in groups:  # a killed process stays a group member for a while
                members = admin.describe_groups([group])[group]["members"]
                admin.remove_group_members(group, [MemberToRemove(member["member_id"]) for member in members])
            admin.delete_groups(groups)


class Site(BaseSite):
    def __init__(
        self, settings: Settings, folder: Path, step_seconds: int, attributes: tuple[Asked, ...], partitions: int
    ) -> None:
        name = random_name()
        self.file = folder / f"{name}.toml"
        self.survey = write_survey(self.file, name, step_seconds, attributes)
        super().__init__(settings, folder, name, [self.survey], partitions)
        self.store = RedisCountStore(self.survey, self.redis)
        self.results = KeptResults(self.survey, RedisResults(self.survey, self.redis))

    def agent(self) -> Agent:
        return self.started(Agent, "ldpstream", "agent", str(self.file))

    def estimator(self) -> Process:
        return self.started(Process, "ldpstream", "estimate", str(self.file))

    def gateway(self, **environment: str) -> Process:
        return self.started(Process, "ldpstream", "gateway", str(self.file), **environment)

    def profiled_agent(self, out: Path) -> Agent:
        return self.started(Agent, "lab.bench.profiled_agent", str(self.file), str(out))

    def reader(self, module: str, records: int) -> Process:
        return self.started(Process, module, self.survey.reports_topic, str(records), str(self._folder / "reader"))

    def counted(self) -> int:
        return sum(self.store.positions().values())


def random_name() -> str:
    return f"bench-{secrets.token_hex(6)}"


@contextmanager
def _administrator(settings: Settings) -> Iterator[Any]:
    library = logging.getLogger("kafka")
    level = library.level
    library.setLevel(logging.CRITICAL)
    try:
        with KafkaAdminClient(**settings.kafka_options()) as admin:
            yield admin
    finally:
        library.setLevel(level)
