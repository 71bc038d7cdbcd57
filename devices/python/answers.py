"""The answers to a request that carries reports: which answers are final, and when to try again."""

import json
from datetime import UTC, datetime
from typing import Any, Final

ACCEPTED: Final = 202
NEVER_COUNTS: Final = 422  # the only status after which no later attempt counts
DAY_S: Final = 86_400
PROBLEM_TYPE: Final = "urn:ldpstream:problem:"


def document(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a body; an empty one if the body is something else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_own(status: int, body: bytes) -> bool:
    """False for an answer that would be final, 202 or 422, but does not have the gateway's body: a proxy gave it."""
    if status == ACCEPTED:
        return type(document(body).get("accepted")) is int
    return status != NEVER_COUNTS or str(document(body).get("type")).startswith(PROBLEM_TYPE)


def retry_after_s(told: str, date: str = "") -> float:
    """Returns the wait that a `Retry-After` asks for, in seconds, at most a day; 0 if the text is not understood.

    Args:
        told: whole seconds, or a time in the form of HTTP (RFC 9110, section 10.2.3).
        date: the answer's `Date`, the clock of a time; our clock if there is none.
    """
    if told.isascii() and told.isdecimal():
        return min(float(told), DAY_S)
    from email.utils import parsedate_to_datetime  # slow to load

    try:
        until = parsedate_to_datetime(told)
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return min(max(0.0, (until - now).total_seconds()), DAY_S)
    except (ValueError, TypeError, OverflowError):  # a TypeError: a time without a zone
        return 0.0
