"""Tests the gauges of the estimator: the counting agents' lag, and detected jumps."""

import math

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.publishing.estimates.publication import Jump, Publication
from ldpstream.publishing.process.vitals import LAG_EVERY_MS, Vitals
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import MARGIN_MS, Schedule
from tests.faults.memory_store import MemoryCountStore, MemoryResults

from .metrics_rig import Gauges
from .schedule_rig import SURVEY, ScheduleLog


def log_of(*n_records: int) -> ScheduleLog:
    return ScheduleLog(*([SURVEY.start_ms] * n for n in n_records))


class Watched:
    """An estimator with its gauges; the estimator works or is on standby."""

    def __init__(self, store: MemoryCountStore, log: ScheduleLog, results: KeptResults) -> None:
        self.gauge = Gauges(SURVEY)
        self.vitals = Vitals(SURVEY, store, log, results, self.gauge)
        self.schedule = Schedule(SURVEY, store, log, results, [self.gauge])


def due_s(step: int) -> float:
    return (SURVEY.closes_ms(step) + MARGIN_MS) / 1000


def test_the_lag_counts_uncounted_records_and_is_never_negative() -> None:
    store, log = MemoryCountStore(SURVEY), log_of(100, 50, 7)
    store.commit(0, None, Checkpoint(60, 0, {}, {}))
    store.commit(2, None, Checkpoint(9, 0, {}, {}))  # counted when the log was longer
    watched, now_ms = Watched(store, log, MemoryResults()), SURVEY.start_ms
    watched.vitals.look(now_ms)
    assert watched.gauge("lag_records") == 40 + 50 + 0
    log.times = log_of(200, 50, 7).times
    watched.vitals.look(now_ms + LAG_EVERY_MS - 1)
    assert watched.gauge("lag_records") == 90, "the agents have not read the log again yet"
    watched.vitals.look(now_ms + LAG_EVERY_MS)
    assert watched.gauge("lag_records") == 190


@pytest.mark.parametrize(("now_step", "due"), [(-3, 0), (0, 0), (4, 4)])
def test_an_estimator_without_progress_becomes_overdue(now_step: int, due: int) -> None:
    watched = Watched(MemoryCountStore(SURVEY), log_of(1), MemoryResults())
    unknown = watched.gauge("next_estimate_due_timestamp_seconds")
    assert unknown is not None
    assert math.isnan(unknown)  # 0 would be overdue
    for later in range(3):
        watched.vitals.look(SURVEY.opens_ms(now_step + later) + 1)
        assert watched.gauge("next_estimate_due_timestamp_seconds") == due_s(due)


def test_an_ended_survey_is_never_overdue() -> None:
    ending, results = replace(SURVEY, ends=4), MemoryResults()
    gauges = Gauges(ending)
    vitals = Vitals(ending, MemoryCountStore(ending), log_of(1), results, gauges)
    due = []
    for next_step in (3, 4):
        assert results.save([], results.progress(), Progress(first_step=0, next_step=next_step))
        vitals.look(ending.closes_ms(9))
        due.append(gauges("next_estimate_due_timestamp_seconds"))
    assert due == [due_s(3), math.inf]


def test_a_standby_estimator_shows_the_working_ones_estimates() -> None:
    store, log, results = MemoryCountStore(SURVEY), log_of(1), MemoryResults()
    m = SURVEY.mechanisms[0][0]
    store.commit(0, None, Checkpoint(0, SURVEY.closes_ms(9), {PaneKey(0, 0, 1): m.tabulate(np.zeros(5, np.uint8))}, {}))
    works, stands_by = Watched(store, log, results), Watched(store, log, results)
    now_ms = SURVEY.closes_ms(1) + MARGIN_MS
    works.schedule.run(now_ms)
    for each in (works, stands_by):
        each.vitals.look(now_ms)
        assert each.gauge("estimate_step", attribute="screen", span="step") == 1
        assert each.gauge("estimate_reports", attribute="screen", span="window") == 5
        assert each.gauge("next_estimate_due_timestamp_seconds") == due_s(2)


def filtered_and_alone(watched: Watched, results: MemoryResults) -> tuple[Publication, Publication]:
    """Publishes steps 0 and 1; returns the filtered curve and the step alone, of an attribute with two levels."""
    watched.schedule.run(SURVEY.closes_ms(1) + MARGIN_MS)
    curve, alone = results.get(["latency_ms|filtered|1", "latency_ms|step|1"])
    assert curve is not None
    assert alone is not None
    return curve, alone


def two_steps() -> MemoryCountStore:
    store, rng = MemoryCountStore(SURVEY), np.random.default_rng(1)
    panes = {
        PaneKey(1, level, step): m.tabulate(m.simulate(rng.integers(0, m.k, 500), rng))
        for level, m in enumerate(SURVEY.mechanisms[1])
        for step in range(2)
    }
    store.commit(0, None, Checkpoint(0, SURVEY.closes_ms(9), panes, {}))
    return store


def test_the_filtered_curve_has_gauges_of_its_shares_and_none_of_counts() -> None:
    results = MemoryResults()
    watched = Watched(two_steps(), log_of(1), results)
    curve, alone = filtered_and_alone(watched, results)
    of = {"attribute": "latency_ms", "span": "filtered"}
    value = of | {"estimator": "filter", "index": "00", "value": SURVEY.attributes[1].label(0)}
    assert watched.gauge("frequency_ratio", **value) == curve.estimators["filter"].frequencies[0]
    low, high = curve.estimators["filter"].estimate().interval()
    assert watched.gauge("frequency_low_ratio", **value) == low[0]
    assert watched.gauge("frequency_high_ratio", **value) == high[0]
    assert watched.gauge("estimate_reports", **of) == alone.reports == 1000
    assert (watched.gauge("estimate_step", **of), watched.gauge("estimate_complete", **of)) == (1, 1)
    for name in ("levels_sigma", "levels_p"):
        assert watched.gauge(name, **of) is None
        assert watched.gauge(name, **of | {"span": "step"}) is not None


def test_the_gauges_show_the_last_jump_and_the_counter_counts_published_jumps() -> None:
    results = MemoryResults()
    curve, alone = filtered_and_alone(Watched(two_steps(), log_of(1), results), results)
    assert curve.change is None
    prometheus = Gauges(SURVEY)

    def gauges() -> list[float | None]:
        """Returns the number of jumps, and the size of the last jump."""
        return [prometheus(name, attribute="latency_ms") for name in ("changes_total", "change_size_ratio")]

    def at(step: int, changed_at: int | None, size: float = -0.03) -> Publication:
        jump = None
        if changed_at is not None:
            jump = Jump(changed_at=changed_at, value=3, size=size, low=size - 0.01, high=size + 0.01, sigma=7.5)
        return msgspec.structs.replace(curve, step=step, change=jump)

    before = pytest.approx([0, math.nan], nan_ok=True)
    assert gauges() == before, "exported from the start"
    prometheus.publish([alone, curve])
    assert gauges() == before
    prometheus.show([at(2, 1)])
    assert gauges() == [0, -0.03], "another estimator published this jump"
    prometheus.publish([at(3, 3, 0.05), at(4, None), at(5, None), at(9, None)])
    assert gauges() == [1, 0.05], "later steps of the same run keep the jump"
    prometheus.publish([at(6, 5, 0.02)])
    assert gauges() == [2, 0.02], "became final after step 9"
    prometheus.publish([at(4, 4)])
    assert gauges() == [3, 0.02], "older than the jump shown"
    assert prometheus("estimate_step", attribute="latency_ms", span="filtered") == 9
