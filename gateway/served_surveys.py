"""Keeps the surveys of a gateway equal to the survey files, while the gateway runs."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from ldpstream.engines.gateway_log import GatewayLog
from ldpstream.gateway.surveys import GatewaySurveys
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.life.checks import RETRY_S, SurveyChecks
from ldpstream.surveys.life.folder import SurveyText
from ldpstream.surveys.life.keeper import NotCounted
from ldpstream.surveys.life.watch import LOOK_S, SurveyWatch
from ldpstream.surveys.signatures import FILE, Signature, SignatureError, read_lines, sha256

log = structlog.get_logger("ldpstream.gateway")


class Logs(Protocol):
    """The logs of all surveys."""

    @property
    def reachable(self) -> bool:
        """True if the broker answers, or the data folder accepts appends, whatever the state of single surveys."""

    def add(self, survey: Survey) -> GatewayLog:
        """Returns the log of a survey whose topic exists."""

    async def start(self) -> None:
        """Prepares the logs for appends."""

    async def close(self) -> None:
        """Waits for appends in progress, for a limited time, then closes the logs."""


class ServedSurveys:
    """The surveys of the files, as surveys of a gateway.

    Args:
        check: checks that a survey's topic is usable; runs in a thread.
        counted: raises NotCounted if agents no longer count a survey that is served; runs in a thread.

    Attributes:
        checks: the checks of the surveys' topics.
    """

    def __init__(
        self,
        watch: SurveyWatch,
        surveys: GatewaySurveys,
        logs: Logs,
        check: Callable[[Survey], None],
        counted: Callable[[Survey], None] | None = None,
    ) -> None:
        self._watch, self._surveys, self._logs, self._counted = watch, surveys, logs, counted
        self.checks = SurveyChecks(watch, check, log, "survey not served")
        self._looked_s: dict[bytes, float] = {}  # time of the last `counted`, by fingerprint
        self._signatures: dict[Path, dict[str, list[Signature]]] = {}  # by file and hash of a survey's canonical text
        self._refused: dict[Path, str] = {}  # by file of signatures: why it cannot be read
        self._served: dict[bytes, tuple[SurveyText, list[Signature]]] = {}
        self._read_signatures()
        self._reconcile()

    def begin(self, usable: list[Survey]) -> None:
        self._reconcile()  # the check may have changed the surveys
        for survey in usable:
            self._begin(survey)

    async def follow(self) -> None:
        """Follows the survey files and the agents' surveys until it is cancelled. A single file is read only at the start."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception:  # without this task the gateway would follow no further change
                log.exception("internal error")

    async def look(self) -> None:
        if self._watch.only_file is None:
            await asyncio.to_thread(self._look_at_files)
            self._reconcile()
        for survey in list(self._surveys.by_fingerprint.values()):
            if survey.fingerprint in self._surveys.logs or not self.checks.due(survey):
                continue
            if not self._logs.reachable:
                return  # the check would wait for the broker
            if await asyncio.to_thread(self.checks.usable, survey):
                self._begin(survey)
        await self._look_at_agents()

    async def _look_at_agents(self) -> None:
        """Looks for one survey at a time whether agents still count it. Otherwise its reports get 503."""
        if self._counted is None or not self._surveys.logs or not self._logs.reachable:
            return
        survey = self._surveys.by_fingerprint[min(self._surveys.logs, key=self._looked_s.__getitem__)]
        if time.monotonic() - self._looked_s[survey.fingerprint] < RETRY_S:
            return
        self._looked_s[survey.fingerprint] = time.monotonic()
        try:
            await asyncio.to_thread(self._counted, survey)
        except NotCounted as error:
            log.error("survey not served", survey=survey.name, error=str(error))
            self.checks.postpone(survey)
            self._surveys.close(survey.fingerprint)
        except UserError as error:
            log.warning("the agents' survey is unknown", survey=survey.name, error=str(error))

    def _look_at_files(self) -> None:
        for text in self._watch.look().added:
            _ = text.survey.device_survey  # takes long for some mechanisms; the survey keeps the result
        self._read_signatures()

    def _reconcile(self) -> None:
        """Serves the surveys of the files. A new survey has no log yet: its reports get 503."""
        texts = self._watch.surveys
        for fingerprint in self._served.keys() - texts.keys():
            del self._served[fingerprint]
            self._surveys.remove(fingerprint)
        for fingerprint, text in texts.items():
            found = self._signatures.get(text.path.parent / FILE, {})
            wanted = text, found.get(sha256(text.survey.canonical), [])
            if self._served.get(fingerprint) != wanted:
                self._served[fingerprint] = wanted
                self._surveys.put(text.survey, text.text, wanted[1])
        self._surveys.incomplete = self._watch.incomplete
        self.checks.forget_others(texts)

    def _begin(self, survey: Survey) -> None:
        self._surveys.logs[survey.fingerprint] = self._logs.add(survey)
        self._looked_s[survey.fingerprint] = time.monotonic()

    def _read_signatures(self) -> None:
        """Reads the files `signatures.jsonl` beside the survey files.

        The gateway does not verify the signatures. It serves the signatures that state the hash of the survey's canonical text.
        """
        for path in {text.path.parent / FILE for text in self._watch.surveys.values()}:
            try:
                found: dict[str, list[Signature]] = {}
                for line in read_lines(path.read_text(encoding="utf-8"), Signature) if path.exists() else []:
                    found.setdefault(line.read().canonical_sha256, []).append(line)
                self._signatures[path] = found
                self._refused.pop(path, None)
            except (SignatureError, OSError, UnicodeDecodeError) as error:
                if self._refused.get(path) != str(error):
                    log.error("signatures cannot be read", file=str(path), error=str(error))
                self._refused[path] = str(error)
