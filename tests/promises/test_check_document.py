"""The document of `check --json` fits its schema, and has every number that `check` prints."""

import json
import math
import re
import tomllib
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # has no types

from devices.vectors.vectors import SURVEYS as VECTORS
from ldpstream.mechanisms.wording import up
from ldpstream.output.ledger_tables import ledger_rows
from ldpstream.promises.check_document import check_document
from ldpstream.promises.promise import device_line, promise
from ldpstream.surveys import load_survey, parse_survey
from tests.docs.check_schema import SCHEMA, check_schema
from tests.small_survey import small_survey

SAMPLES = sorted((Path(__file__).parents[2] / "surveys" / "samples").glob("*.toml"))
CHANCE = re.compile(r"(?:at most |> )?\d+(?:\.\d+)? %")
NAMED = re.compile(r"\((?:[a-z]+ )?(eps_\w+) = ([\d.e+-]+|inf)\)")
LOSS = re.compile(r"([\d.e+]+) nats?(?: [^.(]*?\((eps_\w+)\))?")


def document_of(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(msgspec.json.encode(check_document(load_survey(path))))
    return made


def leaves(value: Any, key: str = "") -> list[tuple[str, Any]]:
    """Every number, text and null of the document, except the lines that `check` prints, with its key."""
    if isinstance(value, dict):
        return [leaf for name, one in value.items() if name != "promise" for leaf in leaves(one, name)]
    return [leaf for one in value for leaf in leaves(one, key)] if isinstance(value, list) else [(key, value)]


def missing(document: dict[str, Any], lines: list[str]) -> set[str]:
    """Returns the chances and losses that the document lacks. A loss with a name must be at the key of the same name."""
    told = leaves(document)
    losses = {(key, up(one)) for key, one in told if key.startswith("eps_") and isinstance(one, float)}
    other = ("  Chosen for you", "A gateway takes")  # compares errors; limits reports, which are no chances
    text = "\n".join(line for line in lines if not line.startswith(other))
    named = {*NAMED.findall(text), *((key, loss) for loss, key in LOSS.findall(text) if key)}
    plain = {loss for loss, key in LOSS.findall(text) if not key} - {loss for _, loss in losses}
    chances = {one for one in CHANCE.findall(text) if ("text", one) not in told}
    return chances | plain | {f"{key} = {loss}" for key, loss in named - losses}


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
    lines = [
        "Chance of a right guess: at most 12.3 %; 98.7 nats",
        "(eps_1 = 1) (eps_t = 3)",
        "365 nats in all reports (eps_window)",
    ]
    assert missing(document, lines) == {"at most 12.3 %", "98.7", "eps_t = 3", "eps_window = 365"}


@pytest.mark.parametrize(
    "level", ['mechanism = "GRR"\neps = 1.0\nevery_steps = 7', 'mechanism = "L-GRR"\neps_inf = 2.0\neps_1 = 1.0']
)
def test_the_end_of_a_survey_bounds_the_loss_of_all_reports(level: str) -> None:
    head = 'name = "e"\nstart = 2026-01-05T00:00:00Z\nstep_seconds = 86400\nwindow_steps = 7\nlateness_steps = 1\n'
    asked = f'collection = "smp"\n[[attribute]]\nname = "a"\nsize = 4\n[[attribute.level]]\nname = "l"\n{level}'
    open_end, survey = (parse_survey(tomllib.loads(head + ends + asked), "a test") for ends in ("", "ends = 52\n"))
    ((m,),) = survey.mechanisms
    reports = m.reports_in(52)
    made: dict[str, Any] = json.loads(msgspec.json.encode(check_document(survey)))
    assert made["attributes"][0]["levels"][0]["eps_survey"] == m.eps_sequence(reports).value
    assert not missing(made, made["promise"])
    assert any("(eps_survey)" in line and f"({reports} reports" in line for line in made["promise"])
    assert [row["t"] for row in ledger_rows(survey)] == [t for t in (1, 2, 3, 5, 10, 20, 50) if t < reports] + [reports]
    assert made["device"]["eps_for_ever"] == m.eps_t(reports)
    assert check_document(open_end).device.eps_for_ever == (m.eps_inf if m.memoized else None)
    assert ("there is no bound for all reports" in "".join(promise(open_end))) is not m.memoized
    assert "there is no bound" not in "".join(made["promise"])
    assert "any number of steps" not in device_line(survey)
    assert check_document(open_end).attributes[0].levels[0].eps_survey is None
    assert ledger_rows(open_end)[-1]["t"] == 1000


@pytest.mark.parametrize(("every", "where"), [(1, "the same step"), (8, "8 consecutive steps")])
def test_a_one_time_level_has_the_chances_after_deletions(every: int, where: str) -> None:
    """Each enrolment makes one report within `every_steps` steps. Enumerates the reports of three and five enrolments."""
    level = {"name": "l", "mechanism": "GRR", "eps": 1.0, "every_steps": every}
    survey = small_survey({"name": "a", "size": 4, "level": [level]}, window_steps=8)
    said, document = " ".join(promise(survey)), check_document(survey)
    told = document.attributes[0].levels[0].after_deletions
    for deletions in (2, 4):
        seen = Counter(tuple(sorted(Counter(y).values())) for y in product(range(4), repeat=deletions + 1))
        likeliest = sum(ways * math.e ** counts[-1] for counts, ways in seen.items()) / (math.e + 3) ** (deletions + 1)
        assert told[str(deletions)].chance == pytest.approx(likeliest / 4)
        assert told[str(deletions)].exact
    assert f"deleted starts again, and may make another report within {where}. After 2, 4 and 9 deletions in this time" in said
