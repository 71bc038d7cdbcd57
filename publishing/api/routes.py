"""The routes of one survey: its API and its page. `api.app` puts them at the root, or below the name of each survey."""

from collections.abc import Awaitable, Callable
from pathlib import Path as FilePath
from typing import Annotated, Any
from zlib import crc32

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel

from ldpstream.promises.label import label
from ldpstream.promises.label_picture import picture
from ldpstream.publishing import page
from ldpstream.publishing.answers.queries import (
    ComparisonQuery,
    HistogramQuery,
    NumbersQuery,
    OverviewQuery,
    SeriesQuery,
    StatusQuery,
    TableQuery,
    UsageQuery,
)
from ldpstream.publishing.answers.responses import NotFound, Served
from ldpstream.publishing.answers.schema import Comparison, Histogram, NumberSeries, Overview, Series, Status, Table
from ldpstream.publishing.answers.survey_info import SurveyInfo
from ldpstream.publishing.answers.usage import Usage
from ldpstream.publishing.api.card import card
from ldpstream.publishing.api.csv_answers import Csv, Estimates, changes_csv, csv_of, file_name
from ldpstream.publishing.api.errors import FAILURES, describe
from ldpstream.runtime.versions import running_version

PAGE = FilePath(page.__file__).parent / "static"

Attribute = Annotated[str, Path(description="name of an attribute", max_length=64)]
UNCHANGED = {"description": "There is no new estimate."}
OF_ATTRIBUTE = "/api/v1/attributes/{attribute}"
ANSWERS: tuple[tuple[str, type[BaseModel], type[msgspec.Struct], str], ...] = (
    ("histogram", HistogramQuery, Histogram, "One estimate with its intervals."),
    ("series", SeriesQuery, Series, "Some values over time."),
    ("numbers", NumbersQuery, NumberSeries, "Mean and percentiles of an attribute with numbers, over time."),
    ("table", TableQuery, Table, "The cross table of a pair of attributes, or of the cohorts and an attribute's values."),
    (
        "comparison",
        ComparisonQuery,
        Comparison,
        "Differences between two times, or between two cohorts, with intervals.",
    ),
)
EARLY = '<link rel="preload" as="fetch" crossorigin href="api/v1/overview?span=window">\n</head>'  # a browser warns if unused


class Svg(Response):
    """A picture that other pages may embed."""

    media_type = "image/svg+xml"

    def __init__(self, text: str, status_code: int = 200) -> None:
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        super().__init__(
            text, status_code, headers={"Content-Security-Policy": policy, "Cross-Origin-Resource-Policy": "cross-origin"}
        )


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
        return _json(of.survey_info())

    @api.get("/api/v1/label.svg", response_class=Svg, responses=FAILURES)
    def get_label(of: Served = found) -> Response:
        """The survey's privacy label as a picture."""
        return Svg(picture(label(of.survey, of.signed())))

    @api.get("/api/v1/status", responses={304: UNCHANGED, **describe(Status)})
    def get_status(request: Request, query: Annotated[StatusQuery, Query()], of: Served = found) -> Response:
        """Summary: each attribute's latest estimate and privacy loss, and the rejected envelopes. The ETag changes with each
        publication: a request that names it in `If-None-Match` gets 304 if there is no new estimate."""
        known = _etag(of)
        if request.headers.get("If-None-Match") == known["ETag"]:
            return Response(status_code=304, headers=known)
        return _json(of.status(query.span, of.clock()), known)

    @api.get("/api/v1/overview", responses={304: UNCHANGED, **describe(Overview)})
    @api.get("/api/v1/overview.csv", response_class=Csv, responses=FAILURES)
    @api.get("/api/v1/changes.csv", response_class=Csv, responses=FAILURES)
    def get_overview(request: Request, query: Annotated[OverviewQuery, Query()], of: Served = found) -> Response:
        """All attributes in one period, their differences from another period or cohort, and sentences about them. The ETag is
        that of `/api/v1/status`. `changes.csv` has the clearest differences."""
        known = _etag(of)
        if request.headers.get("If-None-Match") == known["ETag"]:
            return Response(status_code=304, headers=known)
        overview = of.overview(query)
        return changes_csv(overview) if request.url.path.endswith("/changes.csv") else _answer(request, overview, known)

    @api.get(OF_ATTRIBUTE + "/card.svg", response_class=Svg, responses=FAILURES)
    def get_card(attribute: Attribute, query: Annotated[OverviewQuery, Query()], of: Served = found) -> Response:
        """An attribute of the overview as a picture that other pages can embed."""
        overview = of.overview(query)
        one = next((one for one in overview.attributes if one.attribute == attribute), None)
        if one is None:
            raise NotFound(f"no attribute {attribute!r} in this overview")
        return Svg(card(overview, one))

    @api.get("/api/v1/usage", responses=describe(Usage))
    @api.get("/api/v1/usage.csv", response_class=Csv, responses=FAILURES)
    def get_usage(request: Request, query: Annotated[UsageQuery, Query()], of: Served = found) -> Response:
        """The people who use an application: a step, a day, in several steps, and who came back after their first use."""
        return _answer(request, of.usage(query))

    for what, kind, answer, words in ANSWERS:
        _offer(api, found, what, kind, answer, words)

    index = (PAGE / "index.html").read_text(encoding="utf-8")
    if home:
        index = index.replace("<header>", '<header>\n  <p id="home"><a href="/">All surveys</a></p>')

    first = index.replace("</head>", EARLY)

    @api.get("/", include_in_schema=False)
    def page(request: Request, of: Served = found) -> HTMLResponse:
        return HTMLResponse(index if request.url.query else first)

    return api


def _offer(api: APIRouter, found: Any, what: str, kind: type[BaseModel], answer: type[msgspec.Struct], words: str) -> None:
    """Adds the routes of an answer about one attribute, as JSON and as CSV."""

    def get_answer(request: Request, attribute: Attribute, query: BaseModel, of: Served = found) -> Response:
        return _answer(request, getattr(of, what)(attribute, query))

    get_answer.__annotations__["query"] = Annotated[kind, Query()]  # FastAPI reads the query's fields from here
    path, name = f"{OF_ATTRIBUTE}/{what}", f"get_{what}"
    api.get(path, name=name, description=words, responses=describe(answer))(get_answer)
    api.get(f"{path}.csv", name=name, description=words, response_class=Csv, responses=FAILURES)(get_answer)


def _json(document: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(document), headers=headers, media_type="application/json")


def _etag(of: Served) -> dict[str, str]:
    return {"ETag": f'W/"{running_version()}-{crc32(of.survey.fingerprint + msgspec.json.encode(of.source.progress())):x}"'}


def _answer(request: Request, document: Estimates, headers: dict[str, str] | None = None) -> Response:
    if request.url.path.endswith(".csv"):
        return csv_of(document)
    return _json(document, {"Content-Disposition": f'inline; filename="{file_name(document, "json")}"'} | (headers or {}))
