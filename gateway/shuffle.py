"""Hides from readers of the log the order in which the requests of a batch arrived through a relay.

The shuffle holds all requests of `BATCH_S` seconds, and then hands them over in random order. The order within a batch is
independent of the order of arrival. The shuffle also holds the answers and mixes them.

The gateway's process and an observer of the network still see each request when it arrives.
"""

import asyncio
import secrets
from collections.abc import Callable

import structlog

log = structlog.get_logger("ldpstream.gateway")

BATCH_S = 0.5

_random = secrets.SystemRandom()


class Shuffle:
    """Holds requests and answers, and releases them in batches. Use it in one event loop.

    Args:
        order: puts a list into another order; cryptographically random by default.
    """

    def __init__(self, batch_s: float = BATCH_S, order: Callable[[list[Callable[[], None]]], None] = _random.shuffle) -> None:
        self._batch_s, self._order = batch_s, order
        self._held: list[Callable[[], None]] = []

    def hold(self, release: Callable[[], None]) -> None:
        """Holds a request or an answer until the end of the present batch."""
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
