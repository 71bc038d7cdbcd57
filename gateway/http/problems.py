"""The gateway's problems: a closed list of reasons for an answer other than success, sent as problem documents (RFC 9457).

    {"type": "urn:ldpstream:problem:step-too-old", "title": "step too old", "status": 422, "detail": "…", "refused": 2,
     "elements": [{"index": 3, "reason": "step too old"},
                  {"index": 9, "reason": "step in the future", "retry_after": 40}]}

If envelopes of a batch are refused, the document can have their number, `refused`, and the first 100 of them, `elements`.
`retry_after` is in seconds.

The status of a problem alone determines what a client does:

- 422: neither this attempt nor a later one for the same body counts, at any gateway;
- 500, 504: the reports may count (`gateway.http.app` explains how to retry);
- any other status: the reports do not count by this attempt, and the same body may count later.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

import msgspec
from starlette.responses import Response

from ldpstream.surveys import Reason

Cause = (
    Reason
    | Literal[
        "malformed request", "malformed idempotency key", "unknown key configuration", "unauthorized", "relay required",
        "collector required", "not found", "method not allowed", "too slow", "unsupported content type", "several surveys",
        "too many requests", "share used", "internal error", "unsupported transfer coding", "busy", "keys full",
        "log unavailable", "survey unavailable", "stopping", "outcome unknown",
    ]
)  # fmt: skip
_CAUSES: Final[dict[int, tuple[Cause, ...]]] = {
    400: ("malformed request", "malformed idempotency key", "unknown key configuration"),
    401: ("unauthorized",),
    403: ("relay required", "collector required"),
    404: ("not found",),
    405: ("method not allowed",),
    408: ("too slow",),
    409: ("unknown version", "wrong survey", "step in the future"),
    415: ("unsupported content type",),
    422: (
        "undecodable", "too large", "several surveys", "unknown attribute or level", "unknown cohort", "wrong length",
        "symbol out of range", "padding bits set", "survey ended", "step too old",
    ),
    429: ("too many requests", "share used"),
    500: ("internal error",),
    501: ("unsupported transfer coding",),
    503: ("busy", "keys full", "log unavailable", "survey unavailable", "stopping"),
    504: ("outcome unknown",),
}  # fmt: skip
STATUS: Final[dict[Cause, int]] = {cause: status for status, causes in _CAUSES.items() for cause in causes}
FINAL: Final = 422  # after this status, and no other, the same body is never accepted
MEND_FIRST: Final = (400, 401, 403, 404, 405, 415, 501)  # a fault of the head, the token or the way, which somebody must mend
RETRY_S: Final[dict[Cause, int]] = {
    "too slow": 1, "unknown version": 3600, "wrong survey": 3600, "step in the future": 1, "too many requests": 1,
    "share used": 60, "busy": 1, "keys full": 60, "log unavailable": 2,
    "survey unavailable": 15, "stopping": 1, "outcome unknown": 2,
}  # fmt: skip
MAX_RETRY_S = 86_400
MAX_ELEMENTS = 100


class Element(TypedDict):
    """A refused envelope of a batch: index from 0, reason, and the seconds until the envelope may count, if any."""

    index: int
    reason: Reason
    retry_after: NotRequired[int]


class Problem(Exception):
    """Raised to refuse a request, or because the request's outcome is unknown.

    Args:
        detail: a sentence for people, without any token, key or part of a body.
        retry_s: seconds until the same body may count, in place of `RETRY_S`.
    """

    def __init__(
        self,
        cause: Cause,
        detail: str,
        *,
        elements: Sequence[Element] = (),
        retry_s: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(cause)
        self.cause: Cause = cause
        self.detail, self.elements, self.headers = detail, elements, headers or {}
        self.retry_s = RETRY_S.get(cause) if retry_s is None else retry_s

    def response(self) -> Response:
        """Returns the problem document, with Retry-After unless `retry_s` is None."""
        document: dict[str, Any] = {
            "type": urn(self.cause), "title": self.cause, "status": STATUS[self.cause], "detail": self.detail
        }  # fmt: skip
        if self.elements:
            document |= {"refused": len(self.elements), "elements": self.elements[:MAX_ELEMENTS]}
        headers = dict(self.headers)
        if self.retry_s is not None:
            headers["Retry-After"] = str(self.retry_s)
        return Response(
            msgspec.json.encode(document), STATUS[self.cause], headers=headers, media_type="application/problem+json"
        )


def unknown_at_present() -> Problem:
    detail = "a survey file of this gateway is broken, so the gateway does not know every survey at present"
    return Problem("survey unavailable", detail)


def urn(cause: Cause) -> str:
    """Returns the type of a problem.

    >>> urn("step too old")
    'urn:ldpstream:problem:step-too-old'
    """
    if cause == "unknown key configuration":
        return "https://iana.org/assignments/http-problem-types#ohttp-key"
    return "urn:ldpstream:problem:" + cause.replace(" ", "-")
