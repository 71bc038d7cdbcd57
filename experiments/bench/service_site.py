"""An isolated survey on a real Kafka and a real Redis, with a random name and separate topics, keys and processes.

A site neither reads nor writes data of other surveys. `Site.close` deletes everything that the site created.
"""

import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove

from estimators.publishing.results import RedisResults
from experiments.bench.service_load import Asked, write_survey
from runtime.settings import Settings
from runtime.topics import ensure_topics
from stores.redis_connection import connect
from stores.redis_store import RedisCountStore

T = TypeVar("T")
P = TypeVar("P", bound="Process")

PATIENCE_S = 120.0
POLL_S = 0.02
END_S = 20.0


class BenchError(RuntimeError):
    """A process ended or stalled; the message's first line names the process, and the end of the process's log follows."""


class Process:
    """A Python module in a separate process.

    Args:
        module: the module to run with ``python -m``.
        arguments: the module's arguments.
        environment: variables added to this process's environment.
        log: file for the process's standard error.
    """

    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.name, self._log = " ".join((module, *arguments[:1])), log
        with log.open("wb") as err:
            command = [sys.executable, "-m", module, *arguments]
            self._process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=err)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def cpu_s(self) -> float | None:
        """Processor seconds so far, of all threads; None if the system does not report processor seconds (not Linux)."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def peak_mib(self) -> float | None:
        """Peak resident memory so far, in MiB; None if the system does not report the memory."""
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) / 2**10 for line in lines if line.startswith("VmHWM:")), None)

    def placed_s(self) -> list[float]:
        """The times at which an agent began to read each partition, in seconds since 1970, according to the agent's log."""
        lines = self._log.read_text(errors="replace").splitlines()
        told = [json.loads(line) for line in lines if '"event": "counting"' in line]
        return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in told]

    def check(self) -> None:
        """Raise BenchError if the process has ended."""
        if self._process.poll() is not None:
            raise self.failed(f"ended with status {self._process.returncode}")

    def failed(self, what: str) -> BenchError:
        """The error for this failure, with the end of the log."""
        tail = self._log.read_text(errors="replace").strip().splitlines()[-5:]
        return BenchError("\n".join((f"{self.name} {what}", *tail)))

    def answer(self) -> Any:
        """The JSON that the process prints before it ends."""
        try:
            out, _ = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end within {PATIENCE_S:g} s") from None
        try:
            return json.loads(out)
        except ValueError:
            raise self.failed(f"ended with status {self._process.returncode}") from None

    def kill(self) -> None:
        """Send SIGKILL if the process still runs, and wait for its end."""
        self._process.kill()
        self._process.communicate()

    def tell_to_end(self) -> None:
        """Send SIGTERM if the process still runs."""
        self._process.terminate()

    def stop(self) -> None:
        """Send SIGTERM and wait for the process's end; after 20 s send SIGKILL."""
        self.tell_to_end()
        try:
            self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Agent(Process):
    """A process of `ldpstream agent`, or of the agent that profiles itself."""

    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        served = {"LDPSTREAM_METRICS_PORT": str(self._port), "LDPSTREAM_METRICS_HOST": "127.0.0.1"}
        super().__init__(module, arguments, environment | served, log)

    def partitions(self) -> int:
        """Number of partitions that the agent counts; 0 while the agent is not ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/ready", timeout=2):
                pass
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=2) as page:
                lines = page.read().decode().splitlines()
        except OSError:
            return 0
        return int(float(next(line for line in lines if line.startswith("ldpstream_partitions ")).split()[1]))


class Site:
    """A new survey with its topics; close the site after use.

    Args:
        settings: addresses of Kafka and Redis, and how to log in.
        folder: an existing folder for files.
        step_seconds, attributes: the survey's step and attributes.
        partitions: number of partitions of the survey's reports topic.

    Raises:
        TopicError: if the broker cannot be used.
        StoreUnavailable: if Redis cannot be used.
    """

    def __init__(
        self, settings: Settings, folder: Path, step_seconds: int, attributes: tuple[Asked, ...], partitions: int
    ) -> None:
        self.partitions = partitions
        self.settings = settings.model_copy(update={"partitions": partitions})
        name = f"bench-{secrets.token_hex(6)}"
        self._folder, self.file = folder, folder / f"{name}.toml"
        self.survey = write_survey(self.file, name, step_seconds, attributes)
        self.store, self.redis = RedisCountStore(self.survey, settings), connect(settings, timeout_s=10)
        self.results = RedisResults(self.survey, self.redis)
        self._processes: list[Process] = []
        self.store.positions()  # raises here if Redis cannot be used
        ensure_topics(self.settings, self.survey)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def agent(self) -> Agent:
        """Start `ldpstream agent`."""
        return self._started(Agent, "ldpstream", "agent", str(self.file))

    def estimator(self) -> Process:
        """Start `ldpstream estimate`."""
        return self._started(Process, "ldpstream", "estimate", str(self.file))

    def gateway(self, **environment: str) -> Process:
        """Start `ldpstream gateway` with further settings."""
        return self._started(Process, "ldpstream", "gateway", str(self.file), **environment)

    def profiled_agent(self, out: Path, commit_interval_ms: int) -> Agent:
        """Start `experiments.bench.profiled_agent`."""
        interval = {"LDPSTREAM_COMMIT_INTERVAL_MS": str(commit_interval_ms)}
        return self._started(Agent, "experiments.bench.profiled_agent", str(self.file), str(out), **interval)

    def reader(self, module: str, records: int) -> Process:
        """Start a module that reads this many records of the reports topic."""
        return self._started(Process, module, self.survey.reports_topic, str(records), str(self._folder / "reader"))

    def _started(self, kind: type[P], module: str, *arguments: str, **environment: str) -> P:
        ports = {"LDPSTREAM_PAGE_PORT": "0", "LDPSTREAM_METRICS_PORT": "0"}
        common = ports | {"LDPSTREAM_PARTITIONS": str(self.partitions), "LDPSTREAM_LOG_LEVEL": "info"}
        log = self._folder / f"{self.survey.name}-{len(self._processes)}.log"
        process = kind(module, list(arguments), common | environment, log)
        self._processes.append(process)
        return process

    def counted(self) -> int:
        """Number of records below the offsets in the count store."""
        return sum(self.store.positions().values())

    def until(self, condition: Callable[[], T], processes: list[Process], what: str) -> T:
        """Wait until the condition returns a true value, and return this value.

        Raises:
            BenchError: if a process ends during the wait, or if the wait exceeds two minutes.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            for process in processes:
                process.check()
            if time.monotonic() > deadline:
                raise (processes[0].failed if processes else BenchError)(f"{what}: not within {PATIENCE_S:g} s")
            time.sleep(POLL_S)
        return found

    def forget(self) -> None:
        """Delete all keys of the survey in Redis; agents then count the log again from its beginning."""
        for key in self.redis.scan_iter(match=f"ldpstream:*{self.survey.name}*", count=1000):
            self.redis.delete(key)

    def close(self) -> None:
        """End the processes, delete keys, topics and consumer groups."""
        for process in self._processes:
            process.tell_to_end()
        for process in self._processes:
            process.stop()
        self.forget()
        self.redis.close()
        self.store.close()
        topics = {self.survey.reports_topic, self.survey.rejected_topic, self.survey.estimates_topic}
        with _administrator(self.settings) as admin:
            admin.delete_topics(sorted(topics & set(admin.list_topics())))
            groups = [group["group_id"] for group in admin.list_groups() if self.survey.name in group["group_id"]]
            for group in groups:  # a killed process stays a group member for a while
                members = admin.describe_groups([group])[group]["members"]
                admin.remove_group_members(group, [MemberToRemove(member["member_id"]) for member in members])
            admin.delete_groups(groups)


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
