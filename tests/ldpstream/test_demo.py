"""Tests the demo's pipeline in one process, with every collection method for several attributes."""

import copy
import tomllib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ldpstream.output.ledger_tables import ledger_rows, right_and_largest
from ldpstream.output.tables import histogram_table
from ldpstream.producers.people_file import read_people
from ldpstream.producers.values import MarkovValues
from ldpstream.promises.promise import device_line, promise
from ldpstream.promises.statements import device_loss
from ldpstream.services.demo import Demo
from ldpstream.surveys import parse_survey
from tests.small_survey import small_survey

DEMO = tomllib.loads((Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml").read_text())
PEOPLE, STEPS = 20_000, 8


@pytest.mark.parametrize("collection", ["smp", "spl", "rs+fd"])
def test_the_intervals_contain_the_truth_as_often_as_stated(collection: str) -> None:
    """A run has 72 intervals of 95 %. The probability that 16 or more miss the truth is below 1e-6. The intervals are wider
    than needed, because the truth is the histogram of the participants themselves. As a control, halved intervals must miss the
    truth more often."""
    document = copy.deepcopy(DEMO) | {"collection": collection}
    survey = parse_survey(document)
    demo = Demo(survey, MarkovValues(survey, PEOPLE, STEPS, 4), 4)
    demo.run(lambda step, made: None)
    assert not demo.service.rejected()
    misses, halved, seen = 0, 0, 0
    for p in demo.service.results.history():
        true = demo.truth.of(p).shares
        if p.span != "step" or p.step % 2 or true is None:
            continue
        share = 1 if collection != "smp" else 0.6
        assert PEOPLE * (0.4 if collection == "smp" else 1) <= p.reports <= PEOPLE * share
        mi = p.estimators["mi"]
        z = np.abs(np.array(mi.frequencies) - np.array(true)) / np.array(mi.standard_errors)
        seen += z.size
        misses += int((z > 1.96).sum())
        halved += int((z > 0.98).sum())
    assert seen == 4 * 18
    assert misses < 16
    assert halved >= 10


def numbers_of(found: npt.NDArray[np.float64]) -> list[float]:
    """The mean, and each percentile as the smallest number that enough people do not exceed."""
    order = np.sort(found)
    return [float(found.mean()), *(float(order[-(-found.size * percent // 100) - 1]) for percent in (50, 90, 99))]


def test_the_truth_of_numbers_is_that_of_the_people_not_of_the_bins() -> None:
    """The run has more steps than a window, so that the truth is kept although the people's numbers are forgotten."""
    survey = parse_survey(copy.deepcopy(DEMO) | {"collection": "spl"})
    source, steps, place = MarkovValues(survey, 500, STEPS, 4), range(STEPS), survey.index("latency_ms")
    demo = Demo(survey, source, 4)
    demo.run(lambda step, made: None)
    people = [source.numbers(step, place) for step in steps]
    edges = np.array(survey.attributes[place].bins)
    for step, numbers in zip(steps, people, strict=True):
        assert numbers is not None
        np.testing.assert_array_equal(np.searchsorted(edges, numbers, side="right") - 1, source.at(step, place)[1])
    for p in demo.service.results.history():
        found = demo.truth.of(p).numbers
        if p.attribute == "latency_ms" and p.step < STEPS:
            first = max(0, p.step + 1 - survey.window_steps) if p.span == "window" else p.step
            pooled = np.concatenate([numbers for numbers in people[first : p.step + 1] if numbers is not None])
            assert list(found.values()) == pytest.approx(numbers_of(pooled), rel=1e-12)
        assert p.attribute == "latency_ms" or not found


def test_the_truth_of_a_table_of_numbers(tmp_path: Path) -> None:
    """A number outside the bins stays as it is. Numbers in wide bins lie at their lower ends here, so their truth is far from
    the published values, but in the intervals. As a control, the middles of the bins are not the truth."""
    level = {"name": "a", "mechanism": "GRR", "eps": 6.0}
    survey = small_survey({"name": "km", "bins": [0, 10, 100, 500], "level": [level]})
    rows = [f"{i},{step},{number}" for step in (0, 1) for i, number in enumerate([*["0", "10.5", "101"] * 600, "700"])]
    (tmp_path / "people.csv").write_text("\n".join(["person,step,km", *rows, *(f"{2000 + i},1,11" for i in range(999))]))
    demo = Demo(survey, read_people(tmp_path / "people.csv", survey), 1)
    demo.run(lambda step, made: None)
    of = {(p.span, p.step): p for p in demo.service.results.history()}
    truth = {key: demo.truth.of(p).numbers for key, p in of.items()}
    total = 600 * 111.5 + 700
    assert truth["step", 0] == {"mean": total / 1801, "p50": 10.5, "p90": 101.0, "p99": 101.0}
    assert truth["step", 1] == {"mean": (total + 999 * 11) / 2800, "p50": 11.0, "p90": 101.0, "p99": 101.0}
    assert truth["window", 1] == {"mean": (2 * total + 999 * 11) / 4601, "p50": 10.5, "p90": 101.0, "p99": 101.0}
    for p in (of[key] for key in truth if key[0] != "filtered"):
        for name, true in demo.truth.of(p).numbers.items():
            published = p.numbers[name]
            assert published.low is not None
            assert published.high is not None
            assert published.low <= true <= published.high
        assert truth[p.span, p.step]["mean"] < p.numbers["mean"].value - 30
    caption = histogram_table(survey, of["window", 1], demo.truth.of(of["window", 1])).caption
    assert "truth 31.77" in str(caption)
    assert "truth 101" in str(caption)


@pytest.mark.parametrize("lateness", [0, 1])
@pytest.mark.parametrize("people", [30, 300])
def test_every_step_is_published(people: int, lateness: int) -> None:
    """With few reports, some partitions of the log get none. They then need markers for each of the last steps."""
    survey = parse_survey(copy.deepcopy(DEMO) | {"lateness_steps": lateness})
    demo = Demo(survey, MarkovValues(survey, people, 3, 1), 1)
    demo.run(lambda step, made: None)
    steps = {p.step for p in demo.service.results.history() if p.span == "step"}
    assert {0, 1, 2} <= steps


@pytest.mark.parametrize(("collection", "eps_1", "eps_inf"), [("smp", 2.0, 4.0), ("spl", 2.0, 4.0), ("rs+fd", 2.0, 4.0)])
def test_a_device_loses_its_budget_under_every_collection(collection: str, eps_1: float, eps_inf: float) -> None:
    survey = parse_survey(copy.deepcopy(DEMO) | {"collection": collection})
    assert device_loss(survey, lambda m: m.eps_1) == pytest.approx(eps_1)
    assert device_loss(survey, lambda m: m.eps_inf) == pytest.approx(eps_inf)
    assert any("A device in all" in line and "4 in any number of steps" in line for line in promise(survey))


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


def test_no_exact_chance_of_the_ledger_looks_smaller_than_a_bound_of_the_same_number() -> None:
    screen, memos = DEMO["attribute"][0], ((2.0, 1.0), (4.0, 0.5))
    levels = [{"name": "l", "mechanism": "L-GRR", "eps_inf": of_all, "eps_1": of_one} for of_all, of_one in memos]
    asked = [screen | {"name": f"a{i}", "level": [level]} for i, level in enumerate(levels)]
    survey = parse_survey(DEMO | {"attribute": asked})
    shown = [right_and_largest(row, "") for row in ledger_rows(survey) if row["t"] == 1000]
    assert shown == [("59.6 %", "59.6 %"), ("≤ 91.7 %", "91.7 %")]


def test_a_promise_warns_about_the_choice_of_a_level() -> None:
    text = "\n".join(promise(parse_survey(DEMO)))
    assert "must choose the level regardless of the value" in text
    assert "carries its level in clear" in text
    one = copy.deepcopy(DEMO)
    one["attribute"][1]["level"].pop()
    assert "carries its level" not in "\n".join(promise(parse_survey(one)))


def test_a_promise_states_the_number_of_memos() -> None:
    two = copy.deepcopy(DEMO)
    two["attribute"] = [{"name": "q", "size": 2, "level": [{"name": "a", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0}]}]
    assert "at most 2 memos in all" in "\n".join(promise(parse_survey(two)))
