"""An estimator of a run: the real `Schedule`. The estimator can hang before any request and continue much later."""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ldpstream.engines.count_store import StoreUnavailable
from ldpstream.runtime.errors import LogUnavailable

from .memory_log import SURVEY
from .operations import Estimate

if TYPE_CHECKING:
    from .world import World


class Killed(Exception):
    """Raised inside an estimator that the test kills."""


class Estimator:
    """An estimator's process.

    A run of the schedule that will hang gets its own thread. This thread and the world's thread never run at the same time.

    Attributes:
        hung: True if the estimator hangs in the middle of a run.
    """

    def __init__(self, world: "World") -> None:
        self._world, self.hung = world, False
        self._how, self._questions, self._killed = Estimate(), 0, False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        store, log = _Asking(world.redis, self._before), _Asking(world.log, self._before)
        topic = _Asking(world.code.topic(world.topic), self._before)
        self._schedule = world.code.schedule.Schedule(SURVEY, store, log, store, [], topic=topic)

    def run(self, how: Estimate) -> None:
        """Runs the schedule once with the given faults. A hanging estimator resumes its earlier run instead."""
        if self.hung:
            self._resume()
            return
        self._how, self._questions = how, 0
        if how.stop_at is None or how.then != "hang":
            self._run()
        else:
            threading.Thread(target=self._run_apart, daemon=True).start()
            self._wait()

    def kill(self) -> None:
        """Ends the process, even if it hangs."""
        if self.hung:
            self._killed = True
            self._resume()

    def _resume(self) -> None:
        self.hung, self._how = False, Estimate()
        self._go.release()
        self._wait()

    def _wait(self) -> None:
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        with contextlib.suppress(LogUnavailable, StoreUnavailable, Killed):
            self._schedule.run(self._world.log.now_ms() + self._world.log.estimators_ahead_ms)

    def _run_apart(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._error = error
        self._back.release()

    def _before(self, ask: Callable[[], Any]) -> Any:
        how, number = self._how, self._questions
        self._questions += 1
        if how.lost and number == how.at and not self._world.redis.keeps_all:
            self._world.redis.lose_writes(how.lost)
        if number == how.stop_at:
            match how.then:
                case "kill":
                    raise Killed
                case "lose the answer":
                    ask()
                    raise StoreUnavailable("no answer")
                case "hang":
                    self.hung = True
                    self._back.release()
                    self._go.acquire()
                    if self._killed:
                        raise Killed
        return ask()


class _Asking:
    """A proxy of a service that the estimator uses. The proxy passes every request through `before`."""

    def __init__(self, asked: Any, before: Callable[[Callable[[], Any]], Any]) -> None:
        self._asked, self._before = asked, before

    def __getattr__(self, question: str) -> Callable[..., Any]:
        answer = getattr(self._asked, question)
        return lambda *arguments: self._before(lambda: answer(*arguments))
