"""Handles requests before a route runs: answers HEAD like GET, and refuses unknown or repeated query parameters of the API."""

from collections import Counter

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ldpstream.publishing.answers.responses import NotAllowed
from ldpstream.surveys.errors import did_you_mean


class HeadAsGet:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", "head": True}
        await self._app(scope, receive, send)


def known_parameters(request: Request) -> None:
    """Checks the query of a request to the API.

    Raises:
        NotAllowed: if a parameter is unknown, or is given more than once.
    """
    route = request.scope["route"]
    if not isinstance(route, APIRoute) or not route.include_in_schema:
        return
    models = [parameter.field_info.annotation for parameter in route.dependant.query_params]
    known = [name for model in models if model is not None for name in model.model_fields]
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            names = f"parameters must be among {', '.join(known)}" if known else "this request has no parameters"
            raise NotAllowed(f"{names}; got {name!r}{did_you_mean(name, known)}")
        if times > 1:
            raise NotAllowed(f"{name} must be given once, got it {times} times")
