"""Pages of other origins that may report (cross-origin resource sharing, CORS).

By default no such page may report.
"""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

REQUEST_HEADERS = ("Authorization", "Content-Type", "Idempotency-Key")
ANSWER_HEADERS = ("Retry-After",)
MAX_AGE_S = 7200  # how long a browser remembers a permission; Chromium remembers for at most two hours


def allow(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Returns the application with answers to preflights, and with permission for pages of these origins to read answers."""
    if not origins:
        return app
    return CORSMiddleware(
        app, origins, allow_methods=("GET", "POST"), allow_headers=REQUEST_HEADERS, expose_headers=ANSWER_HEADERS,
        max_age=MAX_AGE_S,
    )  # fmt: skip
