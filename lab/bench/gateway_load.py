"""The load generator of `bench gateway`: each connection posts its next request after the answer to the last one.

python -m lab.bench.gateway_load PORT CONNECTIONS SECONDS KIND FILE
"""

import asyncio
import contextlib
import json
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import uvloop

TOKEN = "token-of-the-gateway-benchmark"
ANSWER_S = 30.0
RETRY_S = 1.0


class Load:
    def __init__(self, bodies: list[bytes], kind: str) -> None:
        head = f"POST /v1/reports HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: {kind}\r\n"
        self._heads = [head.encode() + b"content-length: %d\r\nidempotency-key: " % len(body) for body in bodies]
        self._bodies = bodies
        self._salt = secrets.token_urlsafe(12).encode()
        self._next = 0
        self.over = False
        self.statuses: Counter[int] = Counter()
        self.took_s: list[float] = []
        self.closed = 0

    def request(self) -> bytes:
        self._next = number = self._next + 1
        index = number % len(self._bodies)
        return b"%b%b%016d\r\n\r\n%b" % (self._heads[index], self._salt, number, self._bodies[index])


class Connection(asyncio.Protocol):
    def __init__(self, load: Load) -> None:
        self._load, self._received, self._began = load, b"", 0.0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._post()

    def _post(self) -> None:
        if self._load.over:
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(self._load.request())

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, gap, body = self._received.partition(b"\r\n\r\n")
        if not gap:
            return
        _, _, length = head.lower().partition(b"\r\ncontent-length:")
        if len(body) < int(length.split(b"\r\n", 1)[0] or 0):
            return
        self._load.statuses[int(self._received[9:12])] += 1
        self._load.took_s.append(time.perf_counter() - self._began)
        self._received = b""
        self._post()

    def connection_lost(self, error: Exception | None) -> None:
        self._load.closed += not self._load.over
        self.ended.set_result(None)


async def keep_open(port: int, load: Load) -> None:
    loop = asyncio.get_running_loop()
    while not load.over:
        with contextlib.suppress(OSError):
            _, connection = await loop.create_connection(lambda: Connection(load), "127.0.0.1", port)
            await connection.ended
        await asyncio.sleep(RETRY_S)


async def run(port: int, connections: int, seconds: float, load: Load) -> dict[str, object]:
    began = time.perf_counter()
    kept = [asyncio.create_task(keep_open(port, load)) for _ in range(connections)]
    await asyncio.sleep(seconds)
    load.over = True
    closed = load.closed
    await asyncio.wait(kept, timeout=ANSWER_S)
    p50, p99 = np.percentile(load.took_s or [0.0], [50, 99]) * 1000
    took = time.perf_counter() - began - RETRY_S
    return {"seconds": took, "statuses": dict(load.statuses), "closed": closed, "p50_ms": p50, "p99_ms": p99}


def main(port: str, connections: str, seconds: str, kind: str, file: str) -> None:
    bodies = msgspec.msgpack.decode(Path(file).read_bytes(), type=list[bytes])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(run(int(port), int(connections), float(seconds), Load(bodies, kind)))
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
