"""Random lists of faults for estimators that share several surveys.

Each estimator gives its surveys turns of one step. At any request of a turn, an estimator may hang while another estimator
works on all surveys; then the first continues. Agents count late, so steps are published incomplete and again. For each survey:

    every complete publication has all reports of its steps, and none of another survey;
    no publication replaces a more complete one;
    in the end every step is published complete.
"""

import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.publishing.process.survey_estimator import _OneStep
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import Survey
from tests.agents.samples import make_survey

from .code import MARGIN_MS, Code
from .invariant import Published, Violation, publish_counts
from .memory_store import MemoryCountStore, MemoryResults
from .memory_topic import MemoryTopic, TopicClient

SURVEY = make_survey()
SURVEYS, ESTIMATORS, STEPS = 3, 2, 6


class Site:
    """A survey with its log, count store, results and topic. The log has one record in each step, and markers; step s of
    survey i has 100 i + s + 1 reports."""

    def __init__(self, number: int, now_ms: Callable[[], int]) -> None:
        self.survey: Survey = replace(SURVEY, name=f"survey-{number}")
        self.reports = [100 * number + step + 1 for step in range(STEPS)]
        self.store, self.results = MemoryCountStore(self.survey), MemoryResults()
        self.topic, self._now_ms, self._counted = MemoryTopic(now_ms), now_ms, 0
        self._log: list[tuple[int, int | None]] = []
        self._begun = 0  # number of steps whose record is in the log

    def described(self) -> tuple[str, tuple[int]]:
        return "", (0,)

    def earliest_ms(self) -> int:
        return self.survey.opens_ms(0)

    def ends(self) -> dict[int, int]:
        return {0: len(self._records())}

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        self._records().append((self._now_ms(), None))
        return dict.fromkeys(partitions, self._now_ms())

    def _records(self) -> list[tuple[int, int | None]]:
        """Returns all records so far: the append time, and the step of the reports; None for a marker."""
        while self._begun < STEPS and self.survey.opens_ms(self._begun) < self._now_ms():
            self._log.append((self.survey.opens_ms(self._begun), self._begun))
            self._begun += 1
        return self._log

    def count(self) -> bool:
        """Counts the next record; False if the log has none."""
        if self._counted == len(self._records()):
            return False
        appended_ms, step = self._log[self._counted]
        panes = {}
        if step is not None:
            mechanism = self.survey.mechanisms[0][0]
            values = np.zeros(self.reports[step], np.int64)
            panes[PaneKey(0, 0, step)] = mechanism.tabulate(mechanism.simulate(values, np.random.default_rng(step)))
        change = Checkpoint(self._counted + 1, appended_ms, panes)
        assert self.store.commit(0, (self._counted, "") if self._counted else None, change)
        self._counted += 1
        return True

    def check(self) -> None:
        best: dict[str, Published] = {}
        for _, p in self.topic.records:
            should = sum(self.reports[step] for step in p.steps if 0 <= step < STEPS) if p.attribute == 0 else 0
            if p.complete and p.reports != should:
                raise Violation(f"{self.survey.name}: {p.key} complete with {p.reports} of {should} reports")
            before = best.get(p.key)
            if before is not None and (before.complete, before.reports) > (p.complete, p.reports):
                raise Violation(f"{self.survey.name}: {before} was replaced by {p}")
            best[p.key] = p

    def check_end(self) -> None:
        self.check()
        for step in range(STEPS):
            p = self.topic.last.get(f"{self.survey.attributes[0].name}|step|{step}")
            if p is None or not p.complete:
                raise Violation(f"{self.survey.name}: step {step} is not published complete")


class Asked:
    """A proxy that calls `before` before each request."""

    def __init__(self, asked: Any, before: Callable[[], None]) -> None:
        self._asked, self._before = asked, before

    def __getattr__(self, question: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            self._before()
            return getattr(self._asked, question)(*arguments)

        return ask


class Run:
    """Runs a random list of operations. `topic` makes an estimator's client of a survey's topic."""

    def __init__(self, seed: int, topic: Callable[[MemoryTopic, list[Any]], Any]) -> None:
        self._random, self.now_ms = random.Random(seed), SURVEY.opens_ms(0)
        self.hung = 0
        self.sites = [Site(number, lambda: self.now_ms) for number in range(SURVEYS)]
        module = Code.real().schedule
        publish_counts(module)
        self._schedules = []
        self._until_hang, self._working = -1, 0
        for _ in range(ESTIMATORS):
            clients: list[Any] = []
            made = []
            for site in self.sites:
                clients.append(topic(site.topic, clients))
                parts = [Asked(part, self._before) for part in (site.store, site, site.results, clients[-1])]
                made.append(module.Schedule(site.survey, *parts[:3], [], topic=parts[3]))
            self._schedules.append(made)

    def run(self, length: int = 60) -> None:
        for _ in range(length):
            match self._random.randrange(4):
                case 0:
                    self.now_ms += self._random.choice([1, 1, 2]) * SURVEY.step_ms // 2
                case 1:
                    self._random.choice(self.sites).count()
                case _:
                    self._until_hang = self._random.randrange(30)
                    self._turn(self._random.randrange(ESTIMATORS), self._random.randrange(SURVEYS))
                    self._until_hang = -1
            for site in self.sites:
                site.check()
        self.now_ms = max(self.now_ms, SURVEY.closes_ms(STEPS + 1) + MARGIN_MS)
        for _ in range(3 * STEPS):
            for site in self.sites:
                while site.count():
                    pass
            self._turns_of(0)
        for site in self.sites:
            site.check_end()

    def _turns_of(self, estimator: int) -> None:
        for survey in range(SURVEYS):
            self._turn(estimator, survey)

    def _turn(self, estimator: int, survey: int) -> None:
        self._working = estimator
        with suppress(LogUnavailable):
            self._schedules[estimator][survey].run(self.now_ms, _OneStep(lambda: False))

    def _before(self) -> None:
        """Lets the estimator hang here, if it is time: meanwhile agents count and the other estimator works."""
        self._until_hang -= 1
        if self._until_hang != 0:
            return
        self.hung += 1
        for site in self._random.sample(self.sites, 2):
            site.count()
        other = 1 - self._working
        for _ in range(self._random.randrange(1, 3)):
            self._turns_of(other)


def real(topic: MemoryTopic, _: list[Any]) -> Any:
    return TopicClient(topic)


class MixedFences(TopicClient):
    """A mutant: an estimator that has taken over the topic of any survey may publish to the topics of all its surveys."""

    def __init__(self, topic: MemoryTopic, others: list[Any]) -> None:
        super().__init__(topic)
        self._others = others

    def publish(self, publications: list[Any]) -> int:
        if any(other._topic.owner is other for other in self._others):
            self._topic.records += [(self._topic.now_ms(), p) for p in publications]
            return self.end()
        return super().publish(publications)


def test_no_fault_makes_an_estimate_of_any_survey_falsely_complete() -> None:
    hung = 0
    for seed in range(60):
        run = Run(seed, real)
        run.run()
        hung += run.hung
    assert hung > 300


def test_the_search_finds_an_estimator_that_mixes_the_fences_of_surveys() -> None:
    with pytest.raises(Violation, match="was replaced by"):
        for seed in range(60):
            Run(seed, MixedFences).run()
