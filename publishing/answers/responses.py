"""Bodies of the HTTP API's responses, built from the survey and the publications that the schedule saved."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ldpstream.estimators.bayes.unordered import named_values
from ldpstream.estimators.differences import beyond_chance
from ldpstream.estimators.estimate import PUBLISHED_LEVEL
from ldpstream.estimators.filter.changes import detectable
from ldpstream.estimators.post_processing import NAMES as POST_NAMES
from ldpstream.estimators.post_processing import post_process
from ldpstream.estimators.smooth.ordered import MAX_ORDERED
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.promises.outlook import Outlook, outlook_of
from ldpstream.publishing.answers import queries, schema, sentences
from ldpstream.publishing.answers.comparison import differences_of, growth_of, number_differences
from ldpstream.publishing.answers.earlier import Replaced, Shown, earlier_parts, kept_steps, lines, of_steps
from ldpstream.publishing.answers.overview import Card, Changes, cards_of, present, shown
from ldpstream.publishing.answers.shares import (
    default_estimator,
    ends_ms,
    names_of,
    of_span,
    result_of,
    shares_of,
    too_few,
)
from ldpstream.publishing.answers.summaries import SurveySummary, summary_of
from ldpstream.publishing.answers.survey_info import SurveyInfo, survey_info
from ldpstream.publishing.answers.tables import by_cohort, of_pair
from ldpstream.publishing.answers.usage import Usage, read_usage, recipes_of
from ldpstream.publishing.estimates.catalogue import INVERSION, MAX_FILTERED, estimators, is_numeric
from ldpstream.publishing.estimates.frequencies import UNKNOWN, TrueAnswers, plain, plain_number
from ldpstream.publishing.estimates.publication import (
    COHORT_SPANS,
    LevelEstimate,
    Publication,
    Span,
    number_names,
    publication_key,
    spans,
)
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Attribute, Reason, Survey
from ldpstream.surveys.life.notes import Note

MAX_LINES = 20
Truths = Callable[[Publication], TrueAnswers]


class NotFound(Exception):
    """Something does not exist, or does not exist yet."""


class NotAllowed(Exception):
    """An argument that is not allowed."""


class Served:
    """A survey as the API and the page show it: builds the bodies of the answers from the saved publications.

    Args:
        rejected: returns the number of envelopes rejected so far, by reason.
        truth: returns the true answers in a publication's span; only a simulation has true answers.
        replaced: returns the surveys that `survey` replaces, directly or through another one, latest first.
        largest_client: returns `Status.largest_client`.
        signed: returns the time of the survey's latest signature; None if it has none.
        notes: returns the operator's notes, which the page shows in curves.

    Raises (some methods):
        NotFound: if something does not exist, or does not exist yet.
        NotAllowed: if an argument is not allowed.
        StoreUnavailable, StoreDamaged: if the source raises this error.
    """

    def __init__(
        self,
        survey: Survey,
        source: KeptResults,
        rejected: Callable[[], dict[Reason, int]],
        truth: Truths | None = None,
        clock: Callable[[], int] = now_ms,
        replaced: Callable[[], Sequence[Replaced]] = tuple,
        largest_client: Callable[[], float | None] = lambda: None,
        signed: Callable[[], datetime | None] = lambda: None,
        notes: Callable[[], list[Note]] = list,
    ) -> None:
        self.survey, self.source, self._rejected, self._truth, self.clock = survey, source, rejected, truth, clock
        self._replaced, self._largest_client, self.signed, self._notes = replaced, largest_client, signed, notes
        self._attributes = {attribute.name: attribute for attribute in survey.attributes}
        self._cards = lru_cache(maxsize=4)(self._read_cards)
        self._brief = lru_cache(maxsize=1)(lambda _, at_ms: self.status("window", at_ms, outlook=False))

    def survey_info(self) -> SurveyInfo:
        return survey_info(self.survey, simulated=self._truth is not None, signed=self.signed(), notes=self._notes())

    def latest_step(self) -> int | None:
        progress = self.source.progress()
        return None if progress is None or progress.next_step == progress.first_step else progress.next_step - 1

    def status(self, span: Span, at_ms: int, outlook: bool = True) -> schema.Status:
        s, progress, latest = self.survey, self.source.progress(), self.latest_step()
        due = max(0, s.step_at(at_ms)) if progress is None else progress.next_step
        return schema.Status(
            attributes=[] if latest is None else self._overviews(span, latest, outlook),
            rejected=self._rejected(),
            largest_client=self._largest_client(),
            first_step=None if progress is None or latest is None else max(progress.first_step, latest - s.retention_steps + 1),
            latest_step=latest,
            now_ms=at_ms,
            due_ms=None if self._truth or s.ended(due) else s.closes_ms(due),
        )

    def summary(self, at_ms: int) -> SurveySummary:
        """Reads the estimates only if the progress has changed. Before the first publication, the status follows the clock."""
        progress = self.source.progress()
        return summary_of(self.survey, self._brief(progress, at_ms if progress is None else 0), at_ms)

    def _overviews(self, span: Span, step: int, outlook: bool) -> list[schema.AttributeStatus]:
        counted: Span = "window" if span == "filtered" else span  # the filter has no counts of its own to compare levels
        keys = {s: [publication_key(name, s, step) for name in self._attributes] for s in (counted, "step", "filtered")}
        found = {s: self.source.get(wanted) for s, wanted in keys.items()}
        overviews = []
        for counts, of_step, curve in zip(found[counted], found["step"], found["filtered"], strict=True):
            shown = (curve or of_step) if span == "filtered" else counts
            if shown is not None:
                overviews.append(self._overview(shown, of_step or shown, counts or shown, curve, outlook))
        return overviews

    def _overview(
        self, p: Publication, of_step: Publication, counted: Publication, curve: Publication | None, outlook: bool
    ) -> schema.AttributeStatus:
        label, said, levels = self._attributes[p.attribute].label, of_step.diagnostics, counted.diagnostics
        change = None if curve is None else curve.change
        return schema.AttributeStatus(
            **of_span(self.survey, p), attribute=p.attribute, span=p.span, privacy=p.privacy,
            step_reports=of_step.reports, step_complete=of_step.complete, crowd=of_step.crowd or None,
            outlook=self.outlook(p.attribute, p.step, p) if outlook else {},
            fit_z=said.fit_z, drift_sigma=said.drift_sigma, drift_p=said.drift_p,
            drift_label=None if said.drift_value is None else label(said.drift_value),
            levels_sigma=levels.levels_sigma, levels_p=levels.levels_p, levels_pair=levels.levels_pair,
            levels_label=None if levels.levels_value is None else label(levels.levels_value),
            change=change, change_label=None if change is None else label(change.value),
            growth=growth_of(self.survey, self.source, p.attribute, p.step),
        )  # fmt: skip

    def overview(self, query: queries.OverviewQuery) -> schema.Overview:
        survey, period = self.survey, queries.PeriodQuery(**query.model_dump(exclude={"top", "find"}))
        cards = self._cards(period.model_copy(update={"step": self._step(query.step)}), self.source.progress())
        after, before = cards[0].p, next((card.before for card in cards if card.before is not None), None)
        start_ms, end_ms = ends_ms(survey, after)
        earlier = None if before is None else ends_ms(survey, before)
        changes, lead = Changes(cards), sentences.period(end_ms - start_ms, end_ms, after.step == self.latest_step())
        parts = (lead, "filtered" if after.span == "filtered" else None, query.cohort)
        said = [schema.Sentence(lead=", ".join(filter(None, parts)), text=present(cards))]
        if earlier is not None:
            lead = sentences.earlier(end_ms - start_ms, start_ms, earlier)
            lead = lead if query.against is None else f"Against {query.against or 'all people'}"
            said.append(schema.Sentence(lead=lead, text=changes.text("change" if query.against is None else "difference")))
        return schema.Overview(
            survey=survey.name, span=query.span, cohort=query.cohort, against=query.against, confidence=PUBLISHED_LEVEL,
            step=after.step, start_ms=start_ms, end_ms=end_ms, before_step=None if before is None else before.step,
            before_start_ms=None if earlier is None else earlier[0], before_end_ms=None if earlier is None else earlier[1],
            sentences=said, attributes=[one for c in cards if (one := shown(survey, c, query.find, query.top)) is not None],
            changes=[] if before is None else changes.clearest(query.top),
        )  # fmt: skip

    def _read_cards(self, query: queries.PeriodQuery, _: Progress | None) -> list[Card]:
        """Called anew if the progress changes."""
        assert query.step is not None
        self._check_cohort(query.cohort, query.span)
        earlier = self._subtracted(query, query.step)
        if earlier == (query.step, query.cohort):
            raise NotAllowed(f"before and after must be different steps, got {query.before} twice")
        asked = [(a, query.span if query.span in spans(a) else "step") for a in self.survey.attributes]
        sides = [
            self.source.get([publication_key(a.name, span, step, cohort) for a, span in asked])
            for step, cohort in ((query.step, query.cohort), earlier)
        ]
        found = [(a, p, q) for (a, _), p, q in zip(asked, *sides, strict=True) if p is not None]
        if not found or (query.before is not None and all(q is None for _, _, q in found)):
            raise NotFound(f"no estimate for step {query.before if found else query.step}")
        return cards_of(self.survey, found, apart=bool(query.against))

    def outlook(self, name: str, step: int, p: Publication | None) -> dict[str, Outlook]:
        """The outlook of each level after this step. `p` has the shares that a guesser knows; None if there are none."""
        attribute = self.survey.index(name)
        shares = None if p is None or p.below_least else _shares(self._attributes[name], p)
        levels = zip(self.survey.attributes[attribute].levels, self.survey.mechanisms[attribute], strict=True)
        return {level.name: outlook_of(self.survey, attribute, m, step, shares) for level, m in levels}

    def histogram(self, name: str, query: queries.HistogramQuery) -> schema.Histogram:
        attribute, post, top = self._known(name, query.span, query.cohort), query.post, query.top
        p = self.published(name, query.span, query.step, query.cohort)
        chosen = self._estimator(p, query.estimator)
        result = result_of(p, chosen, attribute.k)
        estimate = result.estimate()
        frequencies = estimate.frequencies
        if post != "none":
            if chosen != INVERSION or post not in POST_NAMES:
                allowed = POST_NAMES if chosen == INVERSION else ("none",)
                raise NotAllowed(f"post must be one of {', '.join(allowed)} for {chosen}, got {post!r}")
            if post.startswith("power") and result.interval_withheld:
                raise NotAllowed(f"post {post} needs the standard errors of {chosen}, which are withheld here")
            most = attribute.most or 1  # shares of drawn members sum to 1; times this number they are shares of people
            variance = np.maximum(estimate.standard_errors / most, 1e-150) ** 2
            frequencies = most * post_process(frequencies / most, post, variance=variance)
            frequencies = frequencies if attribute.most is None else np.minimum(frequencies, 1)
        truth = self._true(p)
        shown = np.arange(attribute.k) if top is None else np.argsort(-frequencies, kind="stable")[:top]
        return schema.Histogram(
            **shares_of(self.survey, p, chosen, frequencies, estimate.interval(query.confidence), shown),
            survey=p.survey, cohort=p.cohort, post=post, confidence=query.confidence, iterations=estimate.iterations,
            converged=estimate.converged, gap=plain_number(estimate.gap), privacy=p.privacy, diagnostics=p.diagnostics,
            standard_errors=plain(estimate.standard_errors[shown]),
            named=self._named(attribute, chosen, estimate.frequencies)[shown].tolist(),
            truth=None if truth.shares is None else [truth.shares[v] for v in shown], true_numbers=truth.numbers,
            crowd=p.crowd or None, change=p.change,
            levels={name: _shown(level, shown.tolist()) for name, level in p.levels.items()},
        )  # fmt: skip

    def _named(self, attribute: Attribute, estimator: str, shares: FloatArray) -> npt.NDArray[np.bool_]:
        mechanisms = self.survey.mechanisms[self.survey.index(attribute.name)]
        if estimator != estimators(mechanisms)[0].name:
            return np.ones(shares.size, bool)
        return named_values(shares) & (not attribute.in_order and not is_numeric(mechanisms))

    def table(self, name: str, query: queries.TableQuery) -> schema.Table:
        span = query.span
        attribute = self._known(name, span, None)
        if attribute.pair is None and self.survey.cohort is None:
            raise NotFound(f"attribute {name} has no cross table: it is not a pair, and the survey has no cohorts")
        if span not in COHORT_SPANS:
            raise NotAllowed(f"span must be {' or '.join(COHORT_SPANS)} for a cross table, got {span!r}")
        p = self.published(name, span, query.step)
        truth = self._true(p).shares
        if attribute.pair is not None:
            first, second = attribute.pair
            parts = of_pair(self._attributes[first], self._attributes[second], p.table or None)
        else:
            assert self.survey.cohort is not None
            keys = [publication_key(name, span, p.step, cohort) for cohort in self.survey.cohort.values]
            again, *found = self.source.get([p.key, *keys])  # one read: a step that is published again changes all of them
            p = again or p
            parts = by_cohort(self.survey.cohort, attribute, p, found)
            truth = self._truth_by_cohort(found)
        return schema.Table(
            **of_span(self.survey, p), survey=p.survey, attribute=name, span=p.span, truth=truth, **parts._asdict(),
        )  # fmt: skip

    def _truth_by_cohort(self, found: Sequence[Publication | None]) -> list[float] | None:
        total = sum(p.reports for p in found if p is not None)
        truths = [(p.reports / total, self._true(p).shares) for p in found if p is not None and total]
        if len(truths) < len(found) or any(of is None for _, of in truths):
            return None
        return [weight * share for weight, of in truths for share in of or ()]

    def comparison(self, name: str, query: queries.ComparisonQuery) -> schema.Comparison:
        span, cohort, confidence = query.span, query.cohort, query.confidence
        attribute = self._known(name, span, cohort)
        second = self.published(name, span, query.step, cohort)
        first = self.published(name, span, *self._subtracted(query, second.step))
        if first.key == second.key:
            raise NotAllowed(f"before and after must be different steps, got {query.before} twice")
        chosen = self._estimator(second, query.estimator)
        results = result_of(first, self._estimator(first, chosen), attribute.k), result_of(second, chosen, attribute.k)
        of = differences_of(self.survey, (first, second), results, chosen, confidence, apart=bool(query.against))
        shown = np.arange(attribute.k) if query.top is None else of.clearest[: query.top]
        was, now = self._true(first), self._true(second)
        truth = None if was.shares is None or now.shares is None else np.subtract(now.shares, was.shares)[shown].tolist()
        sides = [self._side(p, found.estimate().frequencies[shown]) for p, found in zip((first, second), results, strict=True)]
        return schema.Comparison(
            survey=self.survey.name, attribute=name, span=span, cohort=cohort, estimator=chosen, confidence=confidence,
            basis=of.basis,
            interval_withheld=results[0].interval_withheld or results[1].interval_withheld,
            overlap=max(side.start_ms for side in sides) < min(side.end_ms for side in sides),
            before=sides[0], after=sides[1],
            values=shown.tolist(), labels=[attribute.label(v) for v in shown],
            differences=plain(of.differences[shown]), standard_errors=plain(of.standard_errors[shown]),
            low=plain(of.low[shown]), high=plain(of.high[shown]),
            clear=beyond_chance(of.p, 1 - confidence)[shown].tolist(), truth=truth,
            numbers=number_differences(first.numbers, second.numbers),
            true_numbers={name: x - was.numbers[name] for name, x in now.numbers.items() if name in was.numbers},
        )  # fmt: skip

    def _true(self, p: Publication) -> TrueAnswers:
        return UNKNOWN if self._truth is None else self._truth(p)

    def _side(self, p: Publication, frequencies: FloatArray) -> schema.Side:
        return schema.Side(
            **of_span(self.survey, p), cohort=p.cohort, below_least=p.below_least, frequencies=plain(frequencies),
        )  # fmt: skip

    def series(self, name: str, query: queries.SeriesQuery) -> schema.Series:
        span, cohort, confidence = query.span, query.cohort, query.confidence
        attribute = self._known(name, span, cohort)
        found, every = self._last(name, query)
        chosen = self._estimator(found[-1], query.estimator)
        if query.values is None:
            shown = next((top for p in reversed(found) if (top := _largest(p, 5, attribute))), [])
        else:
            shown = _indices(query.values, attribute)
        results = [result_of(p, chosen, attribute.k) for p in found]
        drawn = lines(results, [Shown(v, attribute.label(v), v) for v in shown], confidence)
        changes = [p.change for p in found if p.change is not None]
        before = query.last - (found[-1].step + 1)  # steps before this survey's first step
        return schema.Series(
            **of_steps(self.survey, found, every), survey=self.survey.name, attribute=name, span=span, cohort=cohort,
            estimator=chosen, confidence=confidence,
            below_least=[p.below_least for p in found],
            too_few=bool(found) and too_few(found[-1], attribute),
            interval_withheld=[result.interval_withheld for result in results], lines=drawn,
            changes=changes, change_labels=[attribute.label(change.value) for change in changes],
            detectable=self._detectable(attribute, found, shown) if span == "filtered" else None,
            eps_t={level: [p.privacy[level].eps_t for p in found] for level in found[-1].privacy},
            earlier=earlier_parts(self.survey, self._replaced(), name, span, chosen, shown, confidence, before, cohort),
        )  # fmt: skip

    def _detectable(self, attribute: Attribute, found: Sequence[Publication], values: Sequence[int]) -> float | None:
        step = next((p.step for p in reversed(found) if p.reports), None)
        counted = None if step is None else self.source.get([publication_key(attribute.name, "step", step)])[0]
        if counted is None or INVERSION not in counted.estimators:
            return None
        errors = counted.estimators[INVERSION].standard_errors
        known = [error for value in values if (error := errors[value]) is not None]
        return detectable(attribute.k, max(known)) if known else None

    def numbers(self, name: str, query: queries.NumbersQuery) -> schema.NumberSeries:
        span = query.span
        attribute = self._known(name, span, query.cohort)
        mechanisms = self.survey.mechanisms[self.survey.index(name)]
        names = number_names(attribute, mechanisms, span)
        if not names:
            needed = f"they need bins or ordered numbers, at most {MAX_ORDERED}, and Square Wave has none for the span filtered"
            raise NotFound(f"attribute {name} has no published mean and no percentiles for the span {span}: {needed}")
        found, every = self._last(name, query)
        lines, truths = [], [self._true(p).numbers for p in found]
        for number in names:
            known = [p.numbers.get(number) for p in found]
            values, low, high = ([getattr(x, part, None) for x in known] for part in ("value", "low", "high"))
            truth = [of.get(number) for of in truths] if self._truth else None
            lines.append(schema.NumberLine(name=number, values=values, low=low, high=high, truth=truth))
        return schema.NumberSeries(
            **of_steps(self.survey, found, every), survey=self.survey.name, attribute=name, span=span, cohort=query.cohort,
            estimator=self._estimator(found[-1], None), lines=lines,
        )  # fmt: skip

    def usage(self, query: queries.UsageQuery) -> Usage:
        names = [attribute.name for attribute in recipes_of(self.survey)]
        if not names:
            raise NotFound(f"survey {self.survey.name} has no attribute with a recipe, so its reports count no people")
        answer = read_usage(self.survey, self.source, self._step(query.step), query.last)
        if not answer.steps:
            raise NotFound(f"no estimate of {' and '.join(names)} yet")
        return answer

    def _last(self, name: str, query: queries.NumbersQuery) -> tuple[list[Publication], int]:
        progress, latest = self.source.progress(), self.latest_step() if query.step is None else query.step
        steps = range(0) if latest is None else kept_steps(self.survey, progress, latest, query.last)
        keys = [publication_key(name, query.span, step, query.cohort) for step in steps]
        found = [p for p in self.source.get(keys) if p is not None]
        if not found:
            raise NotFound(f"no estimate of {name} yet")
        return found, steps.step

    def published(self, name: str, span: Span, step: int | None, cohort: str | None = None) -> Publication:
        """Returns the publication of a step, by default of the latest."""
        step = self._step(step)
        p = self.source.get([publication_key(name, span, step, cohort)])[0]
        if p is None:
            raise NotFound(f"no estimate of {name} {f'for step {step}' if step >= 0 else 'in an earlier span of this length'}")
        return p

    def _step(self, step: int | None) -> int:
        found = self.latest_step() if step is None else step
        if found is None:
            raise NotFound("nothing published yet")
        return found

    def _subtracted(self, query: queries.PeriodQuery, step: int) -> tuple[int, str | None]:
        """Returns the step and the cohort of the estimates that are subtracted from those of `step`."""
        before, against, cohort = query.before, query.against, query.cohort
        if against is None:
            width = self.survey.window_steps if query.span == "window" else 1
            whole = step >= 2 * width - 1  # a window that begins before the survey is shorter: no default
            return (step - width if whole else -1) if before is None else before, cohort
        if before is not None:
            raise NotAllowed(f"before and against must not both be given, got before={before} and against={against!r}")
        self._check_cohort(against or None, query.span)
        if cohort is None or cohort == against:
            raise NotAllowed(f"against needs another cohort, got cohort={cohort!r} and against={against!r}")
        return step, against or None

    def _known(self, name: str, span: Span, cohort: str | None) -> Attribute:
        if name not in self._attributes:
            raise NotFound(f"no attribute {name!r} in this survey")
        attribute = self._attributes[name]
        if span not in spans(attribute):
            raise NotFound(f"attribute {name} has {attribute.k} values; at most {MAX_FILTERED} have a filtered curve")
        self._check_cohort(cohort, span)
        return attribute

    def _check_cohort(self, cohort: str | None, span: Span) -> None:
        if cohort is None:
            return
        try:
            self.survey.cohort_index(cohort)
        except ValueError as error:
            raise NotAllowed(str(error)) from None
        if span not in COHORT_SPANS:
            raise NotAllowed(f"span must be {' or '.join(COHORT_SPANS)} for a cohort, got {span!r}")

    def _estimator(self, p: Publication, wanted: str | None) -> str:
        known = [default_estimator(self.survey, p)] if p.below_least else names_of(p)
        if wanted is None:
            return known[0]
        if wanted not in known:
            raise NotAllowed(f"estimator must be one of {', '.join(known)}, got {wanted!r}")
        return wanted


def _shares(a: Attribute, p: Publication) -> tuple[float, ...] | None:
    """The published shares as the distribution that a guesser believes; None for sets, and without an estimate."""
    found = np.maximum(p.estimators[p.main].estimate().frequencies, 0.0)
    return None if a.most is not None or not found.sum() > 0 else tuple((found / found.sum()).tolist())


def _shown(level: LevelEstimate, values: list[int]) -> LevelEstimate:
    return LevelEstimate(
        reports=level.reports,
        frequencies=[level.frequencies[v] for v in values],
        standard_errors=[level.standard_errors[v] for v in values],
    )


def _largest(p: Publication, n: int, attribute: Attribute) -> list[int]:
    if p.below_least:
        return []
    shares = result_of(p, names_of(p)[0], attribute.k).estimate().frequencies[: attribute.k - (attribute.most or 0)]
    return [v for v in np.argsort(-shares, kind="stable")[:n].tolist() if not math.isnan(shares[v])]


def _indices(values: str, attribute: Attribute) -> list[int]:
    parts, places = values.split(","), {str(v): v for v in range(attribute.k)}
    places |= {label: v for v, label in enumerate(attribute.labels)}
    if len(parts) > MAX_LINES or not all(part in places for part in parts):
        raise NotAllowed(f"values must be at most {MAX_LINES} labels, or indices below {attribute.k}, got {values!r}")
    return [places[part] for part in parts]
