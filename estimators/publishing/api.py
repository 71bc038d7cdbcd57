"""The HTTP API of the published estimates, and the live page that shows them.

The API reads the results that the schedule saved, so any number of servers may run beside any number of estimators.
The API serves only published aggregates of randomized reports. The page contacts no other host.

    GET /                                             the page
    GET /table                                        the latest estimates as a page without scripts
    GET /api/v1/survey                                the attributes and their privacy levels
    GET /api/v1/status                                summary: each attribute's latest estimate and privacy loss; rejections
    GET /api/v1/attributes/{attribute}/histogram      one estimate with its intervals (also histogram.csv)
    GET /api/v1/attributes/{attribute}/series         some values over time (also series.csv)
    GET /api/v1/attributes/{attribute}/comparison     differences between two times (also comparison.csv)
    GET /api/v1/events                                server-sent events: `published` after every publication
    GET /openapi.json                                 OpenAPI description of these requests

Errors are problem documents (RFC 9457): status 404 if something does not exist (yet), 422 if a parameter is not allowed, and
503 while the store of results does not answer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.gzip import GZipMiddleware

from estimators.publishing.api_csv import Csv, comparison_csv, histogram_csv, series_csv, time_zone
from estimators.publishing.api_errors import FAILURES, Api, describe, handle_errors
from estimators.publishing.api_responses import ApiResponses, Source, Truths
from estimators.publishing.api_schema import Comparison, Histogram, Series, Status, SurveyInfo
from estimators.publishing.page_table import page_table, with_query
from estimators.publishing.publication import Span
from estimators.publishing.schedule import Progress
from runtime.clock import now_ms
from runtime.security_headers import SecurityHeaders
from stores.count_store import StoreUnavailable
from surveys import Reason, Survey

PAGE = FilePath(__file__).parent / "page"
POLL_S = 0.5  # time between two polls of the results
BEAT_S = 15.0  # a stream sends a keep-alive after this time without an event
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

Attribute = Annotated[str, Path(description="name of an attribute", max_length=64)]
AtStep = Annotated[int | None, Query(ge=0, le=2**53, description="last step of the span; default: the latest published step")]
SpanOf = Annotated[Span, Query(description="one step alone, the window that ends with this step, or the filtered curve")]
Estimator = Annotated[
    str | None, Query(max_length=16, description="mi, ibu (default) or mle; for the filtered curve only filter")
]
Post = Annotated[str, Query(max_length=16, description="post-processing of mi, if mi was published raw")]
Top = Annotated[int | None, Query(ge=1, le=100_000, description="number of values to return, the most frequent first")]
Confidence = Annotated[float, Query(gt=0.0, lt=1.0, description="confidence level of the intervals")]
Last = Annotated[int, Query(ge=1, le=1000, description="number of steps, up to `step`")]
Before = Annotated[int, Query(ge=0, le=2**53, description="last step of the earlier span")]
Zone = Annotated[
    str | None, Query(max_length=64, description="IANA name of a time zone; adds two columns with the local times")
]
Values = Annotated[str | None, Query(max_length=200, description="comma-separated indices of values; default: the top five")]


def create_api(
    survey: Survey,
    source: Source,
    rejected: Callable[[], dict[Reason, int]],
    post: str = "none",
    truth: Truths | None = None,
    clock: Callable[[], int] = now_ms,
) -> FastAPI:
    """Returns the ASGI application.

    Args:
        survey: the survey.
        source: reads the survey's publications.
        rejected: returns the number of envelopes rejected so far, by reason.
        post: the post-processing of the published "mi".
        truth: returns the true frequencies of a publication's span; only a simulation has true frequencies.
        clock: returns the Unix time in milliseconds.
    """
    responses = ApiResponses(survey, source, post, truth)
    news = _News(source)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(news.watch())
        yield
        watching.cancel()

    api = Api(
        title=f"ldpstream: {survey.name}", version="1", docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Histograms estimated from locally private reports, and their privacy losses.",
    )  # fmt: skip
    api.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=5)
    api.add_middleware(SecurityHeaders, headers=SECURITY)
    handle_errors(api)

    @api.get("/api/v1/survey", responses=describe(SurveyInfo))
    def get_survey() -> Response:
        """The survey's attributes and their privacy levels."""
        return _json(responses.survey_info())

    @api.get("/api/v1/status", responses=describe(Status))
    def get_status(span: SpanOf = "window") -> Response:
        """Summary: each attribute's latest estimate and privacy loss, and the rejected envelopes."""
        return _json(responses.status(span, rejected(), clock()))

    @api.get("/api/v1/attributes/{attribute}/histogram", responses=describe(Histogram))
    def get_histogram(
        attribute: Attribute, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        post: Post = "none", confidence: Confidence = 0.95, top: Top = None,
    ) -> Response:  # fmt: skip
        """One estimate with its intervals."""
        return _json(responses.histogram(attribute, step, span, estimator, post, confidence, top))

    @api.get("/api/v1/attributes/{attribute}/histogram.csv", response_class=Csv, responses=FAILURES)
    def get_histogram_csv(
        attribute: Attribute, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        post: Post = "none", confidence: Confidence = 0.95, top: Top = None, zone: Zone = None,
    ) -> Response:  # fmt: skip
        """One estimate with its intervals, one line per value. The span begins at `start` and ends at `end`, in UTC."""
        h = responses.histogram(attribute, step, span, estimator, post, confidence, top)
        return histogram_csv(h, time_zone(zone))

    @api.get("/api/v1/attributes/{attribute}/series", responses=describe(Series))
    def get_series(
        attribute: Attribute, span: SpanOf = "window", estimator: Estimator = None, values: Values = None,
        last: Last = 48, confidence: Confidence = 0.95, step: AtStep = None,
    ) -> Response:  # fmt: skip
        """Some values over time."""
        return _json(responses.series(attribute, span, estimator, values, last, confidence, step))

    @api.get("/api/v1/attributes/{attribute}/series.csv", response_class=Csv, responses=FAILURES)
    def get_series_csv(
        attribute: Attribute, span: SpanOf = "window", estimator: Estimator = None, values: Values = None,
        last: Last = 48, confidence: Confidence = 0.95, step: AtStep = None, zone: Zone = None,
    ) -> Response:  # fmt: skip
        """Some values over time, one line per step and value."""
        return series_csv(responses.series(attribute, span, estimator, values, last, confidence, step), time_zone(zone))

    @api.get("/api/v1/attributes/{attribute}/comparison", responses=describe(Comparison))
    def get_comparison(
        attribute: Attribute, before: Before, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        confidence: Confidence = 0.95, top: Top = None,
    ) -> Response:  # fmt: skip
        """Differences between the estimates at two times, with intervals, without post-processing."""
        return _json(responses.comparison(attribute, before, step, span, estimator, confidence, top))

    @api.get("/api/v1/attributes/{attribute}/comparison.csv", response_class=Csv, responses=FAILURES)
    def get_comparison_csv(
        attribute: Attribute, before: Before, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        confidence: Confidence = 0.95, top: Top = None, zone: Zone = None,
    ) -> Response:  # fmt: skip
        """Differences between the estimates at two times, one line per value."""
        found = responses.comparison(attribute, before, step, span, estimator, confidence, top)
        return comparison_csv(found, time_zone(zone))

    @api.get("/api/v1/events", response_class=_Events)
    async def get_events() -> StreamingResponse:
        """Server-sent events `published` with the latest step as data: one event at once, then one after every publication."""
        return _Events(news.stream(), headers={"X-Accel-Buffering": "no"})

    index = (PAGE / "index.html").read_text(encoding="utf-8")

    @api.get("/", include_in_schema=False)
    def page(request: Request) -> HTMLResponse:
        return HTMLResponse(with_query(index, request.url.query))

    @api.get("/table", include_in_schema=False)
    def table(
        attribute: str | None = None, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
    ) -> HTMLResponse:  # fmt: skip
        return HTMLResponse(*page_table(survey, responses, attribute, step, span, estimator))

    @api.get("/favicon.ico", include_in_schema=False)
    def favicon() -> FileResponse:
        return FileResponse(PAGE / "favicon.svg")

    api.mount("/page", StaticFiles(directory=PAGE))
    return api


class _Events(StreamingResponse):
    media_type = "text/event-stream"


class _News:
    """Polls the progress, once for all listeners, and notifies the listeners of every change."""

    def __init__(self, source: Source) -> None:
        self._source, self._changed = source, asyncio.Condition()
        self._progress: Progress | None = None
        self._number = 0

    async def watch(self) -> None:
        while True:
            try:
                progress = await asyncio.to_thread(self._source.progress)
            except StoreUnavailable:
                progress = self._progress
            if progress != self._progress:
                async with self._changed:
                    self._progress, self._number = progress, self._number + 1
                    self._changed.notify_all()
            await asyncio.sleep(POLL_S)

    def _newer_than(self, number: int) -> bool:
        return self._number != number

    async def stream(self) -> AsyncIterator[str]:
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
