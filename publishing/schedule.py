"""Schedule of the estimates: estimates a step once agents cannot count more of its reports, or at the step's deadline.

A step closes at `Survey.closes_ms`. Agents do not count a report that is appended to the log after its step's close. A step has
passed once agents have counted, in every partition, a record appended at or after the close. If a step has not passed at its
deadline, it is published as incomplete, and estimated again once it has passed.

The reports of a step enter the estimates all at once, after the step has passed. Otherwise the difference of two publications
of a step would be the histogram of the reports counted in between, which may be one.

The schedule appends a *marker* to an idle partition: a record with an empty value, which agents skip.

A step that has passed is complete, unless lost records (`Missing`) may belong to it. Then also the windows with this step stay
incomplete. A span also stays incomplete if some tables of one of the span's steps have already been pruned.

The schedule saves its position with its results (`Progress`), so a restart skips no step. If a step is estimated twice, the
second publications have the same keys as the first, and replace them.

An estimator that hung may continue beside another one, so writes are fenced. The topic refuses an estimator's publications
after another estimator has taken the topic over. The estimator saves results only if the stored progress is still the progress
that it read.

An estimator takes the topic over if its last run was interrupted, or if the stored progress is not its own. The estimator then
reads the publications:

    a step that is complete in the topic but not in the results     results saved from the topic, not estimated again
    any other step                                                  estimated; never replaces a better publication (`quality`)
"""

import math
import secrets
import time
from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec
import structlog

from ldpstream.engines.checkpoint import Checkpoint, Missing, sum_cohorts, sum_tables, tables_of
from ldpstream.engines.count_store import CountStore
from ldpstream.publishing.copies import Copies
from ldpstream.publishing.estimates.cohorts import conclude_cohort, crowd_of
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.filtering import conclude_filtered, replay
from ldpstream.publishing.estimates.publication import Publication, edges_of, publication_key, publication_keys, spans
from ldpstream.publishing.progress import EstimatesTopic, Filters, Progress, PublicationSummary, begun
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import Survey

log = structlog.get_logger("ldpstream.estimator")

MARGIN_MS = 200  # time from a step's close, by our clock, until the schedule appends markers to idle partitions
RETRY_MS = 2_000  # time from refused markers to the next markers, after a step's deadline
RENEW_S = 0.25  # a lease renewed less than this time ago is not renewed before the next attribute; a lease lasts 5 s
TAKE_OVER_MS = 60_000  # duration of the lease while an estimator takes over and reads a topic


class LogPosition(Protocol):
    """The schedule's view of the log."""

    def described(self) -> tuple[str, Collection[int]]:
        """Returns the log's id and its partitions. The id changes if the topic is deleted and created again; "" if unknown."""

    def earliest_ms(self) -> int | None:
        """Returns the append time of the oldest record in the log; None if the log is empty."""

    def ends(self) -> dict[int, int]:
        """Returns for each partition the offset after the last record."""

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        """Appends a marker to each partition, and returns the markers' append times in Unix milliseconds."""


class Publisher(Protocol):
    """Receiver of publications. It may receive a publication twice."""

    def publish(self, publications: list[Publication]) -> None:
        """Receives publications."""


class Schedule:
    """Estimates the steps of a survey in order.

    Args:
        publishers: other receivers, called before the results are saved.
        deadline_steps: time from a step's close until the step is published even if it is incomplete, in steps.
    """

    def __init__(
        self,
        survey: Survey,
        store: CountStore,
        position: LogPosition,
        results: KeptResults,
        publishers: list[Publisher],
        topic: EstimatesTopic | None = None,
        deadline_steps: int = 1,
    ) -> None:
        self._deadline_steps = deadline_steps
        self._survey, self._store, self._position = survey, store, position
        self._results, self._publishers, self._topic = results, publishers, topic
        self._marked_ms, self._mark_again_ms = 0, 0
        self._log: tuple[str, Collection[int]] = ("", ())  # the id and the partitions of the log that `_passed` last saw
        self._renewed_s = -math.inf
        self._leads = False  # True after a turn without conflict: then the store has `_saved`, and we own the topic
        self._saved: Progress | None = None
        self._in_topic: dict[str, PublicationSummary] = {}
        self._copies = Copies(survey, results, topic, self._still_leads)
        self._next_step: int | None = None

    def run(self, now_ms: int) -> list[Publication]:
        """Publishes all steps that are due, oldest first, and returns the publications made."""
        made: list[Publication] = []
        while (of_step := self.turn(now_ms)) is not None:
            made += of_step
        return made

    def turn(self, now_ms: int) -> list[Publication] | None:
        """Publishes the oldest step that is due.

        Returns:
            The publications made, none for a step that was restored from the topic. None if no step was due, or if another
            estimator works.
        """
        if not self._lead():
            self._leads = False
            self._next_step = None
            return None
        saved = self._results.progress()
        taken_over = self._topic is not None and not (self._leads and saved == self._saved)
        if self._topic is not None and taken_over:
            self._leads = False
            self._in_topic = self._topic.take_over(0 if saved is None else max(0, saved.topic_end), self._still_leads)
            if saved is not None:
                owned = msgspec.structs.replace(saved, owner=secrets.token_hex(8))
                if not self._results.save([], saved, owned):
                    return None  # another estimator has continued
                saved = owned
        self._leads = False  # stays False until this turn ends without conflict
        if saved is not None and (saved := self._copies.compare(saved, now_ms, taken_over)) is None:
            return None  # another estimator has continued
        progress = saved or self._begin()
        made: list[Publication] | None = None
        if restored := self._restored(progress):
            step, publications = restored
            after, made = _without(progress, step), []
            filters = self._replayed(step, publications, saved) if self._is_final(step, after) else None
            if not self._save(publications, saved, after, filters):
                return None
            saved = progress = after
        elif due := self._due(progress, now_ms):
            step, passed, after = due
            first = max(progress.first_step, step - self._survey.window_steps + 1)
            held = range(max(progress.first_step, min(first, step - 1)), step + 1)  # includes the previous step, for the drift
            checkpoints = self._store.checkpoints(held)
            if passed and not self._counted(step, checkpoints):
                return None  # the store has lost writes since the last read
            final = self._is_final(step, after)
            concluded = self._conclude(checkpoints, first, step, after.incomplete, final, self._states(saved))
            if concluded is None or self._results.progress() != saved:
                return None  # another estimator leads or has continued
            made = self._best(concluded[0])
            after = self._copies.publish(made, after, self._in_topic.values())
            for publisher in self._publishers:
                publisher.publish(made)
            if not self._save(made, saved, after, concluded[1] if final else None):
                return None  # another estimator has continued, or the store was restored from an older copy
            self._prune(after, checkpoints)
            saved = progress = after
        self._leads, self._saved = True, saved
        self._next_step = None if self._survey.ended(progress.next_step) else progress.next_step
        return made

    def _lead(self) -> bool:
        self._renewed_s = time.monotonic()
        return self._results.lead()

    def _keeps_lease(self) -> bool:
        return time.monotonic() - self._renewed_s < RENEW_S or self._lead()

    def _still_leads(self) -> bool:
        self._renewed_s = -math.inf  # the next attribute shortens the lease again
        return self._results.lead(TAKE_OVER_MS)

    @property
    def leads(self) -> bool:
        """True if the last turn ended without conflict."""
        return self._leads

    def due_ms(self) -> int | None:
        """Returns the earliest time to estimate the next step.

        Returns None before the first turn, while another estimator works, and after the survey's last step.
        """
        return None if self._next_step is None else self._survey.closes_ms(self._next_step) + MARGIN_MS

    def _restored(self, progress: Progress) -> tuple[int, list[Publication]] | None:
        step = progress.first_open
        keys = publication_keys(self._survey, step)
        if self._topic is not None and all(key in self._in_topic and self._in_topic[key].complete for key in keys):
            found = self._topic.read(keys)
            if len(found) == len(keys):
                return step, found
        return None

    def _states(self, saved: Progress | None) -> Filters:
        """The states of the filters after the last final step, which are saved with each such step."""
        return {} if saved is None else self._results.filters()

    def _replayed(self, step: int, publications: list[Publication], saved: Progress | None) -> Filters:
        """Returns the states of the filters after restored publications."""
        states, found = self._states(saved), {p.key: p for p in publications}
        return {
            attribute.name: replay(mechanisms, found[publication_key(attribute.name, "step", step)], states.get(attribute.name))
            for attribute, mechanisms in zip(self._survey.attributes, self._survey.mechanisms, strict=True)
            if "filtered" in spans(attribute)
        }

    def _save(self, publications: list[Publication], saved: Progress | None, after: Progress, states: Filters | None) -> bool:
        if not self._results.save(publications, saved, after, states):
            return False
        made = {p.key for p in publications}
        self._in_topic = {key: p for key, p in self._in_topic.items() if key not in made and p.step >= after.first_open}
        return True

    def _is_final(self, step: int, after: Progress) -> bool:
        return step < after.first_open

    def _best(self, concluded: list[Publication]) -> list[Publication]:
        keys = [p.key for p in concluded]  # also of complete ones: the store may have lost tables and the note of their pruning
        best = {p.key: p for p in self._results.get(keys) if p is not None}
        if self._topic is not None:
            better = [key for key in keys if quality(self._in_topic.get(key)) > quality(best.get(key))]
            best |= {p.key: p for p in self._topic.read(better)}
        return [best[p.key] if quality(best.get(p.key)) > quality(p) else p for p in concluded]

    def _due(self, progress: Progress, now_ms: int) -> tuple[int, bool, Progress] | None:
        if progress.incomplete and self._passed(progress.incomplete[0], now_ms):
            return progress.incomplete[0], True, msgspec.structs.replace(progress, incomplete=progress.incomplete[1:])
        step = progress.next_step
        if self._survey.ended(step) or self._survey.closes_ms(step) + MARGIN_MS > now_ms:
            return None
        passed = not progress.incomplete and self._passed(step, now_ms)
        if not passed and now_ms < self.deadline_ms(step):
            return None
        incomplete = progress.incomplete if passed else (*progress.incomplete, step)
        return step, passed, msgspec.structs.replace(progress, next_step=step + 1, incomplete=incomplete)

    def deadline_ms(self, step: int) -> int:
        """Returns the deadline of a step, when even an incomplete step is published."""
        return self._survey.closes_ms(step) + self._deadline_steps * self._survey.step_ms

    def _begin(self) -> Progress:
        begin_ms = self._position.earliest_ms()
        if begin_ms is None:
            marked_ms = min(self._position.mark(self._position.ends()).values())
            found_ms = self._position.earliest_ms()  # a report may have been appended before the markers
            begin_ms = marked_ms if found_ms is None else min(marked_ms, found_ms)
        progress = begun(self._survey, begin_ms)
        if steps := [found.step for found in self._in_topic.values()]:
            first = min(progress.first_step, max(min(steps), max(steps) - self._survey.retention_steps + 1))
            return Progress(first_step=first, next_step=first)
        return progress

    def _passed(self, step: int, now_ms: int) -> bool:
        heads = self._store.heads()
        self._log = self._position.described()  # after the heads: if they have passed, a new partition has only later records
        if self._of_this_log(heads) and (waiting := self._waiting(step, heads)):
            ends, empty = self._position.ends(), Checkpoint(0)
            if idle := [p for p in waiting if heads.get(p, empty).next_offset == ends.get(p)]:
                self._mark(idle, self._survey.closes_ms(step), now_ms)
        return self._counted(step, heads)

    def _counted(self, step: int, heads: Mapping[int, Checkpoint]) -> bool:
        return self._of_this_log(heads) and not self._waiting(step, heads)

    def _of_this_log(self, heads: Mapping[int, Checkpoint]) -> bool:
        """Returns False if the log was deleted; its uncounted records are not yet stored as missing."""
        log_id = self._log[0]
        return not log_id or all(head.log_id in ("", log_id) for head in heads.values())

    def _waiting(self, step: int, heads: Mapping[int, Checkpoint]) -> list[int]:
        """Returns the partitions of which no record appended at or after the step's close is counted."""
        closes_ms, empty = self._survey.closes_ms(step), Checkpoint(0)
        return [p for p in self._log[1] if heads.get(p, empty).newest_ms < closes_ms]

    def _mark(self, partitions: list[int], closes_ms: int, now_ms: int) -> None:
        if self._marked_ms <= now_ms < self._mark_again_ms:
            return
        try:
            appended_ms = min(self._position.mark(partitions).values())
        except LogUnavailable as error:
            if now_ms < closes_ms + self._survey.step_ms:  # the deadline, at which an incomplete step is published
                raise
            log.warning("no markers written", survey=self._survey.name, error=str(error))
            self._marked_ms, self._mark_again_ms = now_ms, now_ms + RETRY_MS
            return
        self._marked_ms, self._mark_again_ms = now_ms, now_ms + max(0, closes_ms - appended_ms)

    def _conclude(
        self, checkpoints: dict[int, Checkpoint], first: int, step: int, waiting: Collection[int], final: bool, states: Filters
    ) -> tuple[list[Publication], Filters] | None:
        survey = self._survey
        counted = sum_tables(checkpoint.panes for checkpoint in checkpoints.values())
        tables = {key: table for key, table in counted.items() if key.step not in waiting}
        everybody = sum_cohorts(tables)  # equal to the counts of the same survey without cohorts
        gaps = [checkpoint.missing for checkpoint in checkpoints.values() if checkpoint.missing is not None]
        pruned = max((checkpoint.pruned_below for checkpoint in checkpoints.values()), default=0)

        def complete(begin: int) -> bool:
            return step not in waiting and pruned <= begin and not any(_touches(survey, gap, begin, step) for gap in gaps)

        publications: list[Publication] = []
        filters = dict[str, bytes]()
        for attribute, mechanisms in enumerate(survey.mechanisms):
            if not self._keeps_lease():
                return None
            steps = range(first, step + 1)
            panes = [tables_of(survey, everybody, attribute, s) for s in steps]
            members = survey.members(attribute) or ()
            parts = [[tables_of(survey, everybody, member, s) for s in steps] for member in members]
            before = tables_of(survey, everybody, attribute, step - 1) if pruned < step else None
            crowd = crowd_of(
                survey, attribute, [tables_of(survey, tables, attribute, step, c) for c in range(survey.n_cohorts)]
            )
            made = [
                conclude(survey, attribute, step, "step", panes[-1:], complete(step), before, crowd, [p[-1:] for p in parts]),
                conclude(survey, attribute, step, "window", panes, complete(first), of_members=parts),
            ]
            asked = survey.attributes[attribute]
            if "filtered" in spans(asked):
                state = states.get(asked.name)
                curve, filters[asked.name] = conclude_filtered(
                    mechanisms, panes[-1], made, state, final, edges_of(asked, mechanisms, "filtered"), asked.bins is not None
                )
                made.append(curve)
            publications += made
            for cohort in range(0 if survey.cohort is None else survey.n_cohorts):
                if not self._keeps_lease():
                    return None
                of_cohort = [tables_of(survey, tables, attribute, s, cohort) for s in steps]
                publications.append(conclude_cohort(survey, cohort, made[0], of_cohort[-1:]))
                publications.append(conclude_cohort(survey, cohort, made[1], of_cohort))
        return publications, filters

    def _prune(self, progress: Progress, checkpoints: dict[int, Checkpoint]) -> None:
        oldest = progress.first_open - 1
        self._store.prune(oldest - max(self._survey.window_steps - 1, 1), checkpoints)  # keeps the previous step for the drift


def _without(progress: Progress, step: int) -> Progress:
    if step == progress.next_step:
        return msgspec.structs.replace(progress, next_step=step + 1)
    return msgspec.structs.replace(progress, incomplete=tuple(s for s in progress.incomplete if s != step))


def quality(p: Publication | PublicationSummary | None) -> tuple[bool, int]:
    """Returns the rank of a publication: greater is better."""
    return (False, -1) if p is None else (p.complete, p.reports)


def _touches(survey: Survey, gap: Missing, first: int, last: int) -> bool:
    return gap.after_ms < survey.closes_ms(last) and gap.until_ms > survey.opens_ms(first) - survey.skew_ms
