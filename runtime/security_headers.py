"""Security headers of our HTTP servers: the gateway, and the estimator's API and page."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class SecurityHeaders:
    """Middleware that adds headers to every response.

    Args:
        headers: the headers; the application must set none of them.
    """

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)
