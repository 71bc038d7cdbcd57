"""What the gateway refuses, and why: a closed list of problems, told as documents of RFC 9457.

    {"type": "urn:ldpstream:problem:step-too-old", "title": "step too old", "status": 422, "detail": "…", "index": 3}

`index` is the place of the envelope in a batch, from 0, where the problem is one envelope's. Of the problems of status 503
three say that the attempt has surely not reached the log: ``busy``, ``log unavailable`` and ``stopping``. With ``outcome
unknown`` it may have: see `producers.gateway`.
"""

from typing import Any, Final, Literal

import msgspec
from starlette.responses import Response

from surveys import Reason

Cause = (
    Reason
    | Literal[
        "malformed idempotency key",
        "unauthorized",
        "not found",
        "method not allowed",
        "too slow",
        "unsupported content type",
        "too many requests",
        "internal error",
        "busy",
        "log unavailable",
        "outcome unknown",
        "stopping",
    ]
)
STATUS: Final[dict[Cause, int]] = {
    "undecodable": 400,
    "unknown version": 400,
    "malformed idempotency key": 400,
    "unauthorized": 401,
    "not found": 404,
    "method not allowed": 405,
    "too slow": 408,
    "too large": 413,
    "unsupported content type": 415,
    "wrong survey": 422,
    "unknown attribute or level": 422,
    "wrong length": 422,
    "symbol out of range": 422,
    "padding bits set": 422,
    "step too old": 422,
    "step in the future": 422,
    "too many requests": 429,
    "internal error": 500,
    "busy": 503,
    "log unavailable": 503,
    "outcome unknown": 503,
    "stopping": 503,
}
RETRY_S: Final[dict[Cause, int]] = {"busy": 1, "log unavailable": 2, "outcome unknown": 2, "stopping": 1}


class Problem(Exception):
    """A request that is refused.

    Args:
        cause: one of `STATUS`.
        detail: a sentence for a person; never a token, a key or a part of a body.
        index: place of the envelope in the batch.
        headers: further headers of the answer.
    """

    def __init__(self, cause: Cause, detail: str, *, index: int | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(cause)
        self.cause: Cause = cause
        self.detail, self.index, self.headers = detail, index, headers or {}

    def response(self) -> Response:
        """The problem document, with Retry-After where asking again may help."""
        document: dict[str, Any] = {
            "type": urn(self.cause), "title": self.cause, "status": STATUS[self.cause], "detail": self.detail
        }  # fmt: skip
        if self.index is not None:
            document["index"] = self.index
        headers = dict(self.headers)
        if self.cause in RETRY_S:
            headers["Retry-After"] = str(RETRY_S[self.cause])
        return Response(
            msgspec.json.encode(document), STATUS[self.cause], headers=headers, media_type="application/problem+json"
        )


def urn(cause: Cause) -> str:
    """The type of a problem.

    >>> urn("step too old")
    'urn:ldpstream:problem:step-too-old'
    """
    return "urn:ldpstream:problem:" + cause.replace(" ", "-")
