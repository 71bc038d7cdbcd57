"""A simulated population of devices: their enrolment, their memos, and their reports step by step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Mechanism, Reports
from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer
from ldpstream.producers.memos import Memos
from ldpstream.producers.randomness import Purpose, stream
from ldpstream.producers.usage import UsageValues
from ldpstream.producers.values import ValueSource, WithPairs
from ldpstream.surveys import Survey

Cohorts = Callable[[int], npt.NDArray[np.uint8]]  # step -> the cohort of each person


@dataclass(frozen=True, slots=True, eq=False)
class PaneReports:
    """All reports of one pane, that is, of one attribute, level, cohort and step. The order of the reports is random.

    Attributes:
        reports: (n,) rows of the mechanism's `report_dtype`; n may be 0.
        truth: (k,) int64, number of the pane's people with each value (`Mechanism.counts_of`). People who do not report at this
            step also count.
        numbers: (m,) float64, the numbers of the same people in any order (`ValueSource.numbers`); None without bins.
    """

    attribute: int
    level: int
    cohort: int
    step: int
    reports: Reports
    truth: IntArray
    numbers: FloatArray | None


class Population:
    """Simulated devices that answer a survey.

    A person draws the permanent choices of a `Device`, and for each answered attribute also a level, uniformly. The person
    reports at each step at which the person has a value, as the level's `every_steps` and `lifetime_reports` allow. The cohorts
    of `UsageValues` are versions, which change. With any other source, a person's cohort is drawn: cohort i, from 0, with a
    probability proportional to 1/(i+1).

    The reports of a step depend only on the survey, the source and the seed.

    Args:
        seed: seed of the devices' randomness, at least 0; independent of a source with the same seed.
    """

    def __init__(self, survey: Survey, source: ValueSource, seed: int) -> None:
        seed = integer("seed", seed, 0, 2**63)
        self.n_steps = source.n_steps
        cohorts, values = _cohorts(survey, source, seed), WithPairs(survey, source)
        self._groups = [
            _Group(values, survey.mechanisms[attribute][level].device, members, fakes, cohorts, seed, attribute, level)
            for attribute, level, members, fakes in _enroll(survey, source.n_people, seed)
        ]

    def reports(self, step: int) -> Iterator[PaneReports]:
        """Yields the reports of a step in [0, n_steps).

        For each attribute and level with reports at this step, there is one pane for each cohort of which people have a value.
        """
        integer("step", step, 0, self.n_steps - 1)
        for group in self._groups:
            yield from group.reports(step)


def _cohorts(survey: Survey, source: ValueSource, seed: int) -> Cohorts:
    if isinstance(source, UsageValues):
        return source.cohorts_at
    cumulated = np.cumsum(1 / np.arange(1, survey.n_cohorts + 1))
    drawn = stream(seed, Purpose.COHORTS).random(source.n_people) * cumulated[-1]
    of_people = np.asarray(np.searchsorted(cumulated, drawn, side="right"), np.uint8)
    return lambda step: of_people


def _enroll(survey: Survey, n_people: int, seed: int) -> Iterator[tuple[int, int, IntArray, IntArray]]:
    everyone = np.arange(n_people)
    sampled = stream(seed, Purpose.ATTRIBUTES).integers(len(survey.attributes), size=n_people)
    for a, attribute in enumerate(survey.attributes):
        people = np.flatnonzero(sampled == a) if survey.collection == "smp" else everyone
        fakes = np.full(len(people), -1)
        if survey.collection == "rs+fd":
            fakes = np.where(sampled == a, -1, stream(seed, Purpose.FAKES, a).integers(attribute.k, size=n_people))
        levels = stream(seed, Purpose.LEVELS, a).integers(len(attribute.levels), size=len(people))
        for level in range(len(attribute.levels)):
            yield a, level, people[levels == level], fakes[levels == level]


class _Group:
    def __init__(
        self,
        source: WithPairs,
        mechanism: Mechanism,
        members: IntArray,
        fakes: IntArray,
        cohorts: Cohorts,
        seed: int,
        attribute: int,
        level: int,
    ) -> None:
        self._source, self._mechanism, self._members, self._fakes = source, mechanism, members, fakes
        self._seed, self._attribute, self._level, self._cohorts = seed, attribute, level, cohorts
        phases = stream(seed, Purpose.PHASES, attribute, level)
        self._phases = phases.integers(mechanism.every_steps, size=len(members))
        self._turns, self._next_turn = np.zeros(len(members), np.int64), 0  # how often each device was due before `_next_turn`
        if mechanism.memoized:
            self._enrolment = mechanism.enroll(len(members), stream(seed, Purpose.ENROLMENT, attribute, level))
            self._memos = Memos(mechanism)
            self._next_step = 0  # the memos for all steps before this step are drawn

    def reports(self, step: int) -> Iterator[PaneReports]:
        present, values = self._present(step)
        due = self._due(step, present)
        if not due.any():
            return
        rng = self._stream(Purpose.REPORTS, step)
        if self._mechanism.memoized:
            for earlier in range(self._next_step, step):
                self._recall(earlier, *self._present(earlier))
            reports = self._mechanism.report(self._recall(step, present, values), rng)
            self._next_step = max(self._next_step, step + 1)
        else:
            reports = self._mechanism.simulate(self._put_in(present[due], values[due]), rng)
        numbers = self._source.numbers(step, self._attribute)
        if numbers is not None:
            numbers = numbers[self._answering(self._source.at(step, self._attribute)[0])[1]]
        order = rng.permutation(len(reports))
        reports, cohorts = reports[order], self._cohorts(step)[self._members[present]]
        senders = cohorts[due][order]
        for cohort in np.unique(cohorts).tolist():
            of_cohort = cohorts == cohort
            truth, behind = self._mechanism.counts_of(values[of_cohort]), None if numbers is None else numbers[of_cohort]
            yield PaneReports(self._attribute, self._level, cohort, step, reports[senders == cohort], truth, behind)

    def _due(self, step: int, present: IntArray) -> npt.NDArray[np.bool_]:
        due = self._on_turn(step, present)
        if self._mechanism.lifetime_reports is not None:
            if step < self._next_turn:
                self._turns[:], self._next_turn = 0, 0
            for earlier in range(self._next_turn, step):
                devices, _ = self._present(earlier)
                self._turns[devices[self._on_turn(earlier, devices)]] += 1
            left = self._turns[present] < self._mechanism.lifetime_reports
            self._turns[present[due]] += 1
            self._next_turn = step + 1
            due &= left
        return due

    def _on_turn(self, step: int, devices: IntArray) -> npt.NDArray[np.bool_]:
        return np.asarray(self._phases[devices] == step % self._mechanism.every_steps)

    def _present(self, step: int) -> tuple[IntArray, IntArray]:
        people, values = self._source.at(step, self._attribute)
        places, present = self._answering(people)
        return places[present], values[present]

    def _answering(self, people: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        places = np.searchsorted(self._members, people)
        places[places == len(self._members)] = 0
        return places, self._members[places] == people if len(self._members) else np.zeros(len(people), bool)

    def _put_in(self, devices: IntArray, values: IntArray) -> IntArray:
        fakes = self._fakes[devices]
        return np.where(fakes < 0, values, fakes)

    def _recall(self, step: int, devices: IntArray, values: IntArray) -> Reports:
        enrolment, values = self._enrolment[devices], self._put_in(devices, values)

        def draw(new: IntArray) -> Reports:
            return self._mechanism.memoize(values[new], self._stream(Purpose.MEMOS, step), enrolment[new])

        return self._memos.recall(devices, self._mechanism.memo_keys(values, enrolment), draw)

    def _stream(self, purpose: Purpose, step: int) -> np.random.Generator:
        return stream(self._seed, purpose, self._attribute, self._level, step)
