"""The demo: simulated devices, the log, the count tables, the schedule and the estimates in one process on a virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ldpstream.embedded import EmbeddedService, MemoryLog
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.sinks import MemorySink
from ldpstream.producers.values import ValueSource
from ldpstream.publishing.publication import Publication
from ldpstream.surveys import Survey

PARTITIONS = 4


@dataclass
class Truth:
    """The true answers of simulated participants.

    Attributes:
        counts: (attribute, cohort, step) -> (k,) number of participants with each true value, or for sets with each member of
            the padded set; cohort None for everybody.
    """

    counts: dict[tuple[int, int | None, int], IntArray] = field(default_factory=dict)

    def add(self, attribute: int, cohort: int, step: int, counts: IntArray) -> None:
        for key in ((attribute, cohort, step), (attribute, None, step)):
            known = self.counts.get(key)
            self.counts[key] = counts if known is None else known + counts

    def of(self, survey: Survey, publication: Publication) -> list[float] | None:
        """Returns the true frequencies of a publication's span; None if nobody answered."""
        attribute = survey.index(publication.attribute)
        cohort = None if publication.cohort is None else survey.cohort_index(publication.cohort)
        width = survey.window_steps if publication.span == "window" else 1
        steps = range(publication.step - width + 1, publication.step + 1)
        known = ((attribute, cohort, s) for s in steps)
        total = sum((self.counts[key] for key in known if key in self.counts), np.zeros(1, np.int64))
        most = survey.attributes[attribute].most or 1  # everybody's padded set has this number of members
        return (most * total / total.sum()).tolist() if total.sum() else None


class Demo:
    """A survey answered by simulated devices through the embedded service."""

    def __init__(self, survey: Survey, source: ValueSource, seed: int) -> None:
        self._survey, self._source, self._population = survey, source, Population(survey, source, seed)
        self._log = MemoryLog(PARTITIONS, survey.opens_ms(0))
        self.service = EmbeddedService(survey, self._log)
        self.truth = Truth()

    def run(self, seen: Callable[[int, list[Publication]], None]) -> None:
        """Runs every step that both the source and the survey have, and then the steps until the last one has closed.

        Args:
            seen: called after every step with the step's number and the publications made at this step.
        """
        survey, log, sink = self._survey, self._log, MemorySink(self._log.append)
        n_steps = self._source.n_steps if survey.n_steps is None else min(self._source.n_steps, survey.n_steps)
        for step in range(n_steps):
            log.now_ms = survey.opens_ms(step)
            for (attribute, _, cohort), answered in produce_step(survey, self._population, sink, step).items():
                self.truth.add(attribute, cohort, step, answered.truth)
            self.service.count()
            seen(step, self.service.estimate())
        for step in range(n_steps, n_steps + survey.lateness_steps + 1):
            log.now_ms = survey.opens_ms(step) + survey.step_ms // 2
            self.service.count()
            seen(step, self.service.estimate())
