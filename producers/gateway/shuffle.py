"""Hides from readers of the log when, and in which order, requests arrived through a relay.

The shuffle holds all requests of `BATCH_S` seconds, and then hands them over in random order. These moments are fixed by the
clock: they do not depend on the requests. So the order within a batch is independent of the order of arrival, and the append
time in the log tells the batch, and nothing finer. The device gets its answer after the append. The shuffle holds the answers,
too: in the order of the log, they would tell the order of the log to somebody who sees them leave. If the process dies
meanwhile, the device gets no answer, and sends its report again.

The gateway's process itself sees each request when it arrives. So does somebody who watches the network.
"""

import asyncio
import secrets
from collections.abc import Callable

import structlog

log = structlog.get_logger("ldpstream.gateway")

BATCH_S = 0.5

_random = secrets.SystemRandom()


class Shuffle:
    """Holds requests, and releases them in batches. Use it in one event loop.

    Args:
        batch_s: length of a batch, in seconds.
        order: puts a list into another order; cryptographically random by default.
    """

    def __init__(self, batch_s: float = BATCH_S, order: Callable[[list[Callable[[], None]]], None] = _random.shuffle) -> None:
        self._batch_s, self._order = batch_s, order
        self._held: list[Callable[[], None]] = []

    def hold(self, release: Callable[[], None]) -> None:
        """Holds a request until the end of the present batch.

        Args:
            release: called once, to hand the request over.
        """
        if not self._held:
            loop = asyncio.get_running_loop()
            loop.call_at((loop.time() // self._batch_s + 1) * self._batch_s, self._release)
        self._held.append(release)

    def _release(self) -> None:
        held, self._held = self._held, []
        self._order(held)
        for release in held:
            try:
                release()
            except Exception:  # the other requests must reach the log
                log.exception("internal error")
