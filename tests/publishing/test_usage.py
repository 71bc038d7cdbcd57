"""Numbers of people: with almost no noise they are those of the simulated people; with noise their intervals hold."""

import csv
import io
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient

from ldpstream.producers.usage import UsageValues
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.answers.usage import Usage, usage_of
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.api.csv_answers import csv_of
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.process.vitals import Vitals
from ldpstream.services.demo import Demo
from ldpstream.surveys import Survey
from tests.small_survey import small_survey

from .metrics_rig import Gauges

N, STEPS, WEEK = 2000, 5, 604_800
EXACT: dict[str, Any] = {"name": "exact", "mechanism": "GRR", "eps": 45.0}  # divided by three: one report in 400 000 is wrong
DAYS: dict[str, Any] = {"name": "days", "size": 8, "ordered": True, "recipe": {"measure": "active_days"}}
AGE: dict[str, Any] = {"name": "age", "values": ["a", "b", "c", "d"], "recipe": {"measure": "age", "edges": [1, 2, 3]}}
PAUSE: dict[str, Any] = {"name": "pause", "bins": [1, 2, 3, 4, 999], "recipe": {"measure": "absence"}}


def survey_of(**keys: Any) -> Survey:
    asked = [attribute | {"level": [EXACT]} for attribute in (DAYS, AGE, PAUSE)]
    return small_survey(*asked, **{"step_seconds": WEEK, "collection": "spl"} | keys)


def demo_of(survey: Survey, source: UsageValues) -> Demo:
    demo = Demo(survey, source, 1)
    demo.run(lambda step, made: None)
    return demo


def client_of(survey: Survey, source: UsageValues) -> TestClient:
    service = demo_of(survey, source).service
    return TestClient(create_api(Served(survey, service.results, service.rejected)))


@cache
def exact() -> tuple[Survey, UsageValues, TestClient]:
    survey = survey_of()
    return survey, UsageValues(survey, N, STEPS, 3), client_of(survey, UsageValues(survey, N, STEPS, 3))


def present(source: UsageValues) -> list[set[int]]:
    return [set(source.at(step, 0)[0].tolist()) for step in range(STEPS)]


def test_people_of_steps_of_days_and_of_several_steps_are_those_of_the_simulation() -> None:
    _, source, client = exact()
    came, usage = present(source), client.get("/api/v1/usage").json()
    assert usage["steps"] == list(range(STEPS))
    assert usage["people"]["values"] == usage["people"]["low"] == usage["people"]["high"] == [len(people) for people in came]
    assert not usage["at_least"]
    before = [of[of > 0] for of in (source.at(step, 0)[1] for step in range(STEPS))]
    days = [len(people) * of.mean() / 7 for people, of in zip(came, before, strict=True)]
    assert usage["a_day"]["values"] == pytest.approx(days, rel=0.002)
    assert usage["in_many"] == 4
    assert usage["in_steps"]["values"][:3] == [None] * 3
    four = [len(set.union(*came[step - 3 : step + 1])) for step in range(3, STEPS)]
    assert usage["in_steps"]["values"][3:] == pytest.approx(four, rel=0.002)


def test_the_gauges_have_the_latest_people_and_the_latest_known_returns() -> None:
    survey, source, client = exact()
    service, gauges = demo_of(survey, source).service, Gauges(survey)
    Vitals(survey, service.store, service.log, service.results, gauges).look(service.now_ms)
    usage = client.get("/api/v1/usage").json()
    for period, line in (("day", "a_day"), ("step", "people"), ("4 steps", "in_steps")):
        for end, part in (("", "values"), ("_low", "low"), ("_high", "high")):
            assert gauges(f"people{end}", period=period) == usage[line][part][-1]
    for n in (1, 2):
        share = gauges("returned_ratio", steps=str(n))
        assert share == usage["retention"][-1 - n]["shares"]["values"][n - 1] > 0
    measures = [a["recipe"]["measure"] for a in client.get("/api/v1/survey").json()["attributes"]]
    assert measures == ["active_days", "age", "absence"]


def test_the_retention_triangle_follows_the_people_of_each_first_step() -> None:
    _, source, client = exact()
    came, usage = present(source), client.get("/api/v1/usage").json()
    assert [row["step"] for row in usage["retention"]] == list(range(STEPS))
    for row in usage["retention"]:
        people, ages = source.at(row["step"], 1)
        new = set(people[ages == 0].tolist())
        assert row["people"] == pytest.approx(len(new), abs=0.5)
        known = [len(new & came[at]) / len(new) if at < STEPS else None for at in range(row["step"] + 1, row["step"] + 3)]
        assert row["shares"]["values"] == pytest.approx(known, abs=0.005)


def test_the_table_has_a_row_for_each_number_and_each_share() -> None:
    _, _, client = exact()
    usage, found = client.get("/api/v1/usage?last=2").json(), client.get("/api/v1/usage.csv?last=2")
    rows = list(csv.DictReader(io.StringIO(found.text)))
    assert 'filename="small-usage-step-3-4.csv"' in found.headers["Content-Disposition"]
    assert [(row["step"], row["number"]) for row in rows[:3]] == [
        ("3", n) for n in ("people", "people a day", "people in 4 steps")
    ]
    assert [row["value"] for row in rows if row["number"] == "people"] == [str(float(n)) for n in usage["people"]["values"]]
    shares = [row for row in rows if row["number"] == "share back"]
    assert [(row["step"], row["after"]) for row in shares] == [("3", "1"), ("3", "2"), ("4", "1"), ("4", "2")]
    assert [float(row["value"]) for row in shares if row["value"]] == [usage["retention"][0]["shares"]["values"][0]]


def test_a_row_is_incomplete_if_a_step_of_its_number_is() -> None:
    usage = msgspec.convert(exact()[2].get("/api/v1/usage").json() | {"complete": [True, True, False, True, True]}, Usage)
    rows = csv.DictReader(io.StringIO(bytes(csv_of(usage).body).decode()))
    found = [(row["number"], row["step"] + row["after"]) for row in rows if row["complete"] == "False"]
    assert [step for name, step in found if name == "people in 4 steps"] == ["2", "3", "4"]
    assert [step for name, step in found if name == "share back"] == ["02", "11", "21", "22"]
    assert len(found) == 9  # also people, and people a day


@pytest.mark.parametrize(
    ("keys", "weight"),
    [({"collection": "smp"}, 1), ({"window_steps": 2, "spaced": 2}, 2), ({"other": True}, 4 / 3)],
)
def test_people_are_counted_by_the_devices_own_draws(keys: dict[str, Any], weight: float) -> None:
    """At most one of four true numbers is outside its interval: a false alarm in 1 of 70 seeds."""
    level = EXACT | ({"every_steps": keys.pop("spaced")} if "spaced" in keys else {})
    others = [{"name": "mode", "size": 3, "level": [EXACT]}] if keys.pop("other", False) else []
    asked = [attribute | {"level": [level]} for attribute in (DAYS, AGE, PAUSE)]
    survey = small_survey(*asked, *others, **{"step_seconds": WEEK, "collection": "smp"} | keys)
    source = UsageValues(survey, N, 4, 3)
    usage = client_of(survey, source).get("/api/v1/usage").json()["people"]
    truth = np.array([source.at(step, 0)[0].size for step in range(4)])
    low, high = np.array(usage["low"]), np.array(usage["high"])
    assert ((low <= truth) & (truth <= high)).sum() >= 3
    assert (low < high).all() == (weight > 1)
    if weight > 1:  # the control: the number of reports is no number of people
        assert not (low <= truth / weight).any()


def test_the_error_of_people_in_several_steps_holds_where_shares_do_not_add_up_to_1() -> None:
    """The mean square of 100 errors, in standard errors, is above 1.6 for one of 2000 seeds; else about 1."""
    recipe, level = {"measure": "absence", "edges": [2, 6, 9]}, {"name": "noisy", "mechanism": "OUE", "eps": 1.0}
    survey = small_survey(AGE | {"recipe": recipe, "level": [level]}, step_seconds=WEEK)
    (m,), rng, squares = survey.mechanisms[0], np.random.default_rng(1), []
    earlier = m.tabulate(m.simulate(np.zeros(3000, int), rng))
    found = {("age", 0): conclude(survey, 0, 0, "step", [[earlier]], True)}
    for _ in range(100):  # 3000 people in the first step, and 2000 in the next one, of whom half were away
        table = m.tabulate(m.simulate(rng.choice(4, 2000, p=[0.5, 0.2, 0.1, 0.2]), rng))
        found["age", 1] = conclude(survey, 0, 1, "step", [[table]], True)
        of = msgspec.to_builtins(usage_of(survey, found, range(2)).in_steps)
        squares.append((1.96 * (of["values"][1] - 4000) / (of["high"][1] - of["values"][1])) ** 2)
    assert np.mean(squares) < 1.6


def test_noise_makes_no_impossible_number_of_people() -> None:
    """The estimates of 50 people are noise: without limits some are negative, and some days exceed their week."""
    noisy = [attribute | {"level": [EXACT | {"eps": 3.0}]} for attribute in (DAYS, AGE, PAUSE)]
    survey = survey_of(attribute=noisy)
    usage = client_of(survey, UsageValues(survey, 50, STEPS, 3)).get("/api/v1/usage").json()
    for part in ("values", "low", "high"):
        a_day, people, in_steps = (usage[line][part] for line in ("a_day", "people", "in_steps"))
        assert all(x is None or 0 <= x <= n for x, n in zip(a_day, people, strict=True))
        assert all(x is None or x >= n for x, n in zip(in_steps, people, strict=True))
    assert all(row["low"] <= row["people"] <= row["high"] for row in usage["retention"])


def test_nobody_is_new_and_no_day_is_counted_without_a_value_of_its_own() -> None:
    merged = AGE | {"values": ["a", "b"], "recipe": {"measure": "age", "edges": [2]}}
    survey = small_survey(*(a | {"level": [EXACT]} for a in (DAYS | {"size": 7}, merged)), step_seconds=WEEK)
    usage = client_of(survey, UsageValues(survey, 100, 2, 1)).get("/api/v1/usage").json()
    assert (usage["retention"], usage["a_day"], usage["reports"]) == ([], None, usage["people"]["values"])


def test_a_survey_without_recipes_counts_no_people_and_an_unused_one_has_no_estimate() -> None:
    plain = small_survey({"name": "mode", "size": 3, "level": [EXACT]})
    for survey, told in ((plain, "no attribute with a recipe"), (survey_of(), "nothing published yet")):
        service = Demo(survey, UsageValues(survey_of(), 10, 2, 1), 1).service
        answer = TestClient(create_api(Served(survey, service.results, service.rejected))).get("/api/v1/usage")
        assert (answer.status_code, told in answer.text) == (404, True)
