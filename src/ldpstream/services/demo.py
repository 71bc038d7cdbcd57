"""The demo: simulated devices report to the service of one machine, which keeps its data in memory, on a virtual clock."""

from collections.abc import Callable, Sequence

import numpy as np

from ldpstream.engines.folder.data_folder import MemoryFolder
from ldpstream.engines.folder.folder_log import FolderLog
from ldpstream.engines.folder.folder_results import FolderResults
from ldpstream.engines.folder.folder_store import FolderCountStore
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.sinks import MemorySink
from ldpstream.producers.values import ValueSource
from ldpstream.publishing.estimates.frequencies import UNKNOWN, TrueAnswers, true_numbers
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import Schedule
from ldpstream.services.counting import LogCounter
from ldpstream.surveys import Survey


class EmbeddedService:
    """Log, counting and estimates of `ldpstream serve` for one survey, in memory.

    Attributes:
        now_ms: the current time, in ms; assign to the attribute to move the clock.
        count: counts the records that the log has now.
        rejected: returns the number of envelopes rejected so far, by reason.
    """

    def __init__(self, survey: Survey) -> None:
        self.now_ms, self._folder = survey.opens_ms(0), MemoryFolder()
        self.log = FolderLog(self._folder, survey, lambda: self.now_ms)
        self.store = FolderCountStore(self._folder, survey)
        self.results = KeptResults(survey, FolderResults(self._folder, survey))
        self.count, self.rejected = LogCounter(survey, self.store, self.log).count, self.store.rejected
        self._schedule = Schedule(survey, self.store, self.log, self.results, [])

    def append(self, envelope: bytes) -> None:
        with self._folder.write() as db:
            self.log.append(db, [envelope], b"")

    def estimate(self) -> list[Publication]:
        """Publishes the steps that are due."""
        made = self._schedule.run(self.now_ms)
        while self.log.ends() != self.store.positions():  # the schedule has appended a marker
            self.count()
            made += self._schedule.run(self.now_ms)
        return made


class Truth:
    """The true answers of simulated people."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._counts: dict[tuple[int, int | None, int], IntArray] = {}  # attribute, cohort (None for everybody), step -> (k,)
        self._numbers: dict[tuple[int, int | None, int], list[FloatArray]] = {}  # of the latest steps
        self._known: dict[str, TrueAnswers] = {}  # by publication

    def add(self, attribute: int, cohort: int, step: int, counts: IntArray, numbers: FloatArray | None) -> None:
        """Adds people of one attribute, level, cohort and step; see `PaneReports`."""
        for key in ((attribute, cohort, step), (attribute, None, step)):
            known = self._counts.get(key)
            self._counts[key] = counts if known is None else known + counts
            if numbers is not None:
                self._numbers.setdefault(key, []).append(numbers)

    def settle(self, made: Sequence[Publication]) -> None:
        """Keeps the truth of new publications, and forgets the people's numbers that later publications do not need."""
        self._known |= {publication.key: self._of(publication) for publication in made}
        first = max((p.step + 2 - self._survey.window_steps for p in made), default=0)  # of the next publication's window
        self._numbers = {key: numbers for key, numbers in self._numbers.items() if key[2] >= first}

    def of(self, publication: Publication) -> TrueAnswers:
        """Returns the true answers in a publication's span; unknown before `settle`."""
        return self._known.get(publication.key, UNKNOWN)

    def _of(self, publication: Publication) -> TrueAnswers:
        survey = self._survey
        place = survey.index(publication.attribute)
        cohort = None if publication.cohort is None else survey.cohort_index(publication.cohort)
        width = survey.window_steps if publication.span == "window" else 1
        keys = [(place, cohort, step) for step in range(publication.step - width + 1, publication.step + 1)]
        total = sum((self._counts[key] for key in keys if key in self._counts), np.zeros(1, np.int64))
        if not total.sum():
            return UNKNOWN
        attribute = survey.attributes[place]
        shares = (attribute.most or 1) * total / total.sum()  # everybody's padded set has `most` members
        if attribute.most is not None:
            return TrueAnswers(shares.tolist(), {"mean": float(shares[: -attribute.most].sum())})
        if attribute.bins is None:
            numbers = np.repeat(np.arange(float(attribute.k)), total) if attribute.ordered and attribute.size else np.zeros(0)
        else:
            numbers = np.concatenate([np.zeros(0), *(part for key in keys for part in self._numbers.get(key, ()))])
        return TrueAnswers(shares.tolist(), true_numbers(numbers))


class Demo:
    """A survey answered by simulated devices through the embedded service."""

    def __init__(self, survey: Survey, source: ValueSource, seed: int) -> None:
        self._survey, self._source, self._population = survey, source, Population(survey, source, seed)
        self.service, self.truth = EmbeddedService(survey), Truth(survey)

    def run(self, seen: Callable[[int, list[Publication]], None]) -> None:
        """Runs every step that both the source and the survey have, and then the steps until the last one has closed.

        Args:
            seen: called after every step with the step's number and the publications made at this step.
        """
        survey, service, sink = self._survey, self.service, MemorySink(self.service.append)
        n_steps = self._source.n_steps if survey.n_steps is None else min(self._source.n_steps, survey.n_steps)
        for step in range(n_steps + survey.lateness_steps + 1):
            service.now_ms = survey.opens_ms(step) + survey.step_ms // 2
            for pane in produce_step(survey, self._population, sink, step) if step < n_steps else ():
                self.truth.add(pane.attribute, pane.cohort, step, pane.truth, pane.numbers)
            service.count()
            made = service.estimate()
            self.truth.settle(made)
            seen(step, made)
