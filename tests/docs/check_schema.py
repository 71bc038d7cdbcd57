"""Writes the schema of `ldpstream check --json`: `python -m tests.docs.check_schema` renews `docs/check.schema.json`."""

import inspect
import json
from pathlib import Path

import msgspec

from ldpstream.check_document import CheckedSurvey

SCHEMA = Path(__file__).parents[2] / "docs" / "check.schema.json"


def check_schema() -> str:
    """The JSON Schema of the document. The descriptions are the docstrings, with JSON's null for None."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(CheckedSurvey)}
    for part in schema["$defs"].values():
        part["description"] = inspect.cleandoc(part["description"]).replace("None", "null")
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(check_schema(), encoding="utf-8")
