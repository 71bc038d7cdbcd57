"""The sender for an application with an event loop of asyncio: files and requests stay off the loop.

    async with AsyncSender(device, "https://gateway.example", "token-of-the-gateway") as sender:
        await sender.call(device.answer, {"mode": "bicycle"})
        await sender.run()

A call that is cancelled while it waits loses nothing. A report that is being made is stored, and a request on its way is
settled, in the thread that has begun. So the reports are those of a blocking `Sender`: same file, same keys, same moments.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

from ldpstream.device.device import Device
from ldpstream.device.routes import ANSWER_S, Relay
from ldpstream.device.sender import Attempt, Sender

P = ParamSpec("P")
R = TypeVar("R")


class AsyncSender:
    """Sends the reports of one device beside an event loop, as `Sender` does. Use it as an asynchronous context manager.

    The block's end waits for a request on its way, at most for about `wait_s`, and leaves no thread behind.

    Args:
        device, to, token, wait_s: as for `Sender`.

    Raises:
        RelayRequired, ValueError: as for `Sender`.
    """

    def __init__(self, device: Device, to: str | Relay, token: str | None = None, *, wait_s: float = ANSWER_S) -> None:
        self._sender, self._left = Sender(device, to, token, wait_s=wait_s), False
        self._sending, self._storing = (ThreadPoolExecutor(1, f"ldpstream-{name}") for name in ("send", "store"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left = True
        threads = self._sending, self._storing
        try:
            for thread in threads:
                await self._off_loop(thread, bool)  # after whatever the thread still does
        except asyncio.CancelledError:
            for thread in threads:
                thread.shutdown(wait=False)  # it ends by itself
            raise
        for thread in threads:
            thread.shutdown()

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a call that uses a file of the device beside the loop, such as `Device.answer` or `Activity.seen`.

        The calls run one after the other, also while reports are being sent. A call that has begun is never undone.

        Raises:
            RuntimeError: after the end of the block. The errors of the function pass through.
        """
        return await self._off_loop(self._storing, lambda: function(*args, **kwargs))

    async def attempt(self) -> Attempt:
        """Like `Sender.attempt`. If it is cancelled, the request on its way is settled, and no other one follows.

        Raises:
            DeviceError: as for `Sender.attempt`; RuntimeError: after the end of the block.
        """
        cancelled = threading.Event()
        try:
            return await self._off_loop(self._sending, lambda: self._sender.attempt(lambda: self._left or cancelled.is_set()))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def run(self) -> None:
        """Like `Sender.run`: calls `attempt` until no report waits, or the block ends. To send in the background, make it a
        task."""
        attempts = 0
        while not self._left and (outcome := await self.attempt()).waiting:
            await asyncio.sleep(self._sender.pause_s(outcome, attempts))
            attempts += 1

    async def _off_loop(self, thread: Executor, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(thread, function)
