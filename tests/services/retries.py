"""Devices that post every envelope several times.

Each device posts one envelope or a batch with one `Idempotency-Key`, to gateways chosen at random, until a gateway accepts the
envelopes. Then the device posts the same body again, once or twice. All envelopes are different.
"""

import http.client
import random
import secrets
import threading
import time
from collections import Counter

import msgspec
import numpy as np

from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey, seal

from .rig import COLLECTS, PATIENCE_S

REPORTS = 16  # of an envelope
RETRY_S = 0.2  # a client waits this long after a refusal
BATCH_OF = 5


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
