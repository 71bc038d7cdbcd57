"""The demo's pipeline in one process, for every way of collecting several attributes."""

import copy
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ldpstream.demo import Demo
from ldpstream.promise import device_loss, promise
from ldpstream.tables import solved_rows
from producers.values import MarkovValues
from surveys import parse_survey

DEMO = tomllib.loads((Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml").read_text())
PEOPLE, STEPS = 20_000, 8


@pytest.mark.parametrize("collection", ["smp", "spl", "rs+fd"])
def test_the_truth_lies_within_the_intervals_as_often_as_it_should(collection: str) -> None:
    """72 intervals of 95 % a run: 16 or more misses with probability below 1e-6 (and the intervals are on the wide side,
    for the truth is the participants' own histogram); halved intervals must miss more often."""
    document = copy.deepcopy(DEMO) | {"collection": collection}
    survey = parse_survey(document)
    demo = Demo(survey, MarkovValues(survey, PEOPLE, STEPS, 4), 4)
    demo.run(lambda step, made: None)
    assert not demo.service.rejected()
    misses, halved, seen = 0, 0, 0
    for p in demo.service.results.history():
        true = demo.truth.of(survey, p)
        if p.span != "step" or p.step % 2 or true is None:
            continue
        share = 1 if collection != "smp" else 0.6
        assert PEOPLE * 0.4 < p.reports <= PEOPLE * share
        mi = p.estimators["mi"]
        z = np.abs(np.array(mi.frequencies) - np.array(true)) / np.array(mi.standard_errors)
        seen += z.size
        misses += int((z > 1.96).sum())
        halved += int((z > 0.98).sum())
    assert seen == 4 * 18
    assert misses < 16
    assert halved >= 10


def test_everybody_reports_every_attribute_but_under_smp() -> None:
    survey = parse_survey(copy.deepcopy(DEMO) | {"collection": "rs+fd"})
    demo = Demo(survey, MarkovValues(survey, 500, 2, 1), 1)
    demo.run(lambda step, made: None)
    assert [p.reports for p in demo.service.results.history() if p.span == "step" and p.step < 2] == [500] * 4


@pytest.mark.parametrize("values", ["the same", "any"])
@pytest.mark.parametrize("collection", ["smp", "spl", "rs+fd"])
def test_a_solved_eps_1_keeps_a_device_within_its_budget(collection: str, values: str) -> None:
    document = copy.deepcopy(DEMO) | {"collection": collection}
    document["attribute"][0]["level"] = [{"name": "once", "mechanism": "OUE", "eps": 2.0}]
    rows = [row for row in solved_rows(parse_survey(document), 4, 3.0) if row["values"] == values]
    levels = [level for attribute in document["attribute"] for level in attribute["level"]]
    for row, level in zip(rows, levels, strict=True):
        level["eps" if "eps" in level else "eps_1"] = row["eps_1"]
    found = parse_survey(document)
    assert 2.99 < device_loss(found, lambda m: m.eps_t(4) if values == "the same" else m.eps_sequence(4).value) <= 3.0


@pytest.mark.parametrize(("collection", "eps_1", "eps_inf"), [("smp", 2.0, 4.0), ("spl", 2.0, 4.0), ("rs+fd", 2.0, 4.0)])
def test_a_device_loses_its_budget_however_the_attributes_are_collected(collection: str, eps_1: float, eps_inf: float) -> None:
    survey = parse_survey(copy.deepcopy(DEMO) | {"collection": collection})
    assert device_loss(survey, lambda m: m.eps_1) == pytest.approx(eps_1)
    assert device_loss(survey, lambda m: m.eps_inf) == pytest.approx(eps_inf)
    assert any("A device in all" in line and "4 for ever" in line for line in promise(survey))
