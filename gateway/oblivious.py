"""The gateway as an Oblivious HTTP gateway (RFC 9458): reports that come through a relay, which hides who sent them.

    GET  /.well-known/ohttp-gateway   the key configuration (application/ohttp-keys, RFC 9540)
    POST /.well-known/ohttp-gateway   one encapsulated request (message/ohttp-req); 200 with its encapsulated response
    POST /ohttp                       the same

The gateway is its own target: the request inside must be POST /v1/reports for the host that the outer request names. The
request inside gets the checks and answers of a plain request, with these differences:

- The request inside must have an ``Idempotency-Key``.
- The request inside must hold one envelope: a batch would link its reports.
- The survey may have ``relay = "required"``.
- Requests through a relay that the settings list have no limits of a client. All requests of another relay share the limits
  of a client at the relay's address.
- The gateway delays the requests that pass its checks, and their answers, and mixes them with others
  (`gateway.shuffle`).

A refusal before the decryption is a problem document in clear, as RFC 9458, section 5.2, requires. All answers after the
decryption, except some internal errors, are padded to a multiple of `PADDED_BYTES` and encapsulated.
"""

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from ldpstream.device.relay.binary_http import BinaryHttpError, BinaryRequest, BinaryResponse, decode_request, encode_response
from ldpstream.device.relay.capsules import (
    KEYS_TYPE,
    OVERHEAD_BYTES,
    REQUEST_TYPE,
    RESPONSE_TYPE,
    CapsuleError,
    Exchange,
    UnknownKeyError,
    open_request,
)
from ldpstream.gateway import metrics
from ldpstream.gateway.http.bodies import Headers, is_batch, read_headers
from ldpstream.gateway.http.problems import Problem
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.waiting import Request, Result, WaitingRequest
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES

WELL_KNOWN, PATH = "/.well-known/ohttp-gateway", "/ohttp"
INNER_PATH: Final = b"/v1/reports"
MAX_HEAD_BYTES = 32 * 1024  # limit of the inner request's head, with the padding
MAX_CAPSULE_BYTES: Final = MAX_ENVELOPE_BYTES + MAX_HEAD_BYTES + OVERHEAD_BYTES
PADDED_BYTES = 512


def published_key(intake: Intake, request: Request) -> Response:
    """Returns the key configuration. Raises Problem if the gateway takes no reports through a relay."""
    if intake.relay_keys is None:
        raise _no_relay()
    intake.admit_anybody(request.address)
    return Response(intake.relay_keys.published(intake.time_ms() / 1000), media_type=KEYS_TYPE)


def begin_capsule(intake: Intake, request: Request) -> WaitingRequest:
    """Admits an encapsulated request."""
    return intake.begin_capsule(request, MAX_CAPSULE_BYTES, partial(_take, intake, dict(request.headers), request.address))


def _take(intake: Intake, headers: Headers, address: str, waiting: WaitingRequest, capsule: bytes) -> Iterator[None]:
    exchange = _open(intake, headers.get(b"content-type", b""), capsule)

    def answer(result: Result) -> None:
        inner = encode_response(_response(result))
        sealed = exchange.seal_response(inner + bytes(-len(inner) % PADDED_BYTES))
        waiting.release()
        waiting.close(Response(sealed, media_type=RESPONSE_TYPE))

    try:
        asked = _checked(exchange.message, headers.get(b"host", b""))
        exchange.message = b""  # the request may wait for half a second
        intake.take(asked.headers, address, asked.content, answer, relayed=True)
    except Problem as problem:
        metrics.requests[problem.cause].inc()
        answer(problem)
    yield from ()


def _open(intake: Intake, kind: bytes, capsule: bytes) -> Exchange:
    if intake.relay_keys is None:
        raise _no_relay()
    if kind.partition(b";")[0].strip().lower() != REQUEST_TYPE.encode():
        raise Problem("unsupported content type", f"the content type must be {REQUEST_TYPE}")
    try:
        return open_request(intake.relay_keys.private, capsule)
    except UnknownKeyError as error:
        raise Problem("unknown key configuration", f"{error}; GET {WELL_KNOWN} has the present one") from None
    except CapsuleError as error:
        raise Problem("malformed request", str(error)) from None


def _checked(message: bytes, host: bytes) -> BinaryRequest:
    try:
        asked = decode_request(message)
    except BinaryHttpError as error:
        raise Problem("malformed request", f"the request inside: {error}") from None
    headers = read_headers(asked.headers)
    named = asked.authority or headers.get(b"host", b"")
    if (asked.method, asked.path) != (b"POST", INNER_PATH) or named.lower() != host.lower():
        raise Problem(
            "not found", f"the request inside must be POST {INNER_PATH.decode()} for the host {host.decode('latin-1')}"
        )
    if b"idempotency-key" not in headers:
        detail = "a request through a relay needs an Idempotency-Key: a relay could repeat the request"
        raise Problem("malformed idempotency key", detail)
    if is_batch(headers):
        raise Problem(
            "unsupported content type", "a request through a relay takes one envelope: a batch would link its reports"
        )
    return asked


def _response(result: Result) -> BinaryResponse:
    if not isinstance(result, int):
        response = result.response() if isinstance(result, Problem) else result
        headers = tuple(pair for pair in response.raw_headers if pair[0] != b"content-length")
        return BinaryResponse(response.status_code, headers, bytes(response.body))
    content = msgspec.json.encode({"accepted": result})
    return BinaryResponse(HTTPStatus.ACCEPTED, ((b"content-type", b"application/json"),), content)


def _no_relay() -> Problem:
    return Problem("not found", "this gateway takes no reports through a relay")
