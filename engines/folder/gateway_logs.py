"""The logs in a data folder, as the gateway's logs. Requests that arrive within 3 ms, or during a write, are one transaction.

The gateway answers 202 once the transaction is on the disk.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog

from ldpstream.engines.count_store import StoreDamaged, StoreUnavailable
from ldpstream.engines.folder.data_folder import DataFolder
from ldpstream.engines.folder.folder_log import FolderLog, NoRoom
from ldpstream.engines.gateway_log import Done, Keyed, Outcome
from ldpstream.runtime.clock import ClockJumped, now_ms
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.gateway")

LINGER_S = 0.003  # time in which requests are collected
OVERDUE_S = 2.0  # the logs are not ready while a write takes longer than this
PROBE_S = 1.0  # time between two tries of a disk that refused a write
CLOSE_S = 3.0


class _Append(NamedTuple):
    log: FolderLog
    envelopes: Sequence[bytes]
    key: bytes
    done: Done


class FolderLogs:
    """The logs of all surveys of a data folder, for use in one event loop.

    Args:
        ended: called, in a thread, with a survey that the gateway no longer serves.
    """

    def __init__(self, folder: DataFolder, ended: Callable[[Survey], None], now_ms: Callable[[], int] = now_ms) -> None:
        self._folder, self._ended, self._now_ms = folder, ended, now_ms
        self.reachable = True
        self._closed = False
        self._collected: list[_Append] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._since_s = 0.0  # when the write in progress began
        self._ending = set[asyncio.Task[None]]()

    def add(self, survey: Survey) -> "SurveyAppends":
        return SurveyAppends(self, survey, FolderLog(self._folder, survey, self._now_ms))

    async def start(self) -> None:
        """Has no effect: the folder is open."""

    async def close(self) -> None:
        """Waits for the writes in progress, at most 3 s; then for the calls of `ended`."""
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._collected or self._writing is not None:
                    self._flush()
                    assert self._writing is not None
                    await asyncio.wait({self._writing})
        await asyncio.gather(*self._ending, return_exceptions=True)

    @property
    def ready(self) -> bool:
        """True if the disk took the last write, no write is overdue, and the gateway is not closing."""
        overdue = self._writing is not None and time.monotonic() - self._since_s >= OVERDUE_S
        return self.reachable and not overdue and not self._closed

    def append(self, to: FolderLog, envelopes: Sequence[bytes], key: bytes, done: Done) -> None:
        self._collected.append(_Append(to, envelopes, key, done))
        if self._timer is None and self._writing is None and self.reachable:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._flush)

    def end(self, survey: Survey) -> None:
        task = asyncio.create_task(asyncio.to_thread(self._forget, survey))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _forget(self, survey: Survey) -> None:
        with suppress(StoreUnavailable):
            self._ended(survey)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            return
        batch, self._collected = self._collected, []
        self._since_s = time.monotonic()
        self._writing = asyncio.create_task(self._write(batch))

    async def _write(self, batch: list[_Append]) -> None:
        try:
            outcome, times = await asyncio.to_thread(self._append, batch)
        except RuntimeError as error:  # the system has no further thread; another one may take the batch later
            log.error("reports cannot be stored", error=str(error))
            outcome, times = Outcome.UNKNOWN, [None] * len(batch)
        for one, appended_ms in zip(batch, times, strict=True):
            full = outcome is Outcome.APPENDED and appended_ms is None
            try:
                one.done(Outcome.KEYS_FULL if full else outcome, appended_ms)
            except Exception:  # the other requests must get their answers
                log.exception("internal error")
        self._writing, reachable = None, outcome is Outcome.APPENDED
        if reachable and not self.reachable:
            log.warning("reports can be stored again")
        self.reachable = reachable
        if self._collected or not reachable:
            self._timer = asyncio.get_running_loop().call_later(0 if reachable else PROBE_S, self._flush)

    def _append(self, batch: Sequence[_Append]) -> tuple[Outcome, list[int | None]]:
        times, outcome = list[int | None](), Outcome.NOT_APPENDED
        try:
            for one in batch:
                one.log.log_id()
            with self._folder.write() as db:
                if not batch:
                    self._folder.probe(db)
                for one in batch:
                    try:
                        times.append(one.log.append(db, one.envelopes, one.key))
                    except NoRoom:
                        times.append(None)
                outcome = Outcome.UNKNOWN  # the outcome if the end of the transaction fails
            return Outcome.APPENDED, times
        except (StoreUnavailable, StoreDamaged, ClockJumped) as error:
            if self.reachable:
                log.error("reports cannot be stored", error=str(error))
        except Exception:  # later requests must get their answers
            log.exception("internal error")
        for one in batch:
            one.log.count_keys_again()
        return outcome, [None] * len(batch)


class SurveyAppends:
    """The log of one survey (`engines.gateway_log.GatewayLog`)."""

    def __init__(self, logs: FolderLogs, survey: Survey, log: FolderLog) -> None:
        self._logs, self._survey, self._log = logs, survey, log
        self._closed = False

    @property
    def ready(self) -> bool:
        return self._logs.ready and not self._closed

    def append(self, envelopes: Sequence[bytes], keyed: Keyed | None, done: Done) -> None:
        if self.ready:
            self._logs.append(self._log, envelopes, b"" if keyed is None else keyed.hashed, done)
        else:
            done(Outcome.NOT_APPENDED, None)

    def close(self) -> None:
        self._closed = True
        self._logs.end(self._survey)
