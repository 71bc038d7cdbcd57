"""The parts of an estimator with several surveys: turns and metrics."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.publishing.process import estimator_loop
from ldpstream.publishing.process.estimator_loop import next_turn
from ldpstream.publishing.process.prometheus_publisher import BRIEF_VALUES, PrometheusPublisher, SurveyMetrics
from ldpstream.publishing.process.survey_estimator import SurveyEstimator
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.runtime.settings import Settings
from ldpstream.services.cluster import Cluster
from tests.faults.memory_store import MemoryCountStore, MemoryResults
from tests.faults.memory_topic import MemoryTopic, TopicClient
from tests.publishing.page.page_rig import many

from .schedule_rig import MARGIN_MS, SURVEY, Schedule, ScheduleLog, keys, pane


def test_a_slow_survey_delays_every_other_survey_by_at_most_one_turn() -> None:
    """On a virtual clock: "slow" always has a step due, and each of its turns takes 900 ms. The other turns take 10 ms."""
    estimators: list[Any] = [SimpleNamespace(name=name, next_turn_ms=0) for name in ("slow", "b", "c", "d")]
    now_ms, waited = 0, dict[str, list[int]]()
    for _ in range(400):
        one: Any = next_turn(estimators)
        now_ms = max(now_ms, one.next_turn_ms)
        waited.setdefault(one.name, []).append(now_ms - one.next_turn_ms)
        now_ms += 900 if one.name == "slow" else 10
        one.next_turn_ms = now_ms if one.name == "slow" else now_ms + 200
    assert all(len(of) > 20 for of in waited.values())
    assert max(max(of) for name, of in waited.items() if name != "slow") <= 900 + 2 * 10
    assert next_turn([]) is None


def test_the_turns_of_several_steps_keep_the_topic() -> None:
    store, results = MemoryCountStore(SURVEY), MemoryResults()
    topic = Mock(wraps=TopicClient(MemoryTopic(lambda: 0)))
    store.commit(0, None, Checkpoint(4, SURVEY.opens_ms(4), {key: t for s in range(4) for key, t in pane(s).items()}))
    log = ScheduleLog([SURVEY.opens_ms(s) for s in range(4)])
    schedule = Schedule(SURVEY, store, log, results, [], topic=topic)
    made = []
    for _ in range(4):
        made += keys(schedule.turn(SURVEY.closes_ms(3) + MARGIN_MS) or [])
    assert made == [(step, True) for step in range(4)]
    assert (topic.take_over.call_count, topic.publish.call_count) == (1, 4)


def test_an_estimator_that_cannot_reach_kafka_lets_its_lease_expire() -> None:
    client, schedule, vitals = Mock(), Mock(), Mock()
    schedule.due_ms.return_value = None
    estimator = SurveyEstimator(SURVEY, Cluster(Settings(), client, Mock(), Mock()), CollectorRegistry(), False)
    estimator._schedule, estimator._vitals = schedule, vitals
    runs = []
    for fault in (None, LogUnavailable("no broker answers"), None):
        vitals.look.side_effect = fault
        estimator.turn(lambda: SURVEY.opens_ms(1), 2)
        runs.append(schedule.turn.call_count)  # each turn of the schedule renews the lease
    assert runs == [1, 1, 2]


def test_a_progress_that_the_page_reads_meanwhile_does_not_pass_the_fence() -> None:
    """The estimator continues from the progress `ours`; a page has meanwhile read the progress `theirs` of another
    estimator."""
    ours, theirs = (Progress(first_step=0, next_step=step, owner=owner) for step, owner in ((3, "a"), (4, "b")))
    stored = msgspec.json.encode(theirs)

    class Paged(KeptResults):
        seen: tuple[Progress | None, bytes | None]

        @property
        def _seen(self) -> tuple[Progress | None, bytes | None]:
            seen, self.seen = self.seen, (theirs, stored)
            return seen

        @_seen.setter
        def _seen(self, seen: tuple[Progress | None, bytes | None]) -> None:
            self.seen = seen

    client = Mock()
    client.get.return_value = msgspec.json.encode(ours)
    script = client.register_script.return_value
    results = Paged(SURVEY, RedisResults(SURVEY, client))
    assert results.progress() == ours
    results.seen = (ours, msgspec.json.encode(ours))
    results.save([], ours, replace(ours, next_step=4))
    assert script.call_args.kwargs["args"][0] != stored


def test_the_turns_go_on_after_the_wall_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, stop, hour_ms, set_back = list[int](), Event(), 3_600_000, Event()

    def turn(clock: Callable[[], int], *_: object) -> int:
        turns.append(clock())
        set_back.set()
        if len(turns) == 3:
            stop.set()
        return 10

    def clock() -> int:
        return now_ms() - hour_ms * set_back.is_set()

    made = Mock(survey=SURVEY, next_turn_ms=0)
    made.turn.side_effect = turn
    made.results.history.return_value = []
    monkeypatch.setattr(estimator_loop, "SurveyEstimator", lambda *_: made)
    watch = Mock(only_file=Path("survey.toml"), surveys={SURVEY.fingerprint: Mock(survey=SURVEY)})
    loop = estimator_loop.EstimatorLoop(watch, Mock(), stop, Settings(page_port=0), clock)
    running = Thread(target=loop.run, daemon=True)
    running.start()
    try:
        running.join(10)
        assert [turns[0] - at_ms > hour_ms // 2 for at_ms in turns] == [False, True, True]
    finally:
        stop.set()
        running.join(10)


def metrics(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_the_metrics_of_many_surveys_are_bounded_and_end_with_a_survey() -> None:
    """A survey of four attributes with 100 values has less than 700 lines, and no line after its removal."""
    page, top = SurveyMetrics(), CollectorRegistry()
    top.register(page)
    publishers, lines = [], [0]
    for i in range(3):
        survey, results = many(100, attributes=4, steps=1)
        survey = replace(survey, name=f"many-{i}")
        publisher = PrometheusPublisher(survey, page, brief=True)
        publisher.publish([replace(p, survey=survey.name) for p in results.history()])
        publishers.append(publisher)
        lines.append(len(metrics(top)))
    assert all(0 < after - before < 700 for before, after in pairwise(lines))
    shares = [line for line in metrics(top) if line.startswith("ldpstream_frequency_ratio")]
    assert len(shares) == 3 * 4 * 3 * BRIEF_VALUES  # surveys, attributes, spans
    text = generate_latest(top).decode()
    assert text.count("# TYPE ldpstream_frequency_ratio gauge") == 1
    page.unregister(publishers[1])
    assert not any('survey="many-1"' in line for line in metrics(top))
    assert any('survey="many-2"' in line for line in metrics(top))
    full = PrometheusPublisher(survey, alone := CollectorRegistry())
    full.publish(results.history())
    assert len(metrics(alone)) > 700  # the control
