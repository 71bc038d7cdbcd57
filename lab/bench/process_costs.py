"""Memory and connections of processes, read from `/proc` (Linux only)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ldpstream.runtime.settings import Settings

ESTABLISHED = "01"  # state of a connection in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class ProcessCosts:
    """Memory in MiB, and connections."""

    resident_mib: float = 0.0
    kafka_connections: int = 0
    redis_connections: int = 0

    @classmethod
    def of(cls, pids: Iterable[int], settings: Settings) -> Self:
        kafka, redis = kafka_ports(settings), redis_ports(settings)
        resident = 0.0
        to_kafka = to_redis = 0
        for pid in pids:
            resident += _numbers(Path(f"/proc/{pid}/smaps_rollup"))["Rss"] / 2**10
            ports = list(remote_ports(pid))
            to_kafka += sum(port in kafka for port in ports)
            to_redis += sum(port in redis for port in ports)
        return cls(resident, to_kafka, to_redis)


def kafka_ports(settings: Settings) -> set[int]:
    return {int(address.rpartition(":")[2]) for address in settings.kafka.split(",")}


def redis_ports(settings: Settings) -> set[int]:
    return {settings.redis_url().port}


def remote_ports(pid: int) -> Iterable[int]:
    links = [link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == ESTABLISHED and fields[9] in sockets:
                yield int(fields[2].rpartition(":")[2], 16)


def _numbers(file: Path) -> dict[str, int]:
    found = (line.partition(":") for line in file.read_text().splitlines())
    return {name: int(text.split()[0]) for name, _, text in found if text.split()[:1] and text.split()[0].isdigit()}
