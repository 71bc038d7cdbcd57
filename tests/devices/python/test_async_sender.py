"""The sender for an event loop: nothing blocks the loop, no thread stays, and a cancelled call loses and doubles no report."""

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ldpstream.device import AsyncSender, Attempt, Device, RelayRequired, Sender, routes
from ldpstream.device.reports import Waiting
from ldpstream.runtime.clock import now_ms
from tests.gateway.gateway_rig import Served
from tests.producers.relay_rig import relay_site, relay_survey
from tests.producers.samples import level
from tests.small_survey import small_survey

ASKED = {"name": "zone", "size": 10, "level": [level("GRR")]}
BLOCKING = {"sqlite3.connect", "open", "os.chmod", "socket.connect", "socket.getaddrinfo", "time.sleep", "urllib.Request"}
_watched: dict[int, list[str]] = {}  # thread -> its blocking calls


def _watch(event: str, _: object) -> None:
    if event in BLOCKING and (calls := _watched.get(threading.get_ident())) is not None:
        calls.append(event)


sys.addaudithook(_watch)


async def test_nothing_blocks_the_loop_and_no_thread_stays(tmp_path: Path) -> None:
    """Python tells the hook about every file, database, connection, look-up and sleep. The loop's thread has none of them."""
    yesterday = datetime.fromtimestamp(time.time() - 86_400, UTC).replace(microsecond=0)
    survey = small_survey(ASKED, start=yesterday, step_seconds=86_400, lateness_steps=2)
    with closing(Served(survey=survey, tokens=["token"], now_ms=now_ms)) as served:
        device, before = Device(survey, tmp_path / "file", consent="simulated"), threading.enumerate()
        calls = _watched[threading.get_ident()] = list[str]()
        async with AsyncSender(device, served.url, "token") as sender:
            assert set(await sender.call(device.answer, {"zone": 1})) == {"zone"}
            with pytest.raises(ValueError, match="attribute must be one of"):
                await sender.call(device.report, "other", 1)
            await sender.run()
        assert not calls
        assert threading.enumerate() == before
        assert device.waiting() == []
        assert "sqlite3.connect" in _watched.pop(threading.get_ident())  # the control
        assert len(served.rig.log.counted()) == 1
    with pytest.raises(RuntimeError, match="after shutdown"):
        await sender.attempt()


class Cuts:
    """Cancels a task at the moment with this number. A moment is the begin or the end of a transaction or a request."""

    def __init__(self, at: int, device: Device) -> None:
        self.at, self.seen, self.posts, self.late = at, 0, list[Waiting](), 0
        self.loop, self.begin = asyncio.get_running_loop(), device._file.connection
        self.task: asyncio.Task[None] | None = None

    async def _cancel(self) -> None:
        assert self.task is not None
        self.task.cancel()
        for _ in range(5):  # turns of the loop, until the task has noticed
            await asyncio.sleep(0)
        if self.at % 2:
            self.task.cancel()  # also the end of the block

    def moment(self) -> None:
        self.seen += 1
        if self.seen == self.at + 1:
            asyncio.run_coroutine_threadsafe(self._cancel(), self.loop).result(30)

    def post(self, report: Waiting) -> routes.Answer:
        """The gateway has the report from the first attempt, whose answer is lost."""
        self.late += self.seen > self.at
        self.moment()
        self.posts.append(report)
        self.moment()
        return routes.Answer(202) if self.posts.count(report) > 1 else routes.Answer(0)

    @contextmanager
    def connection(self, create: bool) -> Iterator[sqlite3.Connection]:
        self.moment()
        with self.begin(create) as connection:
            yield connection
        self.moment()


async def test_a_call_that_is_cancelled_anywhere_loses_and_doubles_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sender, "pause_s", lambda *_: 0.0)
    survey, before, at, finished = small_survey(ASKED), threading.enumerate(), 0, False
    while not finished:
        cuts = Cuts(at, device := Device(survey, tmp_path / f"{at}", consent="simulated"))
        monkeypatch.setattr(routes.Direct, "post", cuts.post)
        monkeypatch.setattr(device._file, "connection", cuts.connection)

        async def use(device: Device = device) -> None:
            async with AsyncSender(device, "http://127.0.0.1:9") as sender:
                for step in (5, 6):
                    await sender.call(device.report, "zone", 1, step)
                await sender.run()

        cuts.task = asyncio.create_task(use())
        with suppress(asyncio.CancelledError):
            await cuts.task
            finished = True
        for thread in set(threading.enumerate()) - set(before):
            assert cuts.at % 2
            thread.join(30)
        assert threading.enumerate() == before
        assert cuts.late <= 1  # only a report whose departure the journal has already
        cuts.at = 10**6
        Sender(device, "http://127.0.0.1:9").run(lambda _: None)
        assert device.waiting() == []
        made = {report.step for report in cuts.posts}
        assert len(made) == len({(report.key, report.envelope) for report in cuts.posts}) == device.spent("zone").reports
        assert made == {5, 6} or not finished
        at += 1
    assert at == 29  # all moments of two reports, which are made, sent twice and settled


async def test_a_relay_gets_a_report_at_its_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey = relay_survey()
    with relay_site(survey, monkeypatch) as site:
        (device := Device(survey, tmp_path / "file", consent="simulated")).report("zone", 1, 5)
        with pytest.raises(RelayRequired):
            AsyncSender(device, "http://127.0.0.1:9")
        async with AsyncSender(device, site.relay.device_side()) as sender:
            assert (await sender.attempt()).waiting == 1
            assert not site.relay.seen
            site.clock.now_ms = device.waiting()[0].due_ms
            assert await sender.attempt() == Attempt(1, 0, 0, 0, ())
