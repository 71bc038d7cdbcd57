"""The OpenAPI document of the gateway."""

from typing import Any

import msgspec

from ldpstream.device.relay.capsules import KEYS_TYPE, REQUEST_TYPE, RESPONSE_TYPE
from ldpstream.gateway.http.bodies import BATCH, ENVELOPES, KEY
from ldpstream.gateway.http.problems import MAX_ELEMENTS, MAX_RETRY_S, RETRY_S, STATUS, urn
from ldpstream.gateway.surveys import ServedSurvey, SurveyList
from ldpstream.runtime.web import with_formats
from ldpstream.surveys import REASONS

_STRING = {"type": "string"}
_INTEGER = {"type": "integer", "format": "int64"}  # without a format, code generators assume 32 bits
_BINARY = {"type": "string", "format": "binary"}
_SECONDS = _INTEGER | {"minimum": 1, "maximum": MAX_RETRY_S}
_ELEMENT = {
    "type": "object", "required": ["index", "reason"], "additionalProperties": False,
    "description": "a refused envelope of the batch; with `retry_after` (seconds), the envelope may count later",
    "properties": {
        "index": _INTEGER | {"minimum": 0},
        "reason": {"type": "string", "enum": list(REASONS)}, "retry_after": _SECONDS,
    },
}  # fmt: skip


def description(tokens_required: bool) -> dict[str, Any]:
    """Returns the document."""
    guarded: dict[str, Any] = {"security": [{"bearer": []}]} if tokens_required else {}
    key = {
        "name": "Idempotency-Key", "in": "header", "required": False, "schema": {"type": "string", "pattern": f"^{KEY}$"},
        "description": "random, the same for every attempt to send this body; all attempts count once; another body counts too",
    }  # fmt: skip
    reports = {
        "summary": "Append one envelope or a batch to the log.",
        "operationId": "postReports",
        "parameters": [key],
        "requestBody": {"required": True, "content": {kind: {"schema": _BINARY} for kind in (*ENVELOPES, BATCH)}},
        "responses": {
            "202": _answer("The log has the reports; `accepted` of them count.", accepted=_INTEGER | {"minimum": 1}),
            **_problems(400, 401, 403, 408, 409, 415, 422, 429, 500, 501, 503, 504),
        },
        **guarded,
    }
    (served, listed), schemas = msgspec.json.schema_components(
        [ServedSurvey, SurveyList], ref_template="#/components/schemas/{name}"
    )
    about = "`fingerprint`: the first 8 bytes of the SHA-256 of `canonical`, in hex; `toml`: the survey's file."
    asked = {
        "summary": "The survey of a gateway with one survey, as devices need it.",
        "description": f"{about} A gateway with another number of surveys answers 404.",
        "operationId": "getSurvey",
        "responses": {"200": _document("The survey.", served), **_problems(400, 401, 404, 429, 503)},
        **guarded,
    }
    one = {
        "summary": "The survey with this fingerprint, as devices need it.",
        "description": about,
        "operationId": "getSurveyByFingerprint",
        "parameters": [{
            "name": "fingerprint", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
            "description": "16 hexadecimal digits",
        }],
        "responses": {"200": _document("The survey.", served), **_problems(400, 401, 404, 429, 503)},
        **guarded,
    }  # fmt: skip
    every = {
        "summary": "All surveys of this gateway.",
        "operationId": "listSurveys",
        "responses": {"200": _document("The surveys, by name.", listed), **_problems(400, 401, 429, 503)},
        **guarded,
    }
    keys = {
        "summary": "The present key configuration of Oblivious HTTP (RFC 9458, RFC 9540).",
        "operationId": "getRelayKeys",
        "responses": {"200": _binary("The key configuration.", KEYS_TYPE), **_problems(404, 429, 503)},
    }
    capsule = {
        "summary": "Answer an encapsulated request, which holds one envelope for /v1/reports.",
        "description": "Every fault after the decryption is in the encapsulated response.",
        "requestBody": {"required": True, "content": {REQUEST_TYPE: {"schema": _BINARY}}},
        "responses": {
            "200": _binary("The encapsulated response.", RESPONSE_TYPE),
            **_problems(400, 404, 408, 415, 422, 429, 500, 501, 503),
        },
    }
    health = {
        "summary": "Liveness of the process, whatever the state of the log.",
        "operationId": "getHealth",
        "responses": {"200": _answer("The process is alive.", status=_STRING)},
    }
    ready = {
        "summary": "Readiness to take reports.",
        "operationId": "getReady",
        "responses": {"200": _answer("The gateway takes reports of a survey.", status=_STRING), **_problems(503)},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ldpstream gateway",
            "version": "1",
            "description": "Receives locally private reports from devices. Accepts reports once the log has acknowledged them.",
        },
        "paths": {
            "/v1/reports": {"post": reports},
            "/v1/survey": {"get": asked},
            "/v1/surveys": {"get": every},
            "/v1/surveys/{fingerprint}": {"get": one},
            "/.well-known/ohttp-gateway": {"get": keys, "post": capsule | {"operationId": "postCapsule"}},
            "/ohttp": {"post": capsule | {"operationId": "postCapsuleToPath"}},
            "/health": {"get": health},
            "/ready": {"get": ready},
        },
        "components": {"schemas": with_formats(schemas)}
        | ({"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}} if tokens_required else {}),
    }


def _binary(text: str, kind: str) -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": _BINARY}}}


def _document(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _answer(text: str, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "required": list(properties), "properties": properties, "additionalProperties": False}
    return _document(text, schema)


def _problems(*statuses: int) -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = {}
    for status in statuses:
        causes = [cause for cause, of in STATUS.items() if of == status and cause != "unknown key configuration"]  # of a relay
        properties: dict[str, Any] = {
            "type": {"type": "string", "enum": [urn(cause) for cause in causes]},
            "title": {"type": "string", "enum": list(causes)},
            "status": _INTEGER | {"const": status},
            "detail": _STRING,
        }
        if status in (409, 422):
            properties["refused"] = _INTEGER | {"minimum": 1, "description": "number of refused envelopes in a batch"}
            properties["elements"] = {"type": "array", "maxItems": MAX_ELEMENTS, "items": _ELEMENT}
        schema = {
            "type": "object", "required": ["type", "title", "status", "detail"], "properties": properties,
            "additionalProperties": False,
        }  # fmt: skip
        answer = {
            "description": " / ".join(causes).capitalize() + ".",
            "content": {"application/problem+json": {"schema": schema}},
        }
        if any(STATUS[cause] == status for cause in RETRY_S):
            seconds = {"description": "seconds", "required": True, "schema": _SECONDS}
            answer["headers"] = {"Retry-After": seconds}
        described[str(status)] = answer
    return described
