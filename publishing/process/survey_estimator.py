"""The estimates of one survey in a process that estimates several: connections, schedule, gauges and turns."""

from collections.abc import Callable
from time import monotonic

import structlog
from prometheus_client import CollectorRegistry

from ldpstream.engines.count_store import StoreRefused, StoreUnavailable
from ldpstream.publishing.engine import Engine
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.publishing.process.vitals import Vitals
from ldpstream.publishing.progress import EstimatesTopic, TopicUnavailable
from ldpstream.publishing.schedule import Schedule
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import Unreachable, UserError

log = structlog.get_logger("ldpstream.estimator")

TICK_MS, SHORTEST_TICK_MS = 200, 20
MOST_TICKS = 10  # with many surveys, the pause of a waiting survey is at most 2 s
RETRY_MS = 2_000
REFUSED_MS = 30_000  # pause before the next try, if Kafka, Redis or our limits refuse a survey
WARN_S = 60.0


class SurveyEstimator:
    """Estimates one survey, one step a turn.

    Args:
        alone: True if the process estimates only this survey. Then a refusal at the start, or an unexpected error, ends the
            process.

    Attributes:
        next_turn_ms: earliest time of the next turn, on the monotonic clock of the loop; 0 before the first turn.
    """

    def __init__(self, survey: Survey, engine: Engine, registry: CollectorRegistry, alone: bool) -> None:
        self.survey, self._engine, self._alone = survey, engine, alone
        self.store = engine.count_store(survey)
        self.results = engine.results(survey)
        self.prometheus = PrometheusPublisher(survey, registry, brief=not alone)
        self._topic: EstimatesTopic | None = None
        self._vitals: Vitals | None = None
        self._schedule: Schedule | None = None
        self.next_turn_ms = 0
        self._warned, self._warned_s = "", 0.0
        self.trouble: str | None = "starting"  # the reason why the last turn failed; None if it did not
        self._topic_lost = False
        self.prometheus.set("estimate_load_ratio", 0)
        self.prometheus.set("survey_working", 0)

    def turn(self, clock: Callable[[], int], n_surveys: int) -> int:
        """Publishes at most one step, if a step is due. If Kafka lacks publications, also sends those that are kept in Redis.

        Args:
            clock: returns the present time in Unix ms, or raises `ClockJumped`; then nothing is done.

        Returns:
            The number of milliseconds until the next turn.
        """
        began_s, trouble = monotonic(), "failed"
        try:
            pause = self._turn(clock(), n_surveys)
            trouble, self._warned = "", ""
            return pause
        except (LogUnavailable, StoreUnavailable, Unreachable) as error:
            trouble, self._topic_lost = str(error), isinstance(error, TopicUnavailable)
            if self._alone and self._schedule is None and isinstance(error, StoreRefused):
                raise
            self._warn(error)
            # a survey whose requests only time out must not take all of the loop's time
            return RETRY_MS + (0 if self._alone else round(1000 * (monotonic() - began_s)))
        except Exception as error:
            if self._alone:
                raise
            trouble = str(error) if isinstance(error, UserError) else type(error).__name__
            said = {"exc_info": True} if not isinstance(error, UserError) else {"error": str(error)}
            log.error("survey not estimated", survey=self.survey.name, **said)
            return REFUSED_MS
        finally:
            self.trouble = trouble or None
            self.prometheus.set("survey_working", not trouble)

    def _warn(self, error: Exception) -> None:
        why = str(error)
        if why != self._warned or monotonic() - self._warned_s >= WARN_S:
            log.warning("estimate delayed", survey=self.survey.name, error=why)
            self._warned, self._warned_s = why, monotonic()

    def _turn(self, now_ms: int, n_surveys: int) -> int:
        if self._schedule is None or self._vitals is None:
            self._open()
            return 0
        if self._topic_lost:
            self._create_topics()
        self._vitals.look(now_ms)
        began_s = monotonic()
        made = self._schedule.turn(now_ms)
        if made:
            self.prometheus.set("estimate_load_ratio", (monotonic() - began_s) * 1000 / self.survey.step_ms)
            for p in made:
                if p.span == "step" and p.cohort is None:
                    told = {"step": p.step, "reports": p.reports, "complete": p.complete}
                    log.info("published", survey=p.survey, attribute=p.attribute, **told)
        if not self._schedule.leads:  # another estimator works on this survey
            self.prometheus.set("estimate_load_ratio", 0)
            if self._topic is not None:
                self._topic.close()
        return pause_ms(self._schedule.due_ms(), now_ms, n_surveys) if made is None else 0

    def _create_topics(self) -> None:
        try:
            self._engine.check(self.survey)
        except Unreachable:
            raise
        except UserError as error:
            raise TopicUnavailable(str(error)) from None  # a running estimator goes on, and tries again
        self._topic_lost = False

    def _open(self) -> None:
        position, self._topic = self._engine.open(self.survey)
        self._vitals = Vitals(self.survey, self.store, position, self.results, self.prometheus)
        steps = self._engine.deadline_steps
        self._schedule = Schedule(self.survey, self.store, position, self.results, [self.prometheus], self._topic, steps)

    def close(self) -> None:
        if self._topic is not None:
            self._topic.close()


def pause_ms(due_ms: int | None, now_ms: int, n_surveys: int) -> int:
    """Returns the pause until a survey's next turn: short near the time when the next step is due, otherwise long.

    If a step is overdue, the pause is a quarter of its delay, and up to the whole delay with several surveys.
    """
    longest = TICK_MS * min(n_surveys, MOST_TICKS)
    if due_ms is None:
        return longest
    early_ms, late_ms = due_ms - now_ms, (now_ms - due_ms) * min(n_surveys, 4) // 4
    return min(max(early_ms, late_ms, SHORTEST_TICK_MS), longest)
