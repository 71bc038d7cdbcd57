"""An event loop on virtual time. The loop never waits: the loop's clock jumps to the time of the next event.

Simulated hours take seconds, and runs with the same seed are identical.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Deadlock(RuntimeError):
    """All tasks wait and no timer is due."""


class _NoSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock("nothing is due")
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time. The loop's executor is `thread`, which the loop calls directly.

    Attributes:
        thread: replaces `asyncio.to_thread`. Its arguments are the future to complete and the function to run.
    """

    thread: Callable[["asyncio.Future[Any]", Callable[..., Any]], None]

    def __init__(self) -> None:
        self._virtual = _NoSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        self.thread(future, func)
        return future
