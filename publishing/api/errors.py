"""Errors of the HTTP API as problem documents (RFC 9457), and the parts of its OpenAPI description."""

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from ldpstream.engines.count_store import StoreDamaged, StoreUnavailable
from ldpstream.publishing.answers.responses import NotAllowed, NotFound
from ldpstream.runtime.versions import running_version
from ldpstream.runtime.web import with_formats

STATUS: dict[type[Exception], int] = {NotFound: 404, NotAllowed: 422, StoreDamaged: 503}  # the error's text is the detail


class Problem(msgspec.Struct):
    """Why a request has no answer."""

    type: str
    status: int
    detail: str


class Api(FastAPI):
    """FastAPI with a format for the numbers in the OpenAPI document. Without a width, client generators assume 32 bits."""

    def openapi(self) -> dict[str, Any]:
        document: dict[str, Any] = with_formats(super().openapi())
        document["info"]["x-ldpstream-version"] = running_version()
        return document


def handle_errors(api: FastAPI) -> None:
    @api.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        headers = {"Allow": "GET, HEAD"} if error.status_code == 405 else None
        return _problem(error.status_code, str(error.detail), headers)

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return _problem(422, f"{first['loc'][-1]}: {first['msg']}, got {first['input']!r:.300}")

    @api.exception_handler(StoreUnavailable)
    async def away(_: Request, error: StoreUnavailable) -> Response:
        return _problem(503, "the store of results does not answer")

    async def described(_: Request, error: Exception) -> Response:
        return _problem(STATUS[type(error)], str(error))

    for kind in STATUS:
        api.add_exception_handler(kind, described)


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(Problem("about:blank", status, detail))
    return Response(body, status, headers, media_type="application/problem+json")


def _schema(answer: type[msgspec.Struct]) -> Any:
    (schema,), parts = msgspec.json.schema_components([answer])
    return _resolve(schema, parts)


def _resolve(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _resolve(parts[schema["$ref"].rpartition("/")[2]], parts)
        return {key: _resolve(inner, parts) for key, inner in schema.items()}
    return [_resolve(inner, parts) for inner in schema] if isinstance(schema, list) else schema


_PROBLEM: dict[str, Any] = {"content": {"application/problem+json": {"schema": _schema(Problem)}}}
FAILURES: dict[int | str, dict[str, Any]] = {
    404: {"description": "Something does not exist, or does not exist yet.", **_PROBLEM},
    422: {"description": "A parameter is not allowed.", **_PROBLEM},
    503: {"description": "The store of results does not answer, or is damaged.", **_PROBLEM},
}


def describe(answer: type[msgspec.Struct]) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {"application/json": {"schema": _schema(answer)}}}, **FAILURES}
