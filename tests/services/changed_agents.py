"""Agents with a changed part, as programs:  python -P tests/services/changed_agents.py NAME [METHOD]

hangs            short timeouts; the consumer's thread hangs while the file HANG exists
shut-out METHOD  the group refuses the coordinator's METHOD while the file SHUT exists; each refusal adds a line to the file
waits            waits between its checks and its start: makes the file CHECKED, then waits for the file GO
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupAuthorizationFailedError

import agents.app as app
from agents import stall_detector, watchdog
from agents.consumer import chunks, second_client


def hangs() -> None:
    stall_detector.REPLACE_AFTER_S, stall_detector.STALLED_AFTER_S = 1.0, 15.0
    chunks.ANSWER_S, second_client.ANSWER_MS = 2.0, 1500
    watchdog.Watchdog.TICK_S = 0.25
    fetch = chunks.ChunkThread._fetch_records

    async def fetch_or_hang(self: Any, *arguments: Any, **named: Any) -> Any:
        while Path("HANG").exists():  # noqa: ASYNC240 blocks the thread's event loop on purpose
            time.sleep(1)  # noqa: ASYNC251
        return await fetch(self, *arguments, **named)

    chunks.ChunkThread._fetch_records = fetch_or_hang  # type: ignore[method-assign]


def shut_out(method: str) -> None:
    do = getattr(GroupCoordinator, method)

    async def do_or_not(self: Any, *arguments: Any) -> Any:
        try:
            with Path("SHUT").open("r+") as heard:  # noqa: ASYNC230 a short write
                heard.seek(0, 2)
                heard.write("refused\n")
        except FileNotFoundError:
            return await do(self, *arguments)
        raise GroupAuthorizationFailedError(self.group_id)

    setattr(GroupCoordinator, method, do_or_not)


def waits() -> None:
    prepare = app.AgentApp.prepare

    def prepare_and_wait(self: app.AgentApp) -> None:
        prepare(self)
        Path("CHECKED").touch()
        while not Path("GO").exists():
            time.sleep(0.05)

    app.AgentApp.prepare = prepare_and_wait  # type: ignore[method-assign]


if __name__ == "__main__":
    changes: dict[str, Callable[..., None]] = {"hangs": hangs, "shut-out": shut_out, "waits": waits}
    changes[sys.argv[1]](*sys.argv[2:])
    sys.argv[1:] = []
    app._work(app._from_environment())
