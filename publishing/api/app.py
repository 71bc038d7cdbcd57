"""The HTTP API of the published estimates, and the live page that shows them.

About people, the API serves only aggregates: published estimates, numbers of reports, and in a simulation true frequencies. The
page contacts no other host.

    GET /                                             the page
    GET /api/v1/survey                                the attributes and their privacy levels
    GET /api/v1/status                                summary: each attribute's latest estimate and privacy loss; rejections
    GET /api/v1/attributes/{attribute}/histogram      one estimate with its intervals (also histogram.csv)
    GET /api/v1/attributes/{attribute}/series         some values over time (also series.csv)
    GET /api/v1/attributes/{attribute}/numbers        mean and percentiles over time (also numbers.csv)
    GET /api/v1/attributes/{attribute}/table          a cross table (also table.csv)
    GET /api/v1/attributes/{attribute}/comparison     differences between two times or two cohorts (also comparison.csv)
    GET /openapi.json                                 OpenAPI description of these requests

A process with several surveys serves these requests, except the last, below `/surveys/NAME`. It also serves:

    GET /                                             the start page: all surveys
    GET /api/v1/surveys                               summary of all surveys
    GET /openapi.json                                 OpenAPI description of the requests for all surveys

Errors are problem documents (RFC 9457):

    404    something does not exist, or does not exist yet
    405    the method is not GET or HEAD
    422    a parameter is unknown or not allowed
    503    the store of results does not answer, or is damaged
"""

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
from fastapi import Depends, Path, Request
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ldpstream.publishing.answers.responses import NotFound, Served
from ldpstream.publishing.answers.summaries import Surveys
from ldpstream.publishing.api.errors import Api, describe, handle_errors
from ldpstream.publishing.api.routes import PAGE, routes
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.web import SecurityHeaders

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class HeadAsGet:
    """Answers HEAD like GET; the server sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def create_api(only: Served) -> Api:
    """Returns the ASGI application of one survey."""

    async def served() -> Served:
        return only

    api = _api(f"ldpstream: {only.survey.name}")
    api.include_router(routes(served))
    return api


def create_surveys_api(all_served: Mapping[str, Served], clock: Callable[[], int] = now_ms) -> Api:
    """Returns the ASGI application of several surveys.

    Args:
        all_served: the surveys by name; the mapping may change at any time.
    """

    async def served(survey: Annotated[str, Path(description="name of a survey", max_length=64)]) -> Served:
        try:
            return all_served[survey]
        except KeyError:
            raise NotFound(f"no survey {survey!r} here") from None

    api = _api("ldpstream")
    api.include_router(routes(served, home=True), prefix="/surveys/{survey}")

    @api.get("/api/v1/surveys", responses=describe(Surveys))
    def get_surveys() -> Response:
        found, at_ms = sorted(all_served.items()), clock()
        made = Surveys([served.summary(at_ms) for _, served in found])
        return Response(msgspec.json.encode(made), media_type="application/json")

    @api.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "surveys.html")

    @api.get("/surveys/{survey}", include_in_schema=False)
    def with_slash(request: Request, of: Annotated[Served, Depends(served)]) -> Response:
        """Redirects relatively, since the request's Host may be anything, and a proxy may have added a prefix."""
        query = f"?{request.url.query}" if request.url.query else ""
        return Response(status_code=307, headers={"Location": f"{of.survey.name}/{query}"})

    return api


def _api(title: str) -> Api:
    api = Api(
        title=title, version="1", docs_url=None, redoc_url=None,
        description="Histograms estimated from locally private reports, and their privacy losses.",
        redirect_slashes=False,
    )  # fmt: skip
    api.add_middleware(HeadAsGet)
    api.add_middleware(GZipMiddleware, minimum_size=500, compresslevel=5)
    api.add_middleware(SecurityHeaders, headers=SECURITY)
    handle_errors(api)

    @api.get("/favicon.ico", include_in_schema=False)
    def favicon() -> FileResponse:
        return FileResponse(PAGE / "favicon.svg")

    api.mount("/page", StaticFiles(directory=PAGE))
    return api
