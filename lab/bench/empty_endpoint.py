"""An endpoint that reads the body and accepts it: the framework's own cost of a request."""

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

ACCEPTED = b'{"accepted":1}'


async def _accept(request: Request) -> Response:
    await request.body()
    return Response(ACCEPTED, 202, media_type="application/json")


asgi = Starlette(routes=[Route("/v1/reports", _accept, methods=["POST"])])


async def rsgi(scope: Any, protocol: Any) -> None:
    await protocol()
    protocol.response_bytes(202, [("content-type", "application/json")], ACCEPTED)
