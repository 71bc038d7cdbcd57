"""Writes the schema of the estimates: `python -m tests.docs.estimates_schema` renews `docs/reference/estimates.schema.json`."""

import inspect
import json
from pathlib import Path

import msgspec

from ldpstream.publishing.estimates.publication import Publication

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "estimates.schema.json"


def estimates_schema() -> str:
    """The JSON Schema of a record in the topic of estimates."""
    return schema_of(Publication)


def schema_of(document: type[msgspec.Struct]) -> str:
    """The JSON Schema of a document. The descriptions are the docstrings, with JSON's null for None."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(document)}
    for part in schema["$defs"].values():
        part["description"] = inspect.cleandoc(part["description"]).replace("None", "null")
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(estimates_schema(), encoding="utf-8")
