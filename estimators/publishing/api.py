"""The HTTP API of the published estimates, and the live page that shows them.

The API reads the results that the schedule saved, so any number of servers may run beside any number of estimators.
The API serves only published aggregates of randomized reports. The page contacts no other host.

    GET /                                             the page
    GET /api/v1/survey                                the attributes and their privacy levels
    GET /api/v1/status                                summary: each attribute's latest estimate and privacy loss; rejections
    GET /api/v1/attributes/{attribute}/histogram      one estimate with its intervals (also histogram.csv)
    GET /api/v1/attributes/{attribute}/series         some values over time (also series.csv)
    GET /api/v1/events                                server-sent events: `published` after every publication
    GET /openapi.json                                 OpenAPI description of these requests

Errors are problem documents (RFC 9457): status 404 if something does not exist (yet), 422 if a parameter is not allowed, and
503 while the store of results does not answer.
"""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from estimators.publishing.api_responses import ApiResponses, NotAllowed, NotFound, Source, Truths
from estimators.publishing.api_schema import Histogram, Series, Status, SurveyInfo
from estimators.publishing.publication import Span
from estimators.publishing.schedule import Progress
from runtime.security_headers import SecurityHeaders
from stores.count_store import StoreUnavailable
from surveys import Reason, Survey

PAGE = FilePath(__file__).parent / "page"
POLL_S = 0.5  # time between two polls of the results
BEAT_S = 15.0  # a stream sends a keep-alive after this time without an event
HISTOGRAM_COLUMNS = (
    "value", "label", "frequency", "standard_error", "low", "high", "truth",
    "step", "start", "end", "reports", "complete", "interval_withheld",
)  # fmt: skip
SERIES_COLUMNS = (
    "step", "reports", "complete", "value", "label", "frequency", "low", "high", "start", "end", "interval_withheld",
)  # fmt: skip
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
Last = Annotated[int, Query(ge=1, le=1000, description="number of steps, up to the latest")]
Values = Annotated[str | None, Query(max_length=200, description="comma-separated indices of values; default: the top five")]


def create_api(
    survey: Survey,
    source: Source,
    rejected: Callable[[], dict[Reason, int]],
    post: str = "none",
    truth: Truths | None = None,
) -> FastAPI:
    """Returns the ASGI application.

    Args:
        survey: the survey.
        source: reads the survey's publications.
        rejected: returns the number of envelopes rejected so far, by reason.
        post: the post-processing of the published "mi".
        truth: returns the true frequencies of a publication's span; only a simulation has true frequencies.
    """
    responses = ApiResponses(survey, source, post, truth)
    news = _News(source)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(news.watch())
        yield
        watching.cancel()

    api = _Api(
        title=f"ldpstream: {survey.name}", version="1", docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Histograms estimated from locally private reports, and their privacy losses.",
    )  # fmt: skip
    api.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=5)
    api.add_middleware(SecurityHeaders, headers=SECURITY)
    _handle_errors(api)

    @api.get("/api/v1/survey", responses=_describe(SurveyInfo))
    def get_survey() -> Response:
        """The survey's attributes and their privacy levels."""
        return _json(responses.survey_info())

    @api.get("/api/v1/status", responses=_describe(Status))
    def get_status(span: SpanOf = "window") -> Response:
        """Summary: each attribute's latest estimate and privacy loss, and the rejected envelopes."""
        return _json(Status(attributes=responses.overviews(span), rejected=rejected(), latest_step=responses.latest_step()))

    @api.get("/api/v1/attributes/{attribute}/histogram", responses=_describe(Histogram))
    def get_histogram(
        attribute: Attribute, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        post: Post = "none", confidence: Confidence = 0.95, top: Top = None,
    ) -> Response:  # fmt: skip
        """One estimate with its intervals."""
        return _json(responses.histogram(attribute, step, span, estimator, post, confidence, top))

    @api.get("/api/v1/attributes/{attribute}/histogram.csv", response_class=_Csv, responses=_FAILURES)
    def get_histogram_csv(
        attribute: Attribute, step: AtStep = None, span: SpanOf = "window", estimator: Estimator = None,
        post: Post = "none", confidence: Confidence = 0.95, top: Top = None,
    ) -> Response:  # fmt: skip
        """One estimate with its intervals, one line per value. The span begins at `start` and ends at `end`, in UTC."""
        h = responses.histogram(attribute, step, span, estimator, post, confidence, top)
        columns: list[Sequence[Any]] = [
            h.values,
            h.labels,
            h.frequencies,
            h.standard_errors,
            h.low,
            h.high,
            h.truth or [None] * len(h.values),
        ]
        same = (h.step, _utc(h.start_ms), _utc(h.end_ms), h.reports, h.complete, h.interval_withheld)
        return _csv(HISTOGRAM_COLUMNS, ((*row, *same) for row in zip(*columns, strict=True)))

    @api.get("/api/v1/attributes/{attribute}/series", responses=_describe(Series))
    def get_series(
        attribute: Attribute, span: SpanOf = "window", estimator: Estimator = None, values: Values = None,
        last: Last = 48, confidence: Confidence = 0.95,
    ) -> Response:  # fmt: skip
        """Some values over time."""
        return _json(responses.series(attribute, span, estimator, values, last, confidence))

    @api.get("/api/v1/attributes/{attribute}/series.csv", response_class=_Csv, responses=_FAILURES)
    def get_series_csv(
        attribute: Attribute, span: SpanOf = "window", estimator: Estimator = None, values: Values = None,
        last: Last = 48, confidence: Confidence = 0.95,
    ) -> Response:  # fmt: skip
        """Some values over time, one line per step and value."""
        s = responses.series(attribute, span, estimator, values, last, confidence)
        rows = (
            (step, s.reports[i], s.complete[i], line.value, line.label, line.frequencies[i], line.low[i], line.high[i],
             _utc(s.start_ms[i]), _utc(s.end_ms[i]), s.interval_withheld[i])
            for i, step in enumerate(s.steps)
            for line in s.lines
        )  # fmt: skip
        return _csv(SERIES_COLUMNS, rows)

    @api.get("/api/v1/events", response_class=_Events)
    async def get_events() -> StreamingResponse:
        """Server-sent events `published` with the latest step as data: one event at once, then one after every publication."""
        return _Events(news.stream(), headers={"X-Accel-Buffering": "no"})

    @api.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @api.get("/favicon.ico", include_in_schema=False)
    def favicon() -> FileResponse:
        return FileResponse(PAGE / "favicon.svg")

    api.mount("/page", StaticFiles(directory=PAGE))
    return api


class _Api(FastAPI):
    """FastAPI with the width of every number in the OpenAPI document. Without a width, client generators assume 32 bits."""

    def openapi(self) -> dict[str, Any]:
        document: dict[str, Any] = with_formats(super().openapi())
        return document


def with_formats(part: Any) -> Any:
    """Returns an OpenAPI document, or a part of one, with a format for every integer and number."""
    if isinstance(part, list):
        return [with_formats(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    width = {"integer": "int64", "number": "double"}.get(part["type"]) if isinstance(part.get("type"), str) else None
    return {key: with_formats(inner) for key, inner in part.items()} | ({"format": width} if width else {})


class _Csv(Response):
    media_type = "text/csv"


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


def _csv(header: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> Response:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(("" if cell is None else _inert(cell) for cell in row) for row in rows)
    return _Csv(text.getvalue())


def _utc(time_ms: int) -> str:
    """Formats a Unix time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _inert(cell: Any) -> Any:
    """Marks a label as text if a spreadsheet would read it as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


# ---- errors and descriptions


def _handle_errors(api: FastAPI) -> None:
    @api.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        return _problem(error.status_code, str(error.detail))

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return _problem(422, f"{first['loc'][-1]}: {first['msg']}")

    @api.exception_handler(NotFound)
    async def missing(_: Request, error: NotFound) -> Response:
        return _problem(404, str(error))

    @api.exception_handler(NotAllowed)
    async def not_allowed(_: Request, error: NotAllowed) -> Response:
        return _problem(422, str(error))

    @api.exception_handler(StoreUnavailable)
    async def away(_: Request, error: StoreUnavailable) -> Response:
        return _problem(503, "the store of results does not answer")


def _problem(status: int, detail: str) -> Response:
    body = msgspec.json.encode({"type": "about:blank", "status": status, "detail": detail})
    return Response(body, status, media_type="application/problem+json")


_PROBLEM: dict[str, Any] = {
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["type", "status", "detail"],
                "properties": {"type": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}},
            }
        }
    }
}
_FAILURES: dict[int | str, dict[str, Any]] = {
    404: {"description": "There is no such attribute, or no such estimate yet.", **_PROBLEM},
    422: {"description": "A parameter is not allowed.", **_PROBLEM},
    503: {"description": "The store of results does not answer.", **_PROBLEM},
}


def _describe(answer: type[msgspec.Struct]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI description of a response, with every reference replaced by its schema."""
    (schema,), parts = msgspec.json.schema_components([answer])
    return {200: {"content": {"application/json": {"schema": _resolve(schema, parts)}}}, **_FAILURES}


def _resolve(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _resolve(parts[schema["$ref"].rpartition("/")[2]], parts)
        return {key: _resolve(inner, parts) for key, inner in schema.items()}
    return [_resolve(inner, parts) for inner in schema] if isinstance(schema, list) else schema
