"""Writes the schema of `ldpstream check --json`: `python -m tests.docs.check_schema` renews `docs/check.schema.json`."""

from pathlib import Path

from ldpstream.check_document import CheckedSurvey
from tests.docs.estimates_schema import schema_of

SCHEMA = Path(__file__).parents[2] / "docs" / "check.schema.json"


def check_schema() -> str:
    """The JSON Schema of the document."""
    return schema_of(CheckedSurvey)


if __name__ == "__main__":
    SCHEMA.write_text(check_schema(), encoding="utf-8")
