"""The HTTP gateway, for devices that cannot use Kafka.

    POST /v1/reports      one envelope (application/vnd.ldpstream.envelope, application/octet-stream), or a batch of them
                          (application/vnd.ldpstream.envelopes); 202 {"accepted": reports} once the log has acknowledged
    GET  /v1/surveys      the name, fingerprint, title and end of each survey
    GET  /v1/surveys/FINGERPRINT   the device survey (`surveys.device_survey`), the survey's file, and its signature
    GET  /v1/survey       the same for a gateway with exactly one survey; otherwise 404
    GET  /health, /ready  liveness of the process; readiness to accept reports of a survey
    GET  /openapi.json    this API as an OpenAPI document
    GET, POST /.well-known/ohttp-gateway, POST /ohttp   reports through a relay (`gateway.oblivious`)

**Surveys.** The fingerprint in an envelope names its survey. The gateway refuses a report of an unknown survey with 409
(``wrong survey``), or with 503 (``survey unavailable``) while a survey file is broken. A report of a survey whose topic the
gateway could not use so far also gets 503 (``survey unavailable``). A plain request for a survey with ``relay = "required"``
gets 403 (``relay required``).

**Batches.** A batch is one msgpack array of envelopes of one survey, each a msgpack binary: 1 to 10 000 of them and at most 650
000 bytes in all. The log appends a whole batch or nothing. A single envelope may have at most 1 000 000 bytes.

A body whose only fault, by the gateway's clock, is a step in the future gets 409. ``Retry-After`` has the seconds until the
body may count, at most a day.

**Delivery.** A 202 means that the log has the reports, and that ``accepted`` of them count. After the gateway's 4xx, 501 or
503, this attempt does not count. After 422 no later attempt with the same body counts; after the others a later attempt may.
The outcome is unknown after 500, 504 and a missing answer.

With an ``Idempotency-Key``, the same in every attempt, the reports count at most once, within the limits that
`agents.remembered_keys` states. Without a key, each attempt that reaches the log can count.

The key has 16 to 64 letters, digits, ``-`` and ``_``, and at least 128 random bits. The client draws a new key for every body
and keeps the key until a 202 or a 422.

**Limits.** A client (an address, or an IPv6 /48) gets 429 above its rate of requests and bytes (``too many requests``), and
above its share of a step's reports (``share used``). Without a collector's token, an envelope may have one
report, and a batch 100 envelopes; otherwise the request gets 403 (``collector required``). A request with a key gets 503
(``keys full``) if the log cannot remember the key. `gateway.budgets` has the shares.

No log line or metric contains a client's address, token or key.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ldpstream.gateway.http.problems import Cause, Problem
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.oblivious import oblivious_routes
from ldpstream.gateway.surveys import ServedSurvey, SurveyList
from ldpstream.runtime.web import SecurityHeaders, with_formats

REQUEST_HEADERS, ANSWER_HEADERS = ("Authorization", "Content-Type", "Idempotency-Key"), ("Retry-After",)  # of pages
PREFLIGHT_S = 7200  # how long a browser remembers a permission; Chromium remembers for at most two hours
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def openapi(tokens_required: bool) -> dict[str, Any]:
    """Returns the OpenAPI document."""
    document: dict[str, Any] = json.loads(Path(__file__).with_name("openapi.json").read_bytes())
    template = "#/components/schemas/{name}"
    document["components"]["schemas"] |= with_formats(
        msgspec.json.schema_components([ServedSurvey, SurveyList], ref_template=template)[1]
    )
    if not tokens_required:
        del document["security"], document["components"]["securitySchemes"]
    return document


def create_gateway(intake: Intake, origins: Sequence[str] = ()) -> Starlette:
    surveys, described = intake.surveys, openapi(intake.tokens.required)

    async def reports(request: Request) -> Response:
        try:
            return _json({"accepted": await intake.accept(request)}, HTTPStatus.ACCEPTED)
        except Problem as problem:
            return problem.response()

    def served(find: Callable[[Request], bytes]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                intake.admit(request)
                return Response(find(request), media_type="application/json")
            except Problem as problem:
                return problem.response()

        return answer

    async def health(_: Request) -> Response:
        return _json({"status": "alive"})

    async def ready(_: Request) -> Response:
        if intake.ready:
            return _json({"status": "ready"})
        return Problem(
            "log unavailable",
            "no survey's log answers, nothing is counted, the clock has jumped, or this gateway is shutting down",
        ).response()

    async def describe(_: Request) -> Response:
        return _json(described)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tidying = asyncio.create_task(intake.tidy())
        yield
        tidying.cancel()

    middleware = [Middleware(SecurityHeaders, headers=SECURITY)]
    if origins:  # pages of these origins may report
        middleware += [Middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=REQUEST_HEADERS,
            expose_headers=ANSWER_HEADERS, max_age=PREFLIGHT_S,
        )]  # fmt: skip
    app = Starlette(
        routes=[
            Route("/v1/reports", reports, methods=["POST"]),
            Route("/v1/survey", served(lambda _: surveys.only_document())),
            Route("/v1/surveys", served(lambda _: surveys.listing())),
            Route("/v1/surveys/{fingerprint}", served(lambda request: surveys.document(request.path_params["fingerprint"]))),
            Route("/health", health),
            Route("/ready", ready),
            Route("/openapi.json", describe),
            *oblivious_routes(intake),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _unknown, Exception: _broken},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # never redirect a request with a body
    return app


async def _unknown(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    cause: Cause = "method not allowed" if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else "not found"
    return Problem(cause, "see /openapi.json for the API", headers=dict(error.headers or {})).response()


async def _broken(_: Request, error: Exception) -> Response:
    return Problem("internal error", "see the gateway's log").response()


def _json(document: dict[str, Any], status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
