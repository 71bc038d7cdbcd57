"""Measures the gateway's processor time for a request, user and system, beside servers that answer without any work."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from deploy.local.children import start_child
from deploy.local.ports import free_ports
from lab.bench.gateway_load import TOKEN
from lab.bench.service_site import BenchError, Process, Site
from lab.bench.service_survey import ATTRIBUTES, SEED, random_reports
from ldpstream.gateway.http.bodies import BATCH as BATCH_KIND
from ldpstream.gateway.http.bodies import ENVELOPE
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey, seal

PARTITIONS, BATCH, POOL = 8, 100, 2000
DAY_S = 86_400
WARM_UP_S = 2.0
NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; location / {{ return 202; }} }}
}}
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    seconds: float
    connections: int


FULL = Sizes(8.0, 200)
QUICK = Sizes(0.5, 10)


@dataclass(frozen=True, slots=True)
class Served:
    server: str
    requests: int
    reports: int
    seconds: float
    cpu_s: float
    p50_ms: float
    p99_ms: float

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.cpu_s / self.requests


@dataclass(slots=True)
class GatewayBench:
    served: list[Served] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def bench(settings: Settings, sizes: Sizes, seen: Callable[[str], None] = lambda _: None) -> GatewayBench:
    result = GatewayBench()
    with TemporaryDirectory(prefix="ldpstream-bench-") as place:
        folder = Path(place)
        with Site(settings, folder, DAY_S, ATTRIBUTES, PARTITIONS) as site:
            single, batches = bodies(site.survey, folder)
            with running_gateway(site, folder) as (process, port):
                seen("the gateway, one report a request")
                result.served.append(measure("gateway", process.pid, port, sizes, ENVELOPE, single, 1))
                seen(f"the gateway, batches of {BATCH}")
                result.served.append(measure("gateway, batches", process.pid, port, sizes, BATCH_KIND, batches, BATCH))
        for name, command in _others().items():
            if shutil.which(command[0]) is None:
                result.missing.append(name)
                continue
            seen(name)
            [port] = free_ports(1)
            with _running([part.format(folder=folder, port=port) for part in command], folder, port) as pid:
                result.served.append(measure(name, pid, port, sizes, ENVELOPE, single, 1))
    return result


def _others() -> dict[str, list[str]]:
    endpoint, options = "lab.bench.empty_endpoint", ["--host", "127.0.0.1", "--port", "{port}"]
    uvicorn = ["-m", "uvicorn", f"{endpoint}:asgi", *options, "--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    return {
        "uvicorn, Starlette": [sys.executable, *uvicorn],
        "granian": ["granian", "--interface", "rsgi", f"{endpoint}:rsgi", *options, "--loop", "uvloop"],
        "nginx, return 202": ["nginx", "-c", "{folder}/nginx.conf"],
    }


def bodies(survey: Survey, folder: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(SEED)
    reports = random_reports(survey, 0, POOL, rng)
    envelopes = [seal(survey, 0, 0, 0, reports[index : index + 1]) for index in range(POOL)]
    batches = [msgspec.msgpack.encode(envelopes[first : first + BATCH]) for first in range(0, POOL, BATCH)]
    single, many = folder / "single", folder / "batches"
    single.write_bytes(msgspec.msgpack.encode(envelopes))
    many.write_bytes(msgspec.msgpack.encode(batches))
    return single, many


@contextmanager
def running_gateway(site: Site, folder: Path) -> Iterator[tuple[Process, int]]:
    tokens, [port] = folder / "tokens", free_ports(1)
    tokens.write_text(f"another-{TOKEN}\ncollector {TOKEN}\n")
    given = {"LDPSTREAM_GATEWAY_PORT": str(port), "LDPSTREAM_GATEWAY_TOKENS_FILE": str(tokens)}
    process = site.gateway(**given, LDPSTREAM_GATEWAY_RATE="1e9", LDPSTREAM_GATEWAY_CONNECTIONS="100000")
    site.until(lambda: answers(port), [process], "the gateway is ready")
    yield process, port
    process.stop()


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            return connection.recv(65536).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


@contextmanager
def _running(command: list[str], folder: Path, port: int) -> Iterator[int]:
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    with start_child(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=2).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise BenchError(f"{command[0]} does not accept connections") from None
                    time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()


def measure(name: str, pid: int, port: int, sizes: Sizes, kind: str, file: Path, reports: int) -> Served:
    load(port, sizes.connections, min(WARM_UP_S, sizes.seconds), kind, file)
    before = _cpu_s(pid)
    told = load(port, sizes.connections, sizes.seconds, kind, file)
    cpu_s = _cpu_s(pid) - before
    if set(told["statuses"]) != {"202"} or told["closed"]:
        raise BenchError(f"{name}: answers by status {told['statuses']}, {told['closed']} connections closed")
    return Served(name, told["statuses"]["202"], reports, told["seconds"], cpu_s, told["p50_ms"], told["p99_ms"])


def load(port: int, connections: int, seconds: float, kind: str, file: Path) -> dict[str, Any]:
    command = ["-m", "lab.bench.gateway_load", str(port), str(connections), str(seconds), kind, str(file)]
    done = subprocess.run([sys.executable, *command], capture_output=True, check=False)
    if done.returncode:
        raise BenchError(f"the load generator ended with status {done.returncode}\n{done.stderr.decode()[-1000:]}")
    told: dict[str, Any] = msgspec.json.decode(done.stdout)
    return told


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(_cpu_s(int(child)) for child in children)
