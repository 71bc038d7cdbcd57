"""Keeps the consumer in its group. aiokafka's coordinator fails in three ways that Faust does not handle:

- After a failure (for example, a withdrawn right) the coordinator stays out of the group until a caller reads the error.
- After an error that is not a Kafka error (for example, no broker is known: an `AssertionError`) the coordinator's task ends
  permanently.
- After a day without a fetch, the consumer leaves the group until the next fetch.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger("ldpstream.agent")

CHECK_S = 1.0
JOIN_S = 90.0  # longer than the longest rebalance, 60 s (Faust's broker_rebalance_timeout)


class Membership:
    """The membership of a consumer in its group. Use this class only in the consumer's own thread.

    Attributes:
        shut_out: the reason why the consumer is shut out of its group. "" while the consumer is a member, and in the first
            `JOIN_S` seconds without membership, unless an error occurs.
    """

    def __init__(self, consumer: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.shut_out = ""
        self._consumer, self._clock = consumer, clock
        self._member_s = clock()

    async def keep(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()

    def check(self) -> None:
        """Checks whether the consumer is a member of its group, and makes it rejoin after a failure."""
        before = self.shut_out
        try:
            self.shut_out = self._reason()
        except Exception as error:
            self.shut_out = f"{type(error).__name__}: {error}"
        if self.shut_out and not before:
            log.warning("not in the group, trying again", error=self.shut_out)
        elif before and not self.shut_out:
            log.info("in the group again")

    def _reason(self) -> str:
        coordinator = self._consumer._coordinator
        with self._consumer._subscription.fetch_context():
            pass  # the coordinator treats this context as a fetch
        heartbeat, refresh = coordinator._heartbeat_task, coordinator._commit_refresh_task
        if any(_failed(task) for task in (heartbeat, refresh)):
            coordinator.request_rejoin()  # otherwise the coordinator would find the same error again
        ended = coordinator._coordination_task
        if _failed(ended):
            coordinator.request_rejoin()
            coordinator._coordination_task = asyncio.create_task(coordinator._coordination_routine())
            ended.result()  # raises the error
        coordinator.check_errors()
        if heartbeat is not None and not heartbeat.done() and not coordinator._rejoin_needed_fut.done():
            self._member_s = self._clock()
            return ""
        return self.shut_out or (f"not joined for {JOIN_S:.0f} s" if self._clock() - self._member_s > JOIN_S else "")


def _failed(task: "asyncio.Future[Any] | None") -> bool:
    return task is not None and task.done() and not task.cancelled() and task.exception() is not None
