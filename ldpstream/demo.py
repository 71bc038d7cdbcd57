"""The demo: simulated devices, the log, the count tables, the schedule and the estimates in one process on a virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from estimators.publication import Publication
from estimators.results import MemoryResults
from ldpstream.embedded import EmbeddedService, MemoryLog
from mechanisms.arguments import IntArray
from producers.population import Population
from producers.produce import produce_step
from producers.sinks import MemorySink
from producers.values import ValueSource
from surveys import Survey

PARTITIONS = 4


@dataclass
class Truth:
    """What the participants really answered: only a simulation knows.

    Attributes:
        counts: (attribute index, step) -> (k,) number of participants by true value.
    """

    counts: dict[tuple[int, int], IntArray] = field(default_factory=dict)

    def add(self, attribute: int, step: int, counts: IntArray) -> None:
        """Add the answers of one level's participants."""
        known = self.counts.get((attribute, step))
        self.counts[attribute, step] = counts if known is None else known + counts

    def of(self, survey: Survey, publication: Publication) -> list[float] | None:
        """The true frequencies of a publication's span; None if nobody answered."""
        attribute = next(i for i, a in enumerate(survey.attributes) if a.name == publication.attribute)
        width = 1 if publication.span == "step" else survey.window_steps
        steps = range(publication.step - width + 1, publication.step + 1)
        total = sum((self.counts[attribute, s] for s in steps if (attribute, s) in self.counts), np.zeros(1, np.int64))
        return (total / total.sum()).tolist() if total.sum() else None


def run_demo(
    survey: Survey, source: ValueSource, seed: int, seen: Callable[[int, list[Publication]], None]
) -> tuple[MemoryResults, Truth, EmbeddedService]:
    """Run every step of the source through the embedded service, then let the last step close.

    Args:
        survey: the survey.
        source: the true values.
        seed: of the simulated devices.
        seen: told after every step of its number and of what was published.

    Returns:
        All publications, the truth, and the service.
    """
    log = MemoryLog(PARTITIONS, survey.opens_ms(0))
    service = EmbeddedService(survey, log)
    population, sink, truth = Population(survey, source, seed), MemorySink(log.append), Truth()
    for step in range(source.n_steps):
        log.now_ms = survey.opens_ms(step)
        for (attribute, _), answered in produce_step(survey, population, sink, step).items():
            truth.add(attribute, step, answered.truth)
        service.count()
        seen(step, service.estimate())
    for step in range(source.n_steps, source.n_steps + survey.lateness_steps + 1):
        log.now_ms = survey.opens_ms(step) + survey.step_ms // 2
        service.count()
        seen(step, service.estimate())
    return service.results, truth, service
