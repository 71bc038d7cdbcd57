"""The HTTP gateway, for devices that cannot speak Kafka: an envelope comes as a request's body and goes to the log.

    POST /v1/reports      one envelope (application/vnd.ldpstream.envelope, application/octet-stream), or a batch of them
                          (application/vnd.ldpstream.envelopes); 202 {"accepted": reports} once the log has acknowledged
    GET  /v1/survey       what is asked: name, fingerprint, the survey as JSON and as its TOML
    GET  /health, /ready  whether the process lives, and whether the log answers
    GET  /openapi.json    all this for programs

**A batch** is one msgpack array of binaries, each an envelope: 1 to 10 000 of them and at most 750 000 bytes in all. It is
accepted whole or not at all, in the answer and in the log. One envelope that could not be counted refuses the batch; the
problem lists the index and the reason of each such envelope (`elements`, the first 100). An envelope alone takes at most
1 000 000 bytes.

**Checked** is all that counting would check, at the gateway's clock. The log's own time still decides: an envelope accepted in
the last moment of its step's horizon may be too late in the log, and is then among the rejected ones. A step in the future may
count later: 409, with the seconds until it opens in ``Retry-After`` (at most a day, then the client may ask again).

**How often a report counts.** A 202 means that the log has the reports, once. A 4xx or a 503 means that this attempt has not
brought them there, and never will. Of these, 400, 413, 415 and 422 mean that the same body never counts; after the others it
may, once ``Retry-After`` is over. That leaves one case: 500, the 504 ``outcome unknown``, a proxy's own 502 or 504, and an
answer that never came. There the client chooses:

- not to ask again: its reports count at most once;
- to ask again: at least once;
- to send an ``Idempotency-Key``, the same with every attempt: exactly once, as long as the attempts reach the same process and
  the log acknowledges within two minutes. If it never does (its connection was given up, so nobody can know), no other attempt
  with that key is made: they are answered ``outcome unknown``, and the reports count at most once.

The key is 16 to 64 letters, digits, ``-`` and ``_``, at least 128 random bits, drawn anew for every body and kept beside it
until the 202. The gateway remembers a hash of key and body in memory, for at least five minutes beyond the acknowledgement (or
for the last 200 000, if they come faster); so the key joins no two reports of a device, and it does not reach the log.

Several gateways remember apart: let what is in front of them choose one by the key (nginx: ``hash $http_idempotency_key
consistent``). An attempt that meets another process, or one that was started anew meanwhile, is a first one to it. A store that
they share would not close that gap: whoever dies between the log's acknowledgement and the note of it in the store leaves the
same question behind.

**How much.** A client (one token at one address) has a rate of requests, of bytes and of reports; beyond one of them it is told
to wait, 429 ``too many requests``. An address may hold so many connections; one more is closed at once.

No address, token or key is logged or counted. Addresses are held for these limits alone, until they let go of them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producers.gateway.intake import Intake
from producers.gateway.openapi import description
from producers.gateway.problems import Cause, Problem

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_gateway(intake: Intake, toml: str) -> Starlette:
    """The ASGI application. A framework that checks arguments would cost more than all that is done with a request.

    Args:
        intake: what takes the reports.
        toml: the survey's file, as devices are to have it.
    """
    survey = intake.survey
    definition = {"name": survey.name, "fingerprint": survey.fingerprint.hex(), "canonical": survey.canonical, "toml": toml}
    openapi = description(survey.name, intake.tokens.required)

    async def reports(request: Request) -> Response:
        try:
            return _json({"accepted": await intake.accept(request)}, HTTPStatus.ACCEPTED)
        except Problem as problem:
            return problem.response()

    async def asked(request: Request) -> Response:
        try:
            intake.admit(request)
        except Problem as problem:
            return problem.response()
        return _json(definition)

    async def health(_: Request) -> Response:
        return _json({"status": "alive"})

    async def ready(_: Request) -> Response:
        if intake.ready:
            return _json({"status": "ready"})
        return Problem("log unavailable", "the log does not answer, or this gateway is about to end").response()

    async def describe(_: Request) -> Response:
        return _json(openapi)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tidying = asyncio.create_task(intake.tidy())
        yield
        tidying.cancel()

    app = Starlette(
        routes=[
            Route("/v1/reports", reports, methods=["POST"]),
            Route("/v1/survey", asked),
            Route("/health", health),
            Route("/ready", ready),
            Route("/openapi.json", describe),
        ],
        middleware=[Middleware(_SecurityHeaders)],
        exception_handlers={HTTPException: _unknown, Exception: _broken},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a body goes where it was sent to, or nowhere
    return app


class _SecurityHeaders:
    """Adds the headers of `SECURITY` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in SECURITY.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def _unknown(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    cause: Cause = "method not allowed" if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else "not found"
    return Problem(cause, "see /openapi.json for what there is", headers=dict(error.headers or {})).response()


async def _broken(_: Request, error: Exception) -> Response:
    return Problem("internal error", "see the gateway's log").response()


def _json(document: dict[str, Any], status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
