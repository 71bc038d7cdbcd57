"""The document of `check --json` fits its schema, and has every number that `check` prints."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ldpstream.check_document import check_document
from ldpstream.promise import promise
from ldpstream.surveys import load_survey
from tests.devices.vectors import SURVEYS as VECTORS
from tests.docs.check_schema import SCHEMA, check_schema

SAMPLES = sorted((Path(__file__).parents[2] / "surveys" / "samples").glob("*.toml"))
CHANCE = re.compile(r"(?:at most |> )?\d+(?:\.\d+)? %")
LOSS = re.compile(r"\((?:[a-z]+ )?(eps_\w+) = ([\d.e+-]+|inf)\)|([\d.]+) nats?")


def document_of(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(msgspec.json.encode(check_document(load_survey(path))))
    return made


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key, one in value.items() if key != "promise" for leaf in leaves(one)]
    return [leaf for one in value for leaf in leaves(one)] if isinstance(value, list) else [value]


def missing(document: dict[str, Any], lines: list[str]) -> set[str]:
    """Returns the chances and the losses of the lines that the document does not have as numbers or texts."""
    told = leaves(document)
    numbers = {f"{float(one):.4g}" for one in told if isinstance(one, int | float) and not isinstance(one, bool)}
    text = "\n".join(line for line in lines if "Chosen for you" not in line)  # it compares errors, which are no losses
    losses = {found[1] or found[2] for found in LOSS.findall(text)}
    return {one for one in CHANCE.findall(text) if one not in told} | {one for one in losses if one not in numbers}


def test_the_schema_is_the_codes() -> None:
    """If this test fails after a change of the document, run `python -m tests.docs.check_schema`."""
    assert SCHEMA.read_text() == check_schema()


@pytest.mark.parametrize("path", [*SAMPLES, *VECTORS], ids=lambda path: path.stem)
def test_the_document_fits_the_schema_and_has_every_number_that_check_prints(path: Path) -> None:
    document = document_of(path)
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    assert document["promise"] == promise(load_survey(path))
    assert not missing(document, document["promise"])


def test_a_missing_chance_and_a_missing_loss_are_found() -> None:
    document = document_of(SAMPLES[0])
    assert missing(document, ["Chance of a right guess: at most 12.3 %; 98.7 nats"]) == {"at most 12.3 %", "98.7"}
