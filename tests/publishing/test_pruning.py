"""Tests of an estimator that loses its count store, hangs before pruning, or is replaced by another estimator."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.runtime.errors import LogUnavailable
from tests.faults.memory_store import MemoryCountStore, MemoryResults
from tests.faults.memory_topic import MemoryTopic, TopicClient

from .schedule_rig import MARGIN_MS, SURVEY, Schedule, ScheduleLog, keys, pane


@pytest.fixture
def store() -> MemoryCountStore:
    return MemoryCountStore(SURVEY)


class Unfenced(MemoryCountStore):
    """A store for the control: prunes without checking the checkpoints."""

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        super().prune(before_step, self.snapshot())


class Unmarked(MemoryCountStore):
    """A store for the control: does not report which steps it pruned."""

    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        return {p: replace(checkpoint, pruned_below=0) for p, checkpoint in super().checkpoints(steps).items()}


def full(store: MemoryCountStore, steps: int, writer: str) -> ScheduleLog:
    """Counts five reports in each of `steps` steps; returns the log of these reports."""
    panes = {key: table for step in range(steps) for key, table in pane(step).items()}
    change = Checkpoint(steps, SURVEY.opens_ms(steps - 1), panes, writer=writer)
    assert store.commit(0, None, change)
    return ScheduleLog([SURVEY.opens_ms(step) for step in range(steps)])


@pytest.mark.parametrize(("kind", "right"), [(MemoryCountStore, True), (Unfenced, False)])
def test_late_pruning_keeps_tables_that_were_counted_again(kind: type[MemoryCountStore], right: bool) -> None:
    """An estimator hangs between saving and pruning. Meanwhile the store loses its data, and agents count the records again."""
    steps, results = SURVEY.window_steps + 4, MemoryResults()
    store = kind(SURVEY)
    log = full(store, steps, "before")
    now = SURVEY.closes_ms(steps - 1) + MARGIN_MS

    class Hanging(kind):  # type: ignore[misc, valid-type]  # the base class is a parameter
        def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
            store._checkpoints.clear()
            full(store, steps, "after")
            store.prune(before_step, seen)

        def heads(self) -> dict[int, Checkpoint]:
            return store.heads()

        def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
            return store.checkpoints(steps)

    log.store = store
    Schedule(SURVEY, store, log, results, []).run(now - SURVEY.step_ms)
    assert keys(Schedule(SURVEY, Hanging(SURVEY), log, results, []).run(now)) == [(steps - 1, True)]
    again = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    assert (keys(again) == [(step, True) for step in range(steps)]) is right
    assert all(p.reports == 5 for p in again if p.attribute == "screen" and p.span == "step") is right


@pytest.mark.parametrize(("kind", "right"), [(MemoryCountStore, True), (Unmarked, False)])
def test_a_step_whose_tables_were_pruned_is_never_complete(kind: type[MemoryCountStore], right: bool) -> None:
    """Example: somebody deletes the key of the progress."""
    steps = SURVEY.window_steps + 4
    store = kind(SURVEY)
    log, now = full(store, steps, "a"), SURVEY.closes_ms(steps - 1) + MARGIN_MS
    first = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    second = Schedule(SURVEY, store, log, MemoryResults(), []).run(now)
    true = {p.key: p.reports for p in first}
    assert all(p.complete for p in first)
    assert all(p.reports == true[p.key] for p in second if p.complete) is right
    assert any(not p.complete for p in second) is right
    assert second[-1].complete  # the store has the latest tables


def test_the_topics_publications_survive_loss_of_the_store(store: MemoryCountStore) -> None:
    """The estimator publishes no step again, and restores the results from the topic."""
    steps, topic = SURVEY.window_steps + 4, MemoryTopic(lambda: SURVEY.start_ms)
    log, now = full(store, steps, "a"), SURVEY.closes_ms(steps - 1) + MARGIN_MS
    before = MemoryResults()
    Schedule(SURVEY, store, log, before, [], topic=TopicClient(topic)).run(now)
    told = list(topic.records)
    assert len(told) == 3 * len(SURVEY.attributes) * steps
    results, anew = MemoryResults(), MemoryCountStore(SURVEY)
    schedule = Schedule(SURVEY, anew, log, results, [], topic=TopicClient(topic))
    assert schedule.run(now + 9 * SURVEY.step_ms)  # all deadlines have passed, but no record is counted yet
    history = [p for p in results.history() if p.step < steps]
    assert history == before.history()
    assert topic.records[: len(told)] == told
    assert all(p.step >= steps for _, p in topic.records[len(told) :])
    full(anew, steps, "b")
    schedule.run(now + 9 * SURVEY.step_ms)
    assert [p for p in results.history() if p.step < steps] == before.history()


def test_a_replaced_estimator_publishes_nothing(store: MemoryCountStore) -> None:
    """An estimator hangs before it publishes an incomplete step. Meanwhile another estimator publishes the complete step."""
    close, topic, results = SURVEY.closes_ms(0), MemoryTopic(lambda: SURVEY.start_ms), MemoryResults()
    log = ScheduleLog([SURVEY.start_ms, close - 1, close])
    store.commit(0, None, Checkpoint(1, SURVEY.start_ms, pane(0)))
    other = Schedule(SURVEY, store, log, results, [], topic=TopicClient(topic))

    class Slow(TopicClient):
        def publish(self, publications: list[Publication]) -> int:
            store.commit(0, (1, ""), Checkpoint(3, close, pane(0)))
            assert other.run(close + MARGIN_MS)
            return super().publish(publications)

    slow = Schedule(SURVEY, store, log, results, [], topic=Slow(topic))
    with pytest.raises(LogUnavailable):
        slow.run(slow.deadline_ms(0))
    assert keys([p for _, p in topic.records]) == [(0, True)]
    assert slow.run(slow.deadline_ms(0)) == []
    assert list(topic.last.values()) == results.get(list(topic.last))
