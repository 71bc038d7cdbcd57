"""Writes the schemas of `check --json`: `python -m tests.docs.check_schema` renews them.

`docs/reference/check.schema.json` is for the promise, `docs/reference/people.schema.json` for `check --people`.
"""

from pathlib import Path

from ldpstream.planning.forecast import PeopleDocument
from ldpstream.promises.check_document import CheckedSurvey
from tests.docs.estimates_schema import schema_of

DOCS = Path(__file__).parents[2] / "docs" / "reference"
SCHEMA, PEOPLE_SCHEMA = DOCS / "check.schema.json", DOCS / "people.schema.json"


def check_schema() -> str:
    """The JSON Schema of the promise."""
    return schema_of(CheckedSurvey)


def people_schema() -> str:
    """The JSON Schema of the document of `check --people`."""
    return schema_of(PeopleDocument)


if __name__ == "__main__":
    SCHEMA.write_text(check_schema(), encoding="utf-8")
    PEOPLE_SCHEMA.write_text(people_schema(), encoding="utf-8")
