"""Tests of sending a population's reports to a sink: one step at once, or each step when the step begins."""

from collections import Counter

import numpy as np
import pytest

from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_live, produce_step
from ldpstream.producers.sinks import TooLateError
from ldpstream.producers.values import MarkovValues
from ldpstream.surveys import Survey, open_envelope
from ldpstream.surveys.envelope import AnyEnvelope
from tests.producers.samples import level, make_survey

SURVEY = make_survey({"mode": (5, [level("L-GRR"), level("OLH")]), "zone": (100, [level("L-OSUE")])})
N_PEOPLE, N_STEPS = 3000, 4


class Recorder:
    """A sink that records envelopes and their times."""

    def __init__(self, clock: "Clock | None" = None) -> None:
        self.envelopes: list[bytes] = []
        self.sent_ms: list[int] = []
        self.flushed = 0
        self._clock = clock

    def send(self, envelope: bytes) -> None:
        self.envelopes.append(envelope)
        self.sent_ms.append(self._clock.now_ms() if self._clock else 0)
        if self._clock:
            self._clock.time_ms += self._clock.cost_ms

    def flush(self) -> None:
        self.flushed = len(self.envelopes)

    def close(self) -> None: ...


class Clock:
    """A clock that advances only by sleeping and by the time that sending takes."""

    def __init__(self, survey: Survey, starts_in_s: float, cost_ms: int = 0) -> None:
        self.time_ms = survey.opens_ms(0) - round(starts_in_s * 1000)
        self.cost_ms = cost_ms
        self.stop_at_ms: int | None = None

    def now_ms(self) -> int:
        return self.time_ms

    def sleep(self, seconds: float) -> bool:
        assert seconds >= 0
        until = self.time_ms + round(seconds * 1000)
        if self.stop_at_ms is not None and until >= self.stop_at_ms:
            self.time_ms = max(self.time_ms, self.stop_at_ms)
            return True
        self.time_ms = until
        return False


def make_population(seed: int = 1) -> Population:
    return Population(SURVEY, MarkovValues(SURVEY, N_PEOPLE, N_STEPS, seed), seed)


def opened(survey: Survey, envelopes: list[bytes], step: int) -> list[AnyEnvelope]:
    return [open_envelope(survey, envelope, survey.opens_ms(step)) for envelope in envelopes]


@pytest.mark.parametrize("step", range(2))
def test_envelopes_hold_the_populations_reports(step: int) -> None:
    sink = Recorder()
    sent = produce_step(SURVEY, make_population(), sink, step, envelope_bytes=512)
    assert sink.flushed == len(sink.envelopes) > 10
    found = opened(SURVEY, sink.envelopes, step)
    for pane, expected in zip(sent, make_population().reports(step), strict=True):
        mine = [e for e in found if (e.attribute, e.level, e.cohort) == (pane.attribute, pane.level, pane.cohort)]
        assert b"".join(e.payload for e in mine) == pane.reports.tobytes() == expected.reports.tobytes()
        assert sum(e.n for e in mine) == len(pane.reports) == pane.truth.sum()
        m = SURVEY.mechanisms[pane.attribute][pane.level]
        assert m.tabulate(np.frombuffer(pane.reports.tobytes(), m.report_dtype)).n == len(pane.reports)
    assert {(e.attribute, e.level, e.cohort) for e in found} == {(0, 0, 0), (0, 1, 0), (1, 0, 0)}
    assert sum(e.n for e in found) == N_PEOPLE


# ---- live


@pytest.mark.parametrize("starts_in_s", [1000.0, 0.5, 0.0, -59.0])
def test_every_step_is_sent_within_its_own_step(starts_in_s: float) -> None:
    clock = Clock(SURVEY, starts_in_s, cost_ms=10)
    sink = Recorder(clock)
    steps = dict(produce_live(SURVEY, make_population(), sink, clock.now_ms, clock.sleep, print))
    assert list(steps) == list(range(N_STEPS))
    assert sum(len(pane.reports) for panes in steps.values() for pane in panes) == N_PEOPLE * N_STEPS
    reports = Counter[int]()
    for envelope, sent_ms in zip(sink.envelopes, sink.sent_ms, strict=True):
        found = open_envelope(SURVEY, envelope, sent_ms)
        assert found.step == SURVEY.step_at(sent_ms)
        reports[found.step] += found.n
    assert reports == dict.fromkeys(range(N_STEPS), N_PEOPLE)


def test_producing_stops_on_request() -> None:
    clock = Clock(SURVEY, 10)
    clock.stop_at_ms = SURVEY.opens_ms(2) - 1
    sink = Recorder(clock)
    assert [step for step, _ in produce_live(SURVEY, make_population(), sink, clock.now_ms, clock.sleep, print)] == [0, 1]
    assert sink.flushed == len(sink.envelopes)
    clock.stop_at_ms = clock.time_ms = SURVEY.opens_ms(0)  # a stop works even with no time to wait
    assert list(produce_live(SURVEY, make_population(), sink, clock.now_ms, clock.sleep, print)) == []


@pytest.mark.parametrize(("seconds_ago", "first"), [(60, 1), (61, 1), (240, 4), (10**6, 16666)])
def test_people_join_a_survey_that_has_begun(seconds_ago: int, first: int) -> None:
    clock = Clock(SURVEY, -seconds_ago)
    sink = Recorder(clock)
    steps = dict(produce_live(SURVEY, make_population(), sink, clock.now_ms, clock.sleep, print))
    assert list(steps) == list(range(first, first + N_STEPS))
    reported = Recorder()
    for turn, step in enumerate(steps):  # the population's own steps still begin at 0
        panes = produce_step(SURVEY, make_population(), reported, step, turn=turn)
        assert [pane.truth.tolist() for pane in panes] == [pane.truth.tolist() for pane in steps[step]]
    assert sink.envelopes == reported.envelopes
    for envelope, sent_ms in zip(sink.envelopes, sink.sent_ms, strict=True):
        assert open_envelope(SURVEY, envelope, sent_ms).step == SURVEY.step_at(sent_ms)


def test_a_stalled_producer_continues_with_the_current_step() -> None:
    clock = Clock(SURVEY, 0)
    sink = Recorder(clock)
    live = produce_live(SURVEY, make_population(), sink, clock.now_ms, clock.sleep, print)
    assert next(live)[0] == 0
    clock.time_ms = SURVEY.closes_ms(7) + 1500
    assert next(live)[0] == SURVEY.step_at(clock.time_ms)
    for envelope, sent_ms in zip(sink.envelopes, sink.sent_ms, strict=True):
        open_envelope(SURVEY, envelope, sent_ms)


def test_a_step_that_closes_too_early_is_told_and_the_next_one_follows() -> None:
    per_step = Recorder()
    produce_step(SURVEY, make_population(), per_step, 0)
    allowed_ms = SURVEY.closes_ms(0) - SURVEY.opens_ms(0)
    just_in_time_ms = allowed_ms // len(per_step.envelopes)
    for cost_ms, late in ((just_in_time_ms - 1, False), (just_in_time_ms + 1, True)):
        clock, lines = Clock(SURVEY, 0, cost_ms), list[str]()
        live = produce_live(SURVEY, make_population(), Recorder(clock), clock.now_ms, clock.sleep, lines.append)
        if late:
            assert list(live) == []
            assert len(lines) == N_STEPS
            assert "step 0 closed before all its reports were sent, so some are lost" in lines[0]
        else:
            assert next(live)[0] == 0
            assert lines == []


def test_a_refusal_because_the_step_closed_loses_only_this_step() -> None:
    class Closed(Recorder):
        def flush(self) -> None:
            super().flush()
            if self.flushed and not lines:
                lines.append("refused")
                raise TooLateError("step too old")

    clock, lines = Clock(SURVEY, 0), list[str]()
    live = produce_live(SURVEY, make_population(), Closed(clock), clock.now_ms, clock.sleep, lines.append)
    assert [step for step, _ in live] == list(range(1, N_STEPS))
    (line,) = lines[1:]
    assert "step 0 closed before all its reports were sent" in line
