"""The process of `ldpstream serve`: the gateway in the main thread, counting and estimates in a thread each."""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread

from ldpstream.engines.folder.data_folder import DataFolder, FolderError
from ldpstream.engines.folder.gateway_logs import FolderLogs
from ldpstream.engines.folder.survey_keeper import FolderKeeper
from ldpstream.estimators import compiled
from ldpstream.gateway.gateway_process import serve as serve_gateway
from ldpstream.gateway.metrics import largest_client
from ldpstream.publishing.process.estimator_loop import EstimatorLoop
from ldpstream.runtime.clock import SteadyClock
from ldpstream.runtime.settings import Settings
from ldpstream.services.counting import FolderCounting
from ldpstream.services.engine import FolderEngine
from ldpstream.surveys.life.folder import SurveyFolder
from ldpstream.surveys.life.watch import SurveyWatch


def serve(paths: Sequence[Path], settings: Settings, data: Path, usable: Callable[[], None]) -> None:
    """Serves surveys until SIGTERM or SIGINT.

    Args:
        settings: ports, tokens, certificate and limits; Kafka and Redis are not used.
        data: the data folder; created if missing.
        usable: called as soon as surveys, settings, folder and addresses can be used.

    Raises:
        UserError: if no survey can be used, or a setting, the folder or an address cannot be used.
    """
    watch = SurveyWatch(paths)
    with closing(DataFolder(data)) as folder:
        if (moved := folder.moved()) != "here":
            what = "the data were moved" if moved == "moved" else "a move of the data has begun"
            raise FolderError(f'{folder.file}: {what} to Kafka and Redis (docs/howto/serve.md, "The way up")')
        clock = SteadyClock(watch.listed)
        keeper = FolderKeeper(folder, watch, clock)
        if watch.only_file is not None:  # a changed survey is refused before anything starts
            for text in list(watch.surveys.values()):
                keeper.check(text.survey, write=True)
        compiled.load()
        stop, check = Event(), partial(keeper.check, write=True)
        logs = partial(FolderLogs, folder, keeper.forget, clock)
        alone, kept_ms = watch.only_file is not None, settings.records_retention_ms
        counting = FolderCounting(folder, watch.listed, alone, clock, kept_ms)
        estimates = _estimates(paths, settings, folder, clock, stop)
        parts = [Part("counting", partial(counting.run, stop), stop), Part("estimates", estimates.run, stop)]

        def bound() -> None:
            usable()
            for part in parts:
                part.start()  # an interrupt may come before `start` returns

        try:
            serve_gateway(watch, settings, check, logs, clock, bound, partial(works, counting, estimates))
        finally:
            stop.set()
            started = [part for part in parts if part.ident is not None]
            for part in started:
                part.join()
            if len(started) < len(parts):
                estimates.close()
            for error in [part.error for part in parts if part.error is not None]:
                raise error


def works(counting: FolderCounting, estimates: EstimatorLoop) -> bool:
    """Returns True while reports of at least one survey are counted and published, or if there is no survey."""
    return estimates.unready is None and (not (working := estimates.working) or not working <= counting.stalled)


def _estimates(
    paths: Sequence[Path], settings: Settings, folder: DataFolder, clock: Callable[[], int], stop: Event
) -> EstimatorLoop:
    watch = SurveyFolder(paths)
    engine = FolderEngine(folder, FolderKeeper(folder, watch, clock).check, clock)
    loop = EstimatorLoop(watch, engine, stop, settings, clock, largest_client.of)
    try:
        loop.serve_page()  # here: if the address is in use, the process must end before it prints the addresses
    except BaseException:
        loop.close()
        raise
    return loop


class Part(Thread):
    """A thread whose error ends the process. An interrupt while the process waits for the thread ends the process too."""

    def __init__(self, name: str, work: Callable[[], object], stop: Event) -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._told_to_stop = work, stop
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error
            if not self._told_to_stop.is_set():
                os.kill(os.getpid(), signal.SIGTERM)  # the main thread then shuts down the gateway
