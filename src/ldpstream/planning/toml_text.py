"""Surveys as TOML text, for commands that write survey files."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any


def document_text(document: Mapping[str, Any]) -> str:
    lines = toml_lines({key: value for key, value in document.items() if key not in ("attribute", "cohort")})
    if "cohort" in document:
        lines += ["", "[cohort]", *toml_lines(document["cohort"])]
    for attribute in document["attribute"]:
        lines += ["", *attribute_lines(attribute)]
    return "\n".join([*lines, ""])


def attribute_lines(attribute: Mapping[str, Any], comments: Sequence[str] = ()) -> list[str]:
    keys = {key: value for key, value in attribute.items() if key != "level"}
    levels = [line for level in attribute["level"] for line in ("[[attribute.level]]", *toml_lines(level))]
    return ["[[attribute]]", *comments, *toml_lines(keys), *levels]


def toml_lines(keys: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {toml_value(value)}" for key, value in keys.items()]


def toml_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def toml_value(value: Any) -> str:
    if isinstance(value, datetime):
        return toml_time(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_value(key)} = {toml_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
