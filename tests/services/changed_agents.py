"""Agents with a changed part, as programs:  python -P tests/services/changed_agents.py NAME [METHOD]

hangs            the consumer's thread hangs while the file HANG exists. Each health check takes 30 s of the stall detector's
                 clock, and adds a line to the file CHECKS. The watchdog ends the process after three checks in which it was not
                 reset. No limit depends on real time
shut-out METHOD  the group refuses the coordinator's METHOD while the file SHUT exists; each refusal adds a line to the file
unhurried        commits only after a stop signal, and has minutes for that commit
slow-clock       every wall clock of the process is a minute behind
"""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupAuthorizationFailedError

import ldpstream.agents.app as app
from ldpstream.agents import counting
from ldpstream.agents.consumer import chunks
from ldpstream.agents.stall_detector import Partition


def hangs() -> None:
    checks_s, reset_s, healthy = [0.0], [0.0], counting.Counting.healthy
    fetch = chunks.ChunkThread._fetch_records

    async def healthy_later(self: counting.Counting) -> bool:
        checks_s[0] += 30.0
        if checks_s[0] - reset_s[0] > 90.0:
            os._exit(1)
        well = await healthy(self)
        with Path("CHECKS").open("a") as told:  # noqa: ASYNC230  # a short write
            told.write("healthy\n" if well else "stalled\n")
        return well

    async def fetch_or_hang(self: Any, *arguments: Any, **named: Any) -> Any:
        while Path("HANG").exists():  # noqa: ASYNC240  # blocks the thread's event loop on purpose
            time.sleep(1)  # noqa: ASYNC251  # blocks it too
        return await fetch(self, *arguments, **named)

    patch.object(counting.Counting, "healthy", healthy_later).start()
    patch.object(app, "Counting", partial(counting.Counting, clock=lambda: checks_s[0])).start()
    patch.object(app, "alive", lambda: reset_s.__setitem__(0, checks_s[0])).start()
    chunks.ANSWER_S = 2.0
    patch.object(chunks.ChunkThread, "_fetch_records", fetch_or_hang).start()


def shut_out(method: str) -> None:
    do = getattr(GroupCoordinator, method)

    async def do_or_not(self: Any, *arguments: Any) -> Any:
        try:
            with Path("SHUT").open("r+") as heard:  # noqa: ASYNC230  # a short write
                heard.seek(0, 2)
                heard.write("refused\n")
        except FileNotFoundError:
            return await do(self, *arguments)
        raise GroupAuthorizationFailedError(self.group_id)

    setattr(GroupCoordinator, method, do_or_not)


def unhurried() -> None:
    class Unhurried(counting.Counting):
        async def _commit(self, partitions: list[Partition]) -> None:
            if self._closed:
                await super()._commit(partitions)

    counting.CLOSE_S, app.STOP_S = 100.0, 110.0
    patch.object(app, "Counting", Unhurried).start()


def slow_clock() -> None:
    seconds, nanoseconds = time.time, time.time_ns
    time.time, time.time_ns = lambda: seconds() - 60, lambda: nanoseconds() - 60 * 10**9


if __name__ == "__main__":
    changes: dict[str, Callable[..., None]] = {
        "hangs": hangs, "shut-out": shut_out, "slow-clock": slow_clock, "unhurried": unhurried,
    }  # fmt: skip
    changes[sys.argv[1]](*sys.argv[2:])
    sys.argv[1:] = []
    app._from_environment().Worker(quiet=True).execute_from_commandline()
