"""Attributes with a recipe: their canonical text, and the surveys that are refused."""

import json
from typing import Any

import pytest

from ldpstream.surveys import Survey, SurveyError, parse_survey
from tests.surveys.test_survey import DOCUMENT

AGE: dict[str, Any] = {"values": ["new", "older"], "recipe": {"measure": "age", "edges": [4]}}
DAYS: dict[str, Any] = {"size": 8, "recipe": {"measure": "active_days"}}


def survey(keys: dict[str, Any], **head: Any) -> Survey:
    level = {"name": "only", "mechanism": "GRR", "eps": 1.0}
    plain = {key: value for key, value in DOCUMENT.items() if key != "cohort"}
    return parse_survey(plain | {"step_seconds": 604_800} | head | {"attribute": [{"name": "a", "level": [level]} | keys]})


def test_every_key_of_a_recipe_changes_the_fingerprint_and_a_default_does_not() -> None:
    others = [
        {"size": 8}, {"size": 8, "ordered": True}, DAYS, DAYS | {"recipe": {"measure": "active_days", "days": 8}},
        DAYS | {"recipe": {"measure": "active_days", "of": "export"}}, DAYS | {"recipe": {"measure": "age"}}, AGE,
        AGE | {"recipe": {"measure": "age", "edges": [5]}}, AGE | {"recipe": {"measure": "absence", "edges": [4]}},
    ]  # fmt: skip
    found = [survey(keys).fingerprint for keys in others]
    assert len(set(found)) == len(others) - 1 == len(set(found[1:]))  # `ordered` is for the estimates
    assert survey(DAYS | {"recipe": {"measure": "active_days", "days": 7}}).fingerprint == survey(DAYS).fingerprint
    text = json.loads(survey(DAYS).canonical)
    assert (text["format"], text["attribute"][0]["recipe"]) == (7, {"days": 7, "measure": "active_days"})


@pytest.mark.parametrize(
    ("keys", "head", "message"),
    [
        ({"size": 8, "recipe": {"measure": "mood"}}, {}, r"recipe\.measure: must be one of 'active_days', .*, got 'mood'"),
        ({"size": 8, "recipe": {"measure": "age", "weeks": 4}}, {}, r"recipe\.weeks: unknown key; allowed are measure, of"),
        ({"size": 8, "recipe": {"measure": "uses_per_day"}}, {}, r"recipe\.of is missing: uses_per_day counts an event"),
        ({"size": 8, "recipe": {"measure": "age", "of": "x"}}, {}, r"recipe\.of is not for age"),
        ({"size": 8, "recipe": {"measure": "age", "days": 7}}, {}, r"recipe\.days is not for age"),
        ({"size": 8, "recipe": {"measure": "active_days", "days": 29}}, {}, r"recipe\.days: .*29"),
        (AGE | {"recipe": {"measure": "age", "edges": [4, 4]}}, {}, "ascending"),
        (AGE | {"recipe": {"measure": "age", "edges": [1, 4]}}, {}, r"recipe\.edges must be .*, got 2, 2"),
        (AGE | {"recipe": {"measure": "age"}}, {}, r"recipe\.edges must be one less than values"),
        (DAYS | {"recipe": {"measure": "age", "edges": [4]}}, {}, r"recipe\.edges must be one less than values"),
        (DAYS | {"outside": "refuse"}, {}, "outside is not for an attribute with recipe"),
        (AGE | {"unlisted": "new"}, {}, "unlisted is not for an attribute with recipe"),
        (DAYS, {"step_seconds": 3600}, "step_seconds must be 1 to 28 whole days of 86400 s with a recipe, got 3600"),
        (DAYS, {"step_seconds": 29 * 86_400}, "1 to 28 whole days"),
        (DAYS, {"step_seconds": 8 * 86_400}, r"recipe\.days must be at least a step, which has 8 days, got 7"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_computed_is_refused(keys: dict[str, Any], head: dict[str, Any], message: str) -> None:
    with pytest.raises(SurveyError, match=message) as refused:
        survey(keys, **head)
    assert "\n" not in str(refused.value)


def test_steps_with_a_recipe_begin_at_midnight() -> None:
    start = DOCUMENT["start"]
    with pytest.raises(SurveyError, match="start must be at midnight UTC with a recipe"):
        survey(DAYS, start=start.replace(hour=1))
    assert survey({"size": 8}, start=start.replace(hour=1))
