"""The process of `ldpstream serve`: the gateway in the main thread, counting and estimates in a second thread."""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread

from ldpstream.estimators import compiled
from ldpstream.producers.gateway.gateway_process import serve as serve_gateway
from ldpstream.producers.gateway.metrics import largest_client
from ldpstream.publishing.estimator_loop import EstimatorLoop
from ldpstream.runtime.clock import SteadyClock
from ldpstream.runtime.settings import Settings
from ldpstream.serving.engine import FolderEngine
from ldpstream.serving.gateway_logs import FolderLogs
from ldpstream.serving.keeper import FolderKeeper
from ldpstream.stores.data_folder import DataFolder, FolderError
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
            raise FolderError(f'{folder.file}: {what} to Kafka and Redis (docs/serve.md, "The way up")')
        clock = SteadyClock(watch.listed)
        keeper = FolderKeeper(folder, watch, clock)
        if watch.only_file is not None:  # a changed survey is refused before anything starts
            for text in list(watch.surveys.values()):
                keeper.check(text.survey, write=True)
        compiled.load()
        estimates = _Estimates(paths, settings, folder, clock)
        check, logs = partial(keeper.check, write=True), partial(FolderLogs, folder, keeper.forget, clock)

        def bound() -> None:
            usable()
            estimates.start()  # an interrupt may come before `start` returns

        try:
            serve_gateway(watch, settings, check, logs, clock, bound, estimates.works)
        finally:
            estimates.end()


class _Estimates(Thread):
    def __init__(self, paths: Sequence[Path], settings: Settings, folder: DataFolder, clock: Callable[[], int]) -> None:
        super().__init__(name="estimates")
        watch, self._stop_event = SurveyFolder(paths), Event()
        engine = FolderEngine(folder, FolderKeeper(folder, watch, clock).check, clock, settings.records_retention_ms)
        self._loop = EstimatorLoop(watch, engine, self._stop_event, lambda _: None, settings, clock, largest_client.of)
        self._error: BaseException | None = None
        try:
            self._loop.serve_page()  # here: if the address is in use, the process must end before it prints the addresses
        except BaseException:
            self._loop.close()
            raise

    def works(self) -> bool:
        """True while reports of a survey are counted and published."""
        return self._loop.unready is None

    def run(self) -> None:
        try:
            self._loop.run(None)
        except BaseException as error:
            self._error = error
            os.kill(os.getpid(), signal.SIGTERM)  # the main thread then shuts down the gateway

    def end(self) -> None:
        """Ends the thread, and raises its error if it failed."""
        self._stop_event.set()
        if self.ident is None:
            self._loop.close()
        else:
            self.join()
        if self._error is not None:
            raise self._error
