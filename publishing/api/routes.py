"""The routes of one survey: its API and its page. `api.app` puts them at the root, or below the name of each survey."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from ldpstream.estimators.estimate import LEAST_LEVEL, MOST_LEVEL
from ldpstream.publishing import page
from ldpstream.publishing.api.csv_answers import (
    Csv,
    Estimates,
    comparison_csv,
    file_name,
    histogram_csv,
    numbers_csv,
    series_csv,
    table_csv,
    time_zone,
)
from ldpstream.publishing.api.earlier import Replaced, Source
from ldpstream.publishing.api.errors import FAILURES, describe
from ldpstream.publishing.api.responses import ApiResponses, Truths
from ldpstream.publishing.api.schema import Comparison, Histogram, NumberSeries, Series, Status, Table
from ldpstream.publishing.api.survey_info import SurveyInfo
from ldpstream.publishing.catalogue import ESTIMATORS, INVERSION
from ldpstream.publishing.page.table import page_table, with_query
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.publication import Span
from ldpstream.publishing.summaries import Summarizer
from ldpstream.runtime.clock import now_ms
from ldpstream.stores.count_store import StoreDamaged, StoreUnavailable
from ldpstream.surveys import Reason, Survey

PAGE = FilePath(page.__file__).parent / "static"
POLL_S = 0.5  # time between two polls of the results
BEAT_S = 15.0  # a stream sends a keep-alive after this time without an event

Attribute = Annotated[str, Path(description="name of an attribute", max_length=64)]
AtStep = Annotated[int | None, Query(ge=0, le=2**53, description="last step of the span; default: the latest published step")]
SpanOf = Annotated[Span, Query(description="one step alone, the window that ends with this step, or the filtered curve")]
Estimator = Annotated[
    str | None,
    Query(max_length=16, description=f"one of {', '.join(row.name for row in ESTIMATORS)}; default: the attribute's"),
]
Post = Annotated[str, Query(max_length=16, description=f"post-processing of {INVERSION}")]
Top = Annotated[
    int | None,
    Query(ge=1, le=100_000, description="number of values to return: the most frequent, or in a comparison the clearest"),
]
Confidence = Annotated[float, Query(ge=LEAST_LEVEL, le=MOST_LEVEL, description="confidence level of the intervals")]
Last = Annotated[
    int,
    Query(ge=1, le=100_000, description="number of steps, up to `step`; of more than 1000 steps, one in `every` is returned"),
]
CohortOf = Annotated[
    str | None, Query(max_length=200, description="a cohort of the survey, for the spans step and window; default: all people")
]
Before = Annotated[int | None, Query(ge=0, le=2**53, description="last step of the earlier span")]
Against = Annotated[str | None, Query(max_length=200, description="in place of `before`: the cohort that is subtracted")]
Zone = Annotated[
    str | None, Query(max_length=64, description="IANA name of a time zone; adds two columns with the local times")
]
Values = Annotated[
    str | None, Query(max_length=200, description="comma-separated indices of values; default: the five most frequent")
]


class Served:
    """A survey as the API and the page show it.

    Args:
        rejected: returns the number of envelopes rejected so far, by reason.
        truth: returns the true answers in a publication's span; only for a simulation.
        largest_client: returns `Status.largest_client`.
    """

    def __init__(
        self,
        survey: Survey,
        source: Source,
        rejected: Callable[[], dict[Reason, int]],
        truth: Truths | None = None,
        clock: Callable[[], int] = now_ms,
        replaced: Callable[[], Sequence[Replaced]] = tuple,
        largest_client: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.largest_client = largest_client
        self.survey, self.source, self.rejected, self.clock = survey, source, rejected, clock
        self.responses, self.news = ApiResponses(survey, source, truth, replaced), News(source)
        self.summarizer = Summarizer(survey, source, self.responses)


def routes(served: Callable[..., Awaitable[Served]], home: bool = False) -> APIRouter:
    """Returns the routes of one survey.

    Args:
        served: a dependency of FastAPI that returns the survey of a request.
        home: True if the page links to a start page at `/`.
    """
    api, found = APIRouter(), Depends(served)

    @api.get("/api/v1/survey", responses=describe(SurveyInfo))
    def get_survey(of: Served = found) -> Response:
        """The survey's attributes and their privacy levels."""
        return _json(of.responses.survey_info())

    @api.get("/api/v1/status", responses=describe(Status))
    def get_status(span: SpanOf = "window", of: Served = found) -> Response:
        """Summary: each attribute's latest estimate and privacy loss, and the rejected envelopes."""
        return _json(of.responses.status(span, of.rejected(), of.clock(), largest_client=of.largest_client()))

    @api.get("/api/v1/attributes/{attribute}/histogram", responses=describe(Histogram))
    def get_histogram(
        attribute: Attribute, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        post: Post = "none", confidence: Confidence = 0.95, top: Top = None, cohort: CohortOf = None,
        of: Served = found,
    ) -> Response:  # fmt: skip
        """One estimate with its intervals."""
        return _named(of.responses.histogram(attribute, step, span, estimator, post, confidence, top, cohort))

    @api.get("/api/v1/attributes/{attribute}/histogram.csv", response_class=Csv, responses=FAILURES)
    def get_histogram_csv(
        attribute: Attribute, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        post: Post = "none", confidence: Confidence = 0.95, top: Top = None, cohort: CohortOf = None,
        zone: Zone = None, of: Served = found,
    ) -> Response:  # fmt: skip
        """One estimate with its intervals, one line per value."""
        h = of.responses.histogram(attribute, step, span, estimator, post, confidence, top, cohort)
        return histogram_csv(h, time_zone(zone))

    @api.get("/api/v1/attributes/{attribute}/series", responses=describe(Series))
    def get_series(
        attribute: Attribute, span: SpanOf = "window", estimator: Estimator = None, values: Values = None,
        last: Last = 48, confidence: Confidence = 0.95, step: AtStep = None, cohort: CohortOf = None,
        of: Served = found,
    ) -> Response:  # fmt: skip
        """Some values over time."""
        return _named(of.responses.series(attribute, span, estimator, values, last, confidence, step, cohort))

    @api.get("/api/v1/attributes/{attribute}/series.csv", response_class=Csv, responses=FAILURES)
    def get_series_csv(
        attribute: Attribute, span: SpanOf = "window", estimator: Estimator = None, values: Values = None,
        last: Last = 48, confidence: Confidence = 0.95, step: AtStep = None, cohort: CohortOf = None,
        zone: Zone = None, of: Served = found,
    ) -> Response:  # fmt: skip
        """Some values over time, one line per step and value."""
        return series_csv(
            of.responses.series(attribute, span, estimator, values, last, confidence, step, cohort), time_zone(zone)
        )

    @api.get("/api/v1/attributes/{attribute}/numbers", responses=describe(NumberSeries))
    def get_numbers(
        attribute: Attribute, span: SpanOf = "window", last: Last = 48, step: AtStep = None, cohort: CohortOf = None,
        of: Served = found,
    ) -> Response:  # fmt: skip
        """Mean and percentiles of an attribute with numbers, over time."""
        return _named(of.responses.numbers(attribute, span, last, step, cohort))

    @api.get("/api/v1/attributes/{attribute}/numbers.csv", response_class=Csv, responses=FAILURES)
    def get_numbers_csv(
        attribute: Attribute, span: SpanOf = "window", last: Last = 48, step: AtStep = None, cohort: CohortOf = None,
        zone: Zone = None, of: Served = found,
    ) -> Response:  # fmt: skip
        """Mean and percentiles of an attribute with numbers, one line per step and number."""
        return numbers_csv(of.responses.numbers(attribute, span, last, step, cohort), time_zone(zone))

    @api.get("/api/v1/attributes/{attribute}/table", responses=describe(Table))
    def get_table(attribute: Attribute, step: AtStep = None, span: SpanOf = "window", of: Served = found) -> Response:
        """The cross table of a pair of attributes, or of the cohorts and an attribute's values."""
        return _named(of.responses.table(attribute, step, span))

    @api.get("/api/v1/attributes/{attribute}/table.csv", response_class=Csv, responses=FAILURES)
    def get_table_csv(
        attribute: Attribute, step: AtStep = None, span: SpanOf = "window", zone: Zone = None, of: Served = found
    ) -> Response:
        """A cross table, one line per cell."""
        return table_csv(of.responses.table(attribute, step, span), time_zone(zone))

    @api.get("/api/v1/attributes/{attribute}/comparison", responses=describe(Comparison))
    def get_comparison(
        attribute: Attribute, before: Before = None, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        confidence: Confidence = 0.95, top: Top = None, cohort: CohortOf = None, against: Against = None,
        of: Served = found,
    ) -> Response:  # fmt: skip
        """Differences between the estimates at two times, or of two cohorts, with intervals."""
        return _named(of.responses.comparison(attribute, before, step, span, estimator, confidence, top, cohort, against))

    @api.get("/api/v1/attributes/{attribute}/comparison.csv", response_class=Csv, responses=FAILURES)
    def get_comparison_csv(
        attribute: Attribute, before: Before = None, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        confidence: Confidence = 0.95, top: Top = None, cohort: CohortOf = None, against: Against = None,
        zone: Zone = None, of: Served = found,
    ) -> Response:  # fmt: skip
        """Differences between the estimates at two times, or of two cohorts, one line per value."""
        differences = of.responses.comparison(attribute, before, step, span, estimator, confidence, top, cohort, against)
        return comparison_csv(differences, time_zone(zone))

    @api.get("/api/v1/events", response_class=_Events)
    async def get_events(request: Request, of: Served = found) -> StreamingResponse:
        """Server-sent events `published`: one at once, then one for each change found. Data: the latest known step, or -1."""
        events = iter(()) if request.scope.get("head") else of.news.stream()
        return _Events(events, headers={"X-Accel-Buffering": "no"})

    index = (PAGE / "index.html").read_text(encoding="utf-8")
    if home:
        index = index.replace("<header>", '<header>\n  <p id="home"><a href="/">All surveys</a></p>')

    @api.get("/", include_in_schema=False)
    def page(request: Request, of: Served = found) -> HTMLResponse:
        return HTMLResponse(with_query(index, request.url.query))

    @api.get("/table", include_in_schema=False)
    def table(
        attribute: str | None = None, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        cohort: CohortOf = None, of: Served = found,
    ) -> HTMLResponse:  # fmt: skip
        return HTMLResponse(*page_table(of.survey, of.responses, attribute, step, span, estimator, cohort))

    return api


class _Events(StreamingResponse):
    media_type = "text/event-stream"


class News:
    def __init__(self, source: Source) -> None:
        self._source, self._changed = source, asyncio.Condition()
        self._progress: Progress | None = None
        self._number, self._listeners = 0, 0
        self._watching: asyncio.Task[None] | None = None

    async def _watch(self) -> None:
        while self._listeners:
            try:
                progress = await asyncio.to_thread(self._source.progress)
            except StoreUnavailable:
                progress = self._progress
            except StoreDamaged:  # a change: the listeners then ask for the status, and get the error
                progress = None
            if progress != self._progress:
                async with self._changed:
                    self._progress, self._number = progress, self._number + 1
                    self._changed.notify_all()
            await asyncio.sleep(POLL_S)

    def _newer_than(self, number: int) -> bool:
        return self._number != number

    async def stream(self) -> AsyncGenerator[str, None]:
        """Yields an event at once, one for each change of the progress that a poll finds, and keep-alives."""
        self._listeners += 1
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            async for event in self._events():
                yield event
        finally:
            self._listeners -= 1

    async def _events(self) -> AsyncIterator[str]:
        heard = -1
        while True:
            if heard != self._number:
                heard = self._number
                step = -1 if self._progress is None else self._progress.next_step - 1
                yield f"event: published\nid: {heard}\ndata: {step}\n\n"
            try:
                async with self._changed:
                    await asyncio.wait_for(self._changed.wait_for(partial(self._newer_than, heard)), BEAT_S)
            except TimeoutError:
                yield ": still here\n\n"


def _json(document: Any) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")


def _named(document: Estimates) -> Response:
    headers = {"Content-Disposition": f'inline; filename="{file_name(document, "json")}"'}
    return Response(msgspec.json.encode(document), headers=headers, media_type="application/json")
