"""The loop that estimates the surveys of a process: turns, survey files, and the page."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic

import structlog
from prometheus_client import REGISTRY

from ldpstream.engines.count_store import StoreUnavailable
from ldpstream.publishing.answers.earlier import Replaced, chain
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api, create_surveys_api
from ldpstream.publishing.engine import Engine
from ldpstream.publishing.page.server import PageServer
from ldpstream.publishing.process.prometheus_publisher import SurveyMetrics
from ldpstream.publishing.process.survey_estimator import SurveyEstimator
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.life.folder import SurveyFolder
from ldpstream.surveys.life.notes import notes_beside
from ldpstream.surveys.life.watch import LOOK_S
from ldpstream.surveys.signatures import signed_at

log = structlog.get_logger("ldpstream.estimator")

IDLE_S = 0.2
STALL_MS = 300_000  # a turn that takes longer is a stall


def _ticks_ms() -> int:
    return round(1000 * monotonic())


class EstimatorLoop:
    """Estimates the surveys in turns, follows the survey files, and serves the page.

    Args:
        watch, stop, settings: as for `estimator_process.serve`.
        clock: returns the present time in Unix ms, or raises `ClockJumped`; then no step is estimated.
        largest_client: returns `Status.largest_client` of the survey with this name.
    """

    def __init__(
        self,
        watch: SurveyFolder,
        engine: Engine,
        stop: Event,
        settings: Settings,
        clock: Callable[[], int] = now_ms,
        largest_client: Callable[[str], float | None] = lambda _: None,
    ) -> None:
        self._largest_client = largest_client
        self._watch, self._engine, self._stop, self._settings = watch, engine, stop, settings
        self._clock = clock
        self._alone = watch.only_file is not None
        self._estimators: dict[bytes, SurveyEstimator] = {}
        self._metrics = SurveyMetrics()
        self._turn_began_ms: int | None = None  # None between two turns
        self._looked_ms = _ticks_ms()
        self._page: PageServer | None = None
        self.served: dict[str, Served] = {}
        REGISTRY.register(self._metrics)
        self._reconcile()

    @property
    def unready(self) -> str | None:
        """None if the last turn of at least one survey raised no error, or if there is no survey; else the first reason, or
        that a turn stalls."""
        troubles, began_ms = [estimator.trouble for estimator in list(self._estimators.values())], self._turn_began_ms
        if began_ms is not None and _ticks_ms() - began_ms >= STALL_MS:
            return "the estimates stall"
        return None if not troubles or None in troubles else troubles[0]

    @property
    def working(self) -> set[bytes]:
        """The fingerprints of the surveys whose last turn raised no error."""
        return {key for key, estimator in list(self._estimators.items()) if estimator.trouble is None}

    def run(self) -> None:
        try:
            if self._page is None:
                self.serve_page()
            if self._page is not None:
                log.info("serving the page", url=self._page.url)
            self._run()
        finally:
            self.close()

    def serve_page(self) -> None:
        settings = self._settings
        if not settings.page_port:
            return
        if self._alone:
            (served,) = self.served.values()
            api = create_api(served)
        else:
            api = create_surveys_api(self.served)
        self._page = PageServer(api, settings.page_host, settings.page_port)

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._alone:
                self._follow_files(_ticks_ms())
            first = next_turn(self._estimators.values())
            wait_ms = 1000 if first is None else first.next_turn_ms - _ticks_ms()
            if first is not None and wait_ms <= 0:
                self._turn(first)
            else:
                self._stop.wait(min(wait_ms / 1000, IDLE_S))

    def _turn(self, estimator: SurveyEstimator) -> None:
        self._turn_began_ms = _ticks_ms()
        pause_ms = estimator.turn(self._clock, len(self._estimators))
        self._turn_began_ms = None
        estimator.next_turn_ms = _ticks_ms() + pause_ms

    def _follow_files(self, at_ms: int) -> None:
        if at_ms - self._looked_ms < 1000 * LOOK_S:
            return
        self._looked_ms = at_ms
        self._watch.look()
        self._reconcile()

    def _reconcile(self) -> None:
        wanted = self._watch.surveys
        for fingerprint, estimator in list(self._estimators.items()):
            if fingerprint not in wanted or wanted[fingerprint].survey != estimator.survey:
                self._remove(estimator)
        for text in wanted.values():
            if text.survey.fingerprint not in self._estimators:
                self._add(text.survey, text.path)

    def _add(self, survey: Survey, path: Path) -> None:
        estimator = SurveyEstimator(survey, self._engine, self._metrics, self._alone)
        self._estimators[survey.fingerprint] = estimator
        self.served[survey.name] = Served(
            survey,
            estimator.results,
            estimator.store.rejected,
            replaced=partial(self.replaced, survey),
            largest_client=partial(self._largest_client, survey.name),
            signed=partial(signed_at, survey, path),
            notes=partial(notes_beside, path),
        )

    def replaced(self, survey: Survey) -> list[Replaced]:
        served = list(self.served.values())
        return chain(survey, {one.survey.fingerprint.hex(): Replaced(one.survey, one.source) for one in served})

    def _remove(self, estimator: SurveyEstimator) -> None:
        del self._estimators[estimator.survey.fingerprint], self.served[estimator.survey.name]
        self._metrics.unregister(estimator.prometheus)
        with suppress(StoreUnavailable):
            estimator.results.store.resign()
        estimator.close()

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
        with suppress(StoreUnavailable):  # the other leases expire
            for estimator in self._estimators.values():
                estimator.results.store.resign()
        for estimator in self._estimators.values():
            estimator.close()
        REGISTRY.unregister(self._metrics)


def next_turn(estimators: Iterable[SurveyEstimator]) -> SurveyEstimator | None:
    """Returns the estimator with the earliest turn. So a slow survey delays every other survey by at most one turn."""
    return min(estimators, key=lambda estimator: estimator.next_turn_ms, default=None)
