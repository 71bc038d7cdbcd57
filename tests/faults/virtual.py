"""An event loop on virtual time: it never waits, the clock jumps to whatever is due next. So hours pass in seconds, and a run
with the same seed goes the same way every time.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class Deadlock(RuntimeError):
    """Everything waits for something else, and no clock will ever end it."""


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
    """An event loop whose time is virtual and whose executor is `thread`, called in the loop itself.

    Attributes:
        thread: what `asyncio.to_thread` does: told the future to answer and the function to run.
    """

    thread: Callable[["asyncio.Future[Any]", Callable[..., Any]], None]

    def __init__(self) -> None:
        self._virtual = _NoSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        future = self.create_future()
        self.thread(future, func)
        return future
