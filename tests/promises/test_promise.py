"""The sentences of the promise: chances, losses, spaced levels, levels, memos, sets and cohorts."""

import copy
import math
import tomllib
from pathlib import Path

import pytest

from ldpstream.mechanisms.wording import up
from ldpstream.output.ledger_tables import ledger_rows
from ldpstream.promises.check_document import check_document
from ldpstream.promises.promise import device_line, promise
from ldpstream.promises.statements import device_loss
from ldpstream.surveys import parse_survey
from tests.set_survey import MODE, set_survey
from tests.small_survey import small_survey

DEMO = tomllib.loads((Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml").read_text())


@pytest.mark.parametrize("collection", ["smp", "spl", "rs+fd"])
def test_a_device_loses_its_budget_under_every_collection(collection: str) -> None:
    survey = parse_survey(copy.deepcopy(DEMO) | {"collection": collection})
    assert device_loss(survey, lambda m: m.eps_1) == pytest.approx(2.0)
    assert device_loss(survey, lambda m: m.eps_inf) == pytest.approx(4.0)
    assert any("A device in all" in line and "4 in any number of steps" in line for line in promise(survey))
    in_window = [device_loss(survey, loss) for loss in (lambda m: m.eps_t(6), lambda m: m.eps_sequence(6).value)]
    for loss, words in zip(
        in_window, ("2 nats a step, {} in 6 steps", "values change: at most {} nats in 6 steps"), strict=True
    ):
        assert words.format(up(loss)) in device_line(survey)
    assert any("one liar at one address sends at most 9.1 % of all reports" in line for line in promise(survey))  # of 11 000


def test_a_promise_states_a_chance_for_each_loss() -> None:
    lines = promise(parse_survey(DEMO))
    level = lines[lines.index(next(line for line in lines if line.startswith("screen ("))) :]
    assert any("eps_1 = 2" in line and "59.6 %; without any report: 16.7 %" in line for line in level)
    assert any(
        "eps_inf = 4" in line and "attribute: 91.6 % from any number of reports, 84.7 % from 6 reports" in line
        for line in level
    )
    assert any(
        "After a year (8,760 reports of this attribute)" in line and "at every step: at most 100.0 %." in line for line in level
    )
    monthly = copy.deepcopy(DEMO) | {"step_seconds": 30 * 86_400}
    monthly["attribute"][0]["level"][0] |= {"mechanism": "OUE", "eps_inf": None, "eps_1": None, "eps": 0.1}
    lines = promise(parse_survey(monthly))
    assert any(
        "one value from 6 reports of this attribute: 19.3 %; with more reports it approaches certainty" in line
        for line in lines
    )
    assert any("After a year (13 reports of this attribute)" in line and "at every step: 20.7 %." in line for line in lines)


def test_a_promise_of_a_spaced_level_holds_for_changing_values() -> None:
    spaced = copy.deepcopy(DEMO)
    keys = {"mechanism": "GRR", "eps_inf": None, "eps_1": None, "eps": 1.0, "every_steps": 6, "lifetime_reports": 10}
    spaced["attribute"][0]["level"][0] |= keys
    survey = parse_survey(spaced)
    level = "\n".join(promise(survey)).partition("screen (")[2].partition("latency_ms (")[0]
    for words in (
        "reports once in 6 steps, from a random first step on, and stops for good after 10 reports",
        "differ only within 6 consecutive steps: odds change by at most a factor of 2.72, for any number of reports",
        "hints at no value of this attribute outside 6 consecutive steps, from the reports of this attribute: 35.2 %.",
        "lose at most 1 nat in 6 steps (eps_sequence), and at most 10 nats in all reports (eps_lifetime)",
        "After a year (10 reports of this attribute)",
        "about one device in 6 reports at the same steps",
    ):
        assert words in level
    assert device_loss(survey, lambda m: min(m.eps_inf, m.eps_lifetime)) == 10.0
    assert "change only within" not in device_line(survey)  # memos of the other attribute link all steps
    both = copy.deepcopy(spaced) | {"collection": "spl"}
    both["attribute"][1]["level"] = [both["attribute"][0]["level"][0] | {"every_steps": 2}]
    half_of_both = "change only within 6 consecutive steps: at most 2 nats, for any number of reports."  # (1 + 3) / 2
    assert half_of_both in device_line(parse_survey(both))
    rows = [row for row in ledger_rows(survey) if row["attribute"] == "screen"]
    assert [row["t"] for row in rows] == [1, 2, 3, 5, 10]
    assert [row["eps_sequence"] for row in rows] == [1.0, 2.0, 3.0, 5.0, 10.0]
    assert {(row["every_steps"], row["eps_window"], row["eps_lifetime"]) for row in rows} == {(6, 1.0, 10.0)}
    unlimited = copy.deepcopy(spaced)
    unlimited["attribute"][0]["level"][0]["lifetime_reports"] = None
    assert "there is no bound for all reports (eps_lifetime)" in "\n".join(promise(parse_survey(unlimited)))


def test_a_bound_from_some_reports_looks_no_larger_than_the_exact_chance_from_any_number() -> None:
    """L-SS: from 24 reports at most 0.98201, rounded up; from any number exactly 0.98201, and rounded to the nearest 98.2 %."""
    level = {"name": "l", "mechanism": "L-SS", "eps_inf": 4.0, "eps_1": 2.0}
    survey = small_survey({"name": "a", "size": 2, "level": [level]}, window_steps=24)
    assert sum("98.3 % from any number of reports, at most 98.3 % from 24 reports" in line for line in promise(survey)) == 1


def test_the_promise_names_the_guess_about_one_answer() -> None:
    survey = set_survey(MODE)
    lines = promise(survey)
    [about] = [line for line in lines if line.startswith("apps: a person gives up to 3 answers, or none.")]
    assert about.endswith("A device makes no report of more answers. Its silence can reveal that there are more.")
    assert not any("silence" in line for line in promise(set_survey(apps={"choices": "any"})))
    assert sum("without any report: 50.0 %" in line for line in lines) == 2  # of `apps`, and of `mode` with its two values
    [document, _] = check_document(survey).attributes
    assert document.n_values == 5
    [checked] = document.levels
    assert checked.attribute_chances.no_report.chance == 0.5
    assert checked.max_memos == sum(math.comb(5, size) for size in range(4))
