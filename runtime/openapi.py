"""Number formats of the OpenAPI documents, for the page's API and for the gateway."""

from typing import Any


def with_formats(part: Any) -> Any:
    if isinstance(part, list):
        return [with_formats(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    width = {"integer": "int64", "number": "double"}.get(part["type"]) if isinstance(part.get("type"), str) else None
    return {key: with_formats(inner) for key, inner in part.items()} | ({"format": width} if width else {})
