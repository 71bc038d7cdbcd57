"""Tests of the load of an estimator process, and of the research estimators that a busy process leaves out."""

import math
from unittest.mock import Mock, patch

import pytest
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.api.routes import Served
from ldpstream.publishing.estimates.catalogue import ESTIMATORS
from ldpstream.publishing.estimates.thresholds import LOAD_MOST
from ldpstream.publishing.process import survey_estimator
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.publishing.process.survey_estimator import SurveyEstimator
from ldpstream.publishing.process.workload import RECENT, TRY_AGAIN_S, Workload
from ldpstream.runtime.settings import Settings
from ldpstream.services.cluster import Cluster
from tests.faults.memory_store import MemoryCountStore, MemoryResults

from .schedule_rig import MARGIN_MS, SURVEY, Schedule, ScheduleLog, pane

LATEST = 3


def test_research_is_left_out_after_several_slow_steps_and_tried_again_later() -> None:
    now_s = 0.0
    load = Workload(lambda: now_s)
    for _ in range(RECENT - 1):
        load.add(b"a", 5.0)
        assert load.research
    load.add(b"a", LOAD_MOST)  # the least of the last steps
    assert (load.research, load.of(b"a")) == (True, LOAD_MOST)
    for _ in range(RECENT):
        load.add(b"b", 0.01)
    assert (load.research, load.of(b"b")) == (False, 0.01)  # the surveys of a process share its time
    now_s = TRY_AGAIN_S
    assert load.research
    load.add(b"a", 1.0)  # as slow as before
    assert not load.research
    now_s = 2 * TRY_AGAIN_S
    load.add(b"a", 0.1)
    assert load.research
    load.drop(b"a")
    assert load.of(b"a") == 0


@pytest.mark.parametrize("slow", [False, True])
def test_a_survey_estimator_measures_each_step_with_all_estimators(slow: bool) -> None:
    registry, clock, schedule = CollectorRegistry(), iter(range(10**6)), Mock(leads=True)
    load, asked = Workload(lambda: 0.0), list[bool]()
    estimator = SurveyEstimator(SURVEY, Cluster(Settings(), Mock(), Mock(), Mock()), registry, load, False)
    estimator._schedule, estimator._vitals = schedule, Mock()
    schedule.due_ms.return_value = None

    def run(*_: object) -> list[Mock]:
        asked.append(estimator._research)
        return [Mock()]

    schedule.run.side_effect = run
    with patch.object(survey_estimator, "monotonic", lambda: next(clock) * SURVEY.step_ms / 1000 * (1 if slow else 0.01)):
        for _ in range(RECENT + 2):
            estimator.turn(SURVEY.opens_ms(1), lambda: False, 2)
    assert asked == [True] * RECENT + [not slow] * 2
    labels = {"survey": SURVEY.name}
    assert registry.get_sample_value("ldpstream_research_left_out", labels) == slow
    assert registry.get_sample_value("ldpstream_estimate_load_ratio", labels) == pytest.approx(1 if slow else 0.01)
    schedule.leads = False  # another estimator works on the survey
    estimator.turn(SURVEY.opens_ms(1), lambda: False, 2)
    assert load.of(SURVEY.fingerprint) == 0
    assert registry.get_sample_value("ldpstream_estimate_load_ratio", labels) == 0


def test_steps_without_research_have_the_same_other_numbers_and_no_old_gauges() -> None:
    results, registry, research = MemoryResults(), CollectorRegistry(), True
    whole = MemoryResults()
    prometheus = PrometheusPublisher(SURVEY, registry)
    store, log = MemoryCountStore(SURVEY), ScheduleLog([SURVEY.opens_ms(step) for step in range(LATEST + 1)])
    panes = {key: table for step in range(LATEST + 1) for key, table in pane(step, 50).items()}
    store.commit(0, None, Checkpoint(LATEST + 1, log.times[0][-1], panes))
    schedule = Schedule(SURVEY, store, log, results, [prometheus], research=lambda: research)
    for step in range(LATEST + 1):
        research = step != LATEST
        assert schedule.run(SURVEY.closes_ms(step) + MARGIN_MS)
    Schedule(SURVEY, store, log, whole, []).run(SURVEY.closes_ms(LATEST) + MARGIN_MS)
    left_out = set()
    for one, other in zip(results.history(), whole.history(), strict=True):
        assert one.estimators == {name: other.estimators[name] for name in one.estimators}
        assert (one.numbers, one.diagnostics, one.levels) == (other.numbers, other.diagnostics, other.levels)
        left_out |= {(one.step, name) for name in other.estimators if name not in one.estimators}
    assert left_out == {(LATEST, "ibu"), (LATEST, "mle")}
    labels = {
        "survey": SURVEY.name,
        "attribute": "screen",
        "span": "step",
        "index": "0",
        "value": SURVEY.attributes[0].label(0),
    }
    shown = {
        row.name: registry.get_sample_value("ldpstream_frequency_ratio", labels | {"estimator": row.name}) for row in ESTIMATORS
    }
    assert {name for name, x in shown.items() if x is not None and math.isnan(x)} == {"ibu", "mle"}
    with TestClient(create_api(Served(SURVEY, results, dict))) as client:
        answer = client.get("/api/v1/attributes/screen/histogram", params={"span": "step", "estimator": "ibu"})
        assert (answer.status_code, answer.json()["detail"]) == (
            422,
            f"estimator must be one of eb, mi, got 'ibu'; step {LATEST} has no other, since they would take too long",
        )
        found = client.get(f"/api/v1/attributes/screen/series?span=step&estimator=ibu&step={LATEST - 1}").json()
        assert found["steps"] == list(range(LATEST))
