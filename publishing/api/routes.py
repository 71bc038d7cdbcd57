"""The routes of one survey: its API and its page. `api.app` puts them at the root, or below the name of each survey."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from ldpstream.engines.count_store import StoreDamaged, StoreUnavailable
from ldpstream.publishing import page
from ldpstream.publishing.answers.earlier import Replaced
from ldpstream.publishing.answers.queries import (
    ComparisonQuery,
    HistogramQuery,
    NumbersQuery,
    SeriesQuery,
    StatusQuery,
    TableQuery,
)
from ldpstream.publishing.answers.responses import ApiResponses, Truths
from ldpstream.publishing.answers.schema import Comparison, Histogram, NumberSeries, Series, Status, Table
from ldpstream.publishing.answers.summaries import Summarizer
from ldpstream.publishing.answers.survey_info import SurveyInfo
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
from ldpstream.publishing.api.errors import FAILURES, describe
from ldpstream.publishing.progress import Progress, Source
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Reason, Survey

PAGE = FilePath(page.__file__).parent / "static"
POLL_S = 0.5  # time between two polls of the results
BEAT_S = 15.0  # a stream sends a keep-alive after this time without an event

Attribute = Annotated[str, Path(description="name of an attribute", max_length=64)]
OF_ATTRIBUTE = "/api/v1/attributes/{attribute}"


class CsvQuery(BaseModel):
    """Selects the time zone of a CSV file."""

    zone: str | None = Field(None, max_length=64, description="IANA name of a time zone; adds two columns with the local times")


class HistogramCsvQuery(CsvQuery, HistogramQuery):
    """As `HistogramQuery`, for a CSV file."""


class SeriesCsvQuery(CsvQuery, SeriesQuery):
    """As `SeriesQuery`, for a CSV file."""


class NumbersCsvQuery(CsvQuery, NumbersQuery):
    """As `NumbersQuery`, for a CSV file."""


class TableCsvQuery(CsvQuery, TableQuery):
    """As `TableQuery`, for a CSV file."""


class ComparisonCsvQuery(CsvQuery, ComparisonQuery):
    """As `ComparisonQuery`, for a CSV file."""


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
    def get_status(query: Annotated[StatusQuery, Query()], of: Served = found) -> Response:
        """Summary: each attribute's latest estimate and privacy loss, and the rejected envelopes."""
        return _json(of.responses.status(query.span, of.rejected(), of.clock(), largest_client=of.largest_client()))

    @api.get(OF_ATTRIBUTE + "/histogram", responses=describe(Histogram))
    def get_histogram(attribute: Attribute, query: Annotated[HistogramQuery, Query()], of: Served = found) -> Response:
        """One estimate with its intervals."""
        return _named(of.responses.histogram(attribute, query))

    @api.get(OF_ATTRIBUTE + "/histogram.csv", response_class=Csv, responses=FAILURES)
    def get_histogram_csv(attribute: Attribute, query: Annotated[HistogramCsvQuery, Query()], of: Served = found) -> Response:
        """One estimate with its intervals, one line per value."""
        return histogram_csv(of.responses.histogram(attribute, query), time_zone(query.zone))

    @api.get(OF_ATTRIBUTE + "/series", responses=describe(Series))
    def get_series(attribute: Attribute, query: Annotated[SeriesQuery, Query()], of: Served = found) -> Response:
        """Some values over time."""
        return _named(of.responses.series(attribute, query))

    @api.get(OF_ATTRIBUTE + "/series.csv", response_class=Csv, responses=FAILURES)
    def get_series_csv(attribute: Attribute, query: Annotated[SeriesCsvQuery, Query()], of: Served = found) -> Response:
        """Some values over time, one line per step and value."""
        return series_csv(of.responses.series(attribute, query), time_zone(query.zone))

    @api.get(OF_ATTRIBUTE + "/numbers", responses=describe(NumberSeries))
    def get_numbers(attribute: Attribute, query: Annotated[NumbersQuery, Query()], of: Served = found) -> Response:
        """Mean and percentiles of an attribute with numbers, over time."""
        return _named(of.responses.numbers(attribute, query))

    @api.get(OF_ATTRIBUTE + "/numbers.csv", response_class=Csv, responses=FAILURES)
    def get_numbers_csv(attribute: Attribute, query: Annotated[NumbersCsvQuery, Query()], of: Served = found) -> Response:
        """Mean and percentiles of an attribute with numbers, one line per step and number."""
        return numbers_csv(of.responses.numbers(attribute, query), time_zone(query.zone))

    @api.get(OF_ATTRIBUTE + "/table", responses=describe(Table))
    def get_table(attribute: Attribute, query: Annotated[TableQuery, Query()], of: Served = found) -> Response:
        """The cross table of a pair of attributes, or of the cohorts and an attribute's values."""
        return _named(of.responses.table(attribute, query))

    @api.get(OF_ATTRIBUTE + "/table.csv", response_class=Csv, responses=FAILURES)
    def get_table_csv(attribute: Attribute, query: Annotated[TableCsvQuery, Query()], of: Served = found) -> Response:
        """A cross table, one line per cell."""
        return table_csv(of.responses.table(attribute, query), time_zone(query.zone))

    @api.get(OF_ATTRIBUTE + "/comparison", responses=describe(Comparison))
    def get_comparison(attribute: Attribute, query: Annotated[ComparisonQuery, Query()], of: Served = found) -> Response:
        """Differences between the estimates at two times, or of two cohorts, with intervals."""
        return _named(of.responses.comparison(attribute, query))

    @api.get(OF_ATTRIBUTE + "/comparison.csv", response_class=Csv, responses=FAILURES)
    def get_comparison_csv(attribute: Attribute, query: Annotated[ComparisonCsvQuery, Query()], of: Served = found) -> Response:
        """Differences between the estimates at two times, or of two cohorts, one line per value."""
        return comparison_csv(of.responses.comparison(attribute, query), time_zone(query.zone))

    @api.get("/api/v1/events", response_class=_Events)
    async def get_events(request: Request, of: Served = found) -> StreamingResponse:
        """Server-sent events `published`: one at once, then one for each change found. Data: the latest known step, or -1."""
        events = iter(()) if request.scope.get("head") else of.news.stream()
        return _Events(events, headers={"X-Accel-Buffering": "no"})

    index = (PAGE / "index.html").read_text(encoding="utf-8")
    if home:
        index = index.replace("<header>", '<header>\n  <p id="home"><a href="/">All surveys</a></p>')

    @api.get("/", include_in_schema=False)
    def page(of: Served = found) -> HTMLResponse:
        return HTMLResponse(index)

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
