"""The gateway of `serve` when a write takes long or fails with an unexpected error."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ldpstream.engines.folder import gateway_logs
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.gateway_logs import FolderLogs
from ldpstream.engines.gateway_log import Outcome
from ldpstream.surveys import load_survey
from tests.services.rig import PATIENCE_S

SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "changing.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    with closing(DataFolder(tmp_path / "data")) as folder:
        yield folder


async def answer(logs: FolderLogs) -> Outcome:
    told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    logs.add(SURVEY).append([b"x"], None, lambda outcome, _: told.set_result(outcome))
    return await told


def test_a_write_that_hangs_makes_the_gateway_not_ready(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, append = threading.Event(), threading.Event(), FolderLog.append

    def hangs(self: Any, *arguments: Any) -> int:
        begun.set()
        go_on.wait()
        return append(self, *arguments)

    async def run() -> None:
        logs = FolderLogs(folder, lambda _: None)
        waiting = asyncio.create_task(answer(logs))
        await asyncio.to_thread(begun.wait)
        assert logs.ready  # the write has only begun
        monkeypatch.setattr(gateway_logs, "OVERDUE_S", 0.0)
        assert not logs.ready
        go_on.set()
        assert await waiting is Outcome.APPENDED
        assert logs.ready
        await logs.close()

    monkeypatch.setattr(gateway_logs, "OVERDUE_S", 600.0)
    monkeypatch.setattr(FolderLog, "append", hangs)
    asyncio.run(run())


@pytest.mark.parametrize(
    ("owner", "name", "queued", "outcome"),
    [(FolderLog, "append", False, Outcome.NOT_APPENDED), (ThreadPoolExecutor, "submit", True, Outcome.UNKNOWN)],
    ids=["write", "thread"],
)
def test_an_unexpected_error_stops_no_later_report(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, queued: bool, outcome: Outcome
) -> None:
    """The write fails, or the executor has no thread. The executor raises this error when it has queued the call."""
    call, errors = getattr(owner, name), [RuntimeError("not expected")]

    def fails_once(self: Any, *arguments: Any) -> Any:
        done = call(self, *arguments) if queued or not errors else None
        if errors:
            raise errors.pop()
        return done

    async def run() -> None:
        logs = FolderLogs(folder, lambda _: None)
        assert await answer(logs) is outcome
        while not logs.ready:  # noqa: ASYNC110  # the gateway tries the disk again
            await asyncio.sleep(0)
        assert await answer(logs) is Outcome.APPENDED
        await logs.close()

    monkeypatch.setattr(gateway_logs, "PROBE_S", 0.0)
    monkeypatch.setattr(owner, name, fails_once)
    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
