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

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.responses import Response

from ldpstream.gateway.http.framing import Pairs
from ldpstream.gateway.http.problems import Problem
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.oblivious import PATH, WELL_KNOWN, begin_capsule, published_key
from ldpstream.gateway.surveys import ServedSurvey, SurveyList
from ldpstream.gateway.waiting import Request, WaitingRequest, problem_of
from ldpstream.runtime.web import with_formats

SURVEYS: Final = "/v1/surveys"
# A browser asks for a permission before a page's request, and remembers it; Chromium remembers it for at most two hours.
PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key",
    "Access-Control-Max-Age": "7200",
}
PERMISSION: Final = b"access-control-allow-origin: %b\r\naccess-control-expose-headers: Retry-After\r\nvary: Origin\r\n"


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


class GatewayApp:
    """The gateway's answers to requests.

    Args:
        origins: web origins whose pages may report.
    """

    def __init__(self, intake: Intake, origins: Sequence[str] = ()) -> None:
        self.intake, self._origins = intake, [origin.encode() for origin in origins]
        surveys, described = intake.surveys, msgspec.json.encode(openapi(intake.tokens.required))
        capsule = partial(begin_capsule, intake)
        self._posts: dict[str, Callable[[Request], WaitingRequest]] = {
            "/v1/reports": self._begin_reports, WELL_KNOWN: capsule, PATH: capsule
        }  # fmt: skip
        self._gets: dict[str, Callable[[Request], Response]] = {
            "/v1/survey": self._served(lambda _: surveys.only_document()),
            SURVEYS: self._served(lambda _: surveys.listing()),
            "/health": lambda _: _json(b'{"status":"alive"}'),
            "/ready": self._ready,
            "/openapi.json": lambda _: _json(described),
            WELL_KNOWN: partial(published_key, intake),
        }
        self._get_survey = self._served(lambda path: surveys.document(path.rpartition("/")[2]))

    def begin(self, request: Request) -> None:
        """Answers a request, or sets its `waiting` if the answer depends on the body."""
        try:
            if request.method == b"POST" and (post := self._posts.get(request.path)) is not None:
                request.waiting = post(request)
            else:
                request.answer(self._answer(request))
        except Exception as error:
            request.answer(problem_of(error))

    def _answer(self, request: Request) -> Response:
        get = self._get_survey if request.path.rpartition("/")[0] == SURVEYS else self._gets.get(request.path)
        allowed = ["GET, HEAD"] * (get is not None) + ["POST"] * (request.path in self._posts)
        if get is not None and request.method in (b"GET", b"HEAD"):
            return get(request)
        if not allowed:
            raise Problem("not found", "see /openapi.json for the API")
        if request.method == b"OPTIONS" and self.permission(request.headers):
            return Response(headers=PREFLIGHT)
        raise Problem("method not allowed", "see /openapi.json for the API", headers={"Allow": ", ".join(allowed)})

    def permission(self, headers: Pairs) -> bytes:
        """Returns the headers that let a page read the answer; none if its origin is not listed."""
        origin = next((value for name, value in headers if name == b"origin"), None) if self._origins else None
        return PERMISSION % origin if origin in self._origins else b""

    def _begin_reports(self, request: Request) -> WaitingRequest:
        return self.intake.begin(request.headers, request.address, request.answer)

    def _served(self, find: Callable[[str], bytes]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            self.intake.admit(request.headers, request.address)
            return _json(find(request.path))

        return answer

    def _ready(self, _: Request) -> Response:
        if not self.intake.ready:
            detail = "no survey's log answers, nothing is counted, the clock has jumped, or this gateway is shutting down"
            raise Problem("log unavailable", detail)
        return _json(b'{"status":"ready"}')


def _json(document: bytes) -> Response:
    return Response(document, media_type="application/json")
