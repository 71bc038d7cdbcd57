"""The entry of the public registry fits the registry's schema, and its ε is never below the loss of what its unit says."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # has no types

from ldpstream.promises.papers.registry import UNKNOWN, registry_entry
from tests.ldpstream.conftest import RunCommand, run_command
from tests.ldpstream.test_assessment import COMMUTE, FRESH, OTHERS, SURVEYS
from tests.small_survey import small_survey

__all__ = ["run_command"]
ODD = small_survey(FRESH, ends=40, title='A: "b" # [d]\u200f😀', owner="x: y\u2028z", purpose="'{name}' | > &e *f !g %h @i `j")
OFFICER = Path(__file__).parents[2] / "docs" / "howto" / "officer.md"
ASKED = OTHERS | {name: SURVEYS[name] for name in ("commute", "demo", "changing", "split", "fake")} | {"odd": ODD}
REQUIRED = "name data_curators description intended_use data_product_type data_product_region publication_date"
PARTS = "basic dp_variant privacy_loss deployment_model accounting implementation administrative"


@pytest.fixture(scope="module")
def schema(data_folder: Path) -> Draft202012Validator:
    return Draft202012Validator(yaml.safe_load((data_folder / "deployments-registry-schema.yaml").read_text("utf-8")))


@cache
def entry(name: str) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(registry_entry(ASKED[name], "1.2"))
    return made


@pytest.mark.parametrize("name", ASKED)
def test_every_entry_fits_the_registrys_schema(name: str, schema: Draft202012Validator) -> None:
    """Control: without a required key, or with an unknown word, it does not fit."""
    made = entry(name)
    schema.validate(made)
    assert not schema.is_valid(made | {"tier": 4})
    assert not schema.is_valid(made | {"deployment": made["deployment"] | {"basic": {"name": "x"}}})


@pytest.mark.parametrize("name", ASKED)
def test_every_entry_has_the_parts_and_types_of_the_registry(name: str) -> None:
    """Needs no file of the registry. Its own words are among those that the registry allows."""
    made = entry(name)
    parts: dict[str, dict[str, Any]] = made["deployment"]
    assert (list(made), made["status"], made["tier"]) == (["url_slug", "status", "tier", "deployment"], "Draft", 3)
    assert (" ".join(parts), parts["basic"].keys() ^ REQUIRED.split()) == (PARTS, {"data_product_sector"})
    types = {"data_curators": list, "registry_authors": list, "privacy_parameters": dict}
    assert all(type(value) is types.get(key, str) and value for part in parts.values() for key, value in part.items())
    words = [parts["dp_variant"]["variant_name"], *(parts["deployment_model"][key] for key in ("model_name", "access_type"))]
    assert words == ["Pure DP", "Local", "Non-interactive"]


@pytest.mark.parametrize("name", ASKED)
def test_epsilon_is_the_loss_of_all_reports_or_of_a_year(name: str) -> None:
    """Each loss is asked from the mechanisms for exactly what the unit says; spl adds the questions up."""
    survey, loss = ASKED[name], entry(name)["deployment"]["privacy_loss"]
    whole = survey.n_steps is not None or all(m.lifetime_reports for *_, m in survey.levels)
    assert loss["privacy_unit"].startswith("Device (" if whole else "Device-year (")
    assert "change of a value" in loss["privacy_unit_details"]
    steps = survey.n_steps or (10**9 if whole else survey.steps_a_year)
    worst = [max(m.eps_sequence(m.reports_in(steps)).value for m in levels) for levels in survey.mechanisms]
    true = sum(worst) if survey.collection == "spl" else max(worst)
    assert true <= loss["privacy_parameters"]["epsilon"] * (1 + 1e-12) <= true * 1.0001
    assert not re.search(r"[{}?|]|None|100 of 100|100\.0 %", loss["privacy_parameters_details"])


def test_texts_of_people_stay_as_they_are() -> None:
    basic = entry("odd")["deployment"]["basic"]
    assert (basic["name"], basic["data_curators"], basic["intended_use"]) == (ODD.title, [ODD.owner], ODD.purpose)


def test_the_command_prints_the_entry(run_command: RunCommand) -> None:
    status, out, _ = run_command("registry", COMMUTE)
    made = yaml.safe_load(out)
    assert (status, made["deployment"]["privacy_loss"]["privacy_parameters"]) == (0, {"epsilon": 536.802})
    assert "536.802 for a year" in OFFICER.read_text(encoding="utf-8")
    assert made["deployment"]["basic"]["data_curators"] == [UNKNOWN]
    assert "mode, standard (GRR). One report: 1." in out
    assert run_command("registry", COMMUTE.with_name("none.toml"))[0] == 2
