"""Series continue into the surveys that a survey replaces, where the values mean the same, and never silently where not."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from ldpstream.publishing.answers.earlier import Replaced, chain
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api, create_surveys_api
from ldpstream.publishing.process.estimator_loop import EstimatorLoop
from tests.faults.memory_store import MemoryResults

from .replaced_rig import BETWEEN, NEW, NEW_STEPS, OLD, OLD_STEPS, PEOPLE, answered, api_of_new, demos, replacing, travel

SCOOTER, BUS, CAR, BICYCLE, WALK = range(5)  # the values of the new survey


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(api_of_new())


def series(client: TestClient, attribute: str = "mode", prefix: str = "", **query: Any) -> Any:
    answer = client.get(f"{prefix}/api/v1/attributes/{attribute}/series", params=query)
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize("span", ["step", "window", "filtered"])
def test_the_history_follows_renamed_values_and_leaves_added_values_open(client: TestClient, span: str) -> None:
    values = [SCOOTER, CAR, BICYCLE]
    found = series(client, span=span, values=",".join(map(str, values)))
    (part,) = found["earlier"]
    assert (part["survey"], part["fingerprint"], part["joined"]) == ("travel", OLD.fingerprint.hex(), True)
    assert part["reason"] == "bike is now bicycle; added: scooter; earlier shares unknown"
    assert found["steps"] == list(range(NEW_STEPS))
    assert part["steps"] == list(range(BETWEEN))  # the old survey's later steps overlap the new survey
    assert part["end_ms"][-1] == NEW.start_ms
    assert [line["label"] for line in part["lines"]] == ["scooter", "car", "bicycle"]
    own = series(TestClient(_alone_old()), span=span, values="0,2")  # car and bike
    for line, old in zip(part["lines"][1:], own["lines"], strict=True):
        for key in ("frequencies", "low", "high"):
            assert line[key] == old[key][:BETWEEN]
    assert part["lines"][0]["frequencies"] == [None] * BETWEEN  # unknown, not zero
    assert part["reports"] == own["reports"][:BETWEEN]


def _alone_old() -> Any:
    old, _ = demos()
    return create_api(Served(OLD, old.service.results, old.service.rejected))


def test_a_history_with_another_meaning_is_named_and_not_joined(client: TestClient) -> None:
    (part,) = series(client, "distance_km")["earlier"]
    assert (part["joined"], part["reason"]) == (False, "the bins have other edges")
    assert part["steps"] == part["lines"] == []


def test_windows_of_another_length_are_not_joined() -> None:
    old, _ = demos()
    wider = replacing(OLD, window_steps=3)
    api = TestClient(
        create_api(
            Served(wider, answered(wider, 2).service.results, dict, replaced=lambda: [Replaced(OLD, old.service.results)])
        )
    )
    (of_window,), (of_step,) = (series(api, span=span)["earlier"] for span in ("window", "step"))
    assert (of_window["joined"], of_window["steps"]) == (False, [])
    assert "windows not joined: they had 2 steps and now have 3" in of_window["reason"]
    assert (of_step["joined"], of_step["steps"]) == (True, list(range(BETWEEN)))


def test_steps_that_are_no_longer_kept_are_not_filled_with_earlier_steps() -> None:
    old, new = demos()
    results, progress = MemoryResults(), new.service.results.progress()
    assert progress is not None
    results.save([p for p in new.service.results.history() if p.step >= 3], None, progress)
    api = TestClient(create_api(Served(NEW, results, dict, replaced=lambda: [Replaced(OLD, old.service.results)])))
    found = series(api, last=NEW_STEPS + 1)
    assert (found["steps"], found["earlier"][0]["steps"]) == ([3, 4], [BETWEEN - 1])


def test_a_chain_of_surveys_is_followed_until_a_meaning_changes() -> None:
    old, new = demos()
    third = replacing(OLD, name="travel-3", replaces=NEW.fingerprint.hex(), start=NEW.start.replace(day=NEW.start.day + 3))
    results = answered(third, 2).service.results
    both = [Replaced(NEW, new.service.results), Replaced(OLD, old.service.results)]
    api = TestClient(create_api(Served(third, results, dict, replaced=lambda: both)))
    first, second = series(api, values=f"{SCOOTER},{BICYCLE}")["earlier"]
    assert [(p["survey"], p["steps"]) for p in (first, second)] == [("travel", list(range(BETWEEN))), ("travel-2", [0, 1, 2])]
    assert second["lines"][0]["frequencies"][0] is not None
    assert first["lines"][0]["frequencies"] == [None] * BETWEEN
    assert None not in first["lines"][1]["frequencies"]
    assert [p["survey"] for p in series(api, "distance_km")["earlier"]] == ["travel", "travel-2"]
    apart = replacing(OLD, name="travel-4", replaces=NEW.fingerprint.hex(), step_seconds=43_200)
    api = TestClient(create_api(Served(apart, answered(apart, 2).service.results, dict, replaced=lambda: both)))
    assert [(p["survey"], p["joined"]) for p in series(api)["earlier"]] == [("travel-2", False)]


@pytest.mark.parametrize(("least", "shown"), [(1, True), (PEOPLE, False)])
def test_the_history_of_a_cohort_follows_the_same_cohort_of_the_replaced_survey(least: int, shown: bool) -> None:
    """If the cohort is below the least size, the part has its steps, and no shares."""
    cohort = {"name": "version", "values": ["1.0", "1.1"], "least": 1}
    old = travel(cohort=cohort | {"values": ["beta", "1.1"], "least": least})
    new = replacing(old, cohort=cohort)
    results = answered(old, OLD_STEPS).service.results
    api = TestClient(
        create_api(Served(new, answered(new, NEW_STEPS).service.results, dict, replaced=lambda: [Replaced(old, results)]))
    )
    for span in ("step", "window"):
        (part,) = series(api, span=span, cohort="1.1", values=CAR)["earlier"]
        assert (part["joined"], part["steps"]) == (True, list(range(BETWEEN)))
        of_old = [p for p in results.get([f"mode|{span}|{step}|1.1" for step in range(BETWEEN)]) if p is not None]
        shares = [p.estimators["eb"].frequencies[0] if shown else None for p in of_old]
        assert part["lines"][0]["frequencies"] == shares
    (part,) = series(api, span="step", cohort="1.0", values=CAR)["earlier"]
    assert (part["joined"], part["steps"], part["reason"]) == (False, [], "travel has no such cohort")
    assert series(api, span="step", values=CAR)["earlier"][0]["joined"]


def test_a_replaced_survey_without_estimates_gives_an_empty_part() -> None:
    _, new = demos()
    api = TestClient(create_api(Served(NEW, new.service.results, dict, replaced=lambda: [Replaced(OLD, MemoryResults())])))
    (part,) = series(api)["earlier"]
    assert (part["joined"], part["steps"]) == (True, [])


def test_a_replaced_survey_without_this_estimator_is_named() -> None:
    """Square Wave, for example, has other estimators."""
    old, new = demos()
    results, progress = MemoryResults(), old.service.results.progress()
    assert progress is not None
    published = [p for p in old.service.results.history() if p.span == "step"]
    results.save([replace(p, estimators={"mi": p.estimators["mi"]}) for p in published], None, progress)
    api = TestClient(create_api(Served(NEW, new.service.results, dict, replaced=lambda: [Replaced(OLD, results)])))
    (part,) = series(api, span="step")["earlier"]
    assert (part["joined"], part["steps"], part["reason"]) == (False, [], "its estimates are by mi, not by eb")
    assert series(api, span="step", estimator="mi")["earlier"][0]["steps"] == list(range(BETWEEN))


def test_a_replaced_survey_that_is_not_served_is_named() -> None:
    _, new = demos()
    (part,) = series(TestClient(create_api(Served(NEW, new.service.results, dict))))["earlier"]
    assert (part["survey"], part["fingerprint"], part["joined"]) == ("", OLD.fingerprint.hex(), False)
    assert part["reason"] == "no earlier survey with this fingerprint is served here"


def test_a_process_with_both_surveys_joins_their_histories() -> None:
    old, new = demos()
    loop = EstimatorLoop.__new__(EstimatorLoop)  # without connections
    loop.served = {}
    answers = {}
    for name in ("alone", "together"):
        loop.served[NEW.name] = Served(NEW, new.service.results, dict, replaced=lambda: loop.replaced(NEW))
        answers[name] = series(TestClient(create_surveys_api(loop.served)), prefix=f"/surveys/{NEW.name}")["earlier"][0]
        loop.served[OLD.name] = Served(OLD, old.service.results, dict)
    assert (answers["alone"]["joined"], answers["together"]["joined"]) == (False, True)
    assert answers["together"]["steps"] == list(range(BETWEEN))


def test_a_chain_ends_at_a_circle_and_at_a_missing_survey() -> None:
    old, new = demos()
    served = {s.fingerprint.hex(): Replaced(s, demo.service.results) for s, demo in ((OLD, old), (NEW, new))}
    assert chain(NEW, served) == [served[OLD.fingerprint.hex()]]
    assert chain(NEW, {}) == chain(OLD, served) == []
    circle = travel(replaces=NEW.fingerprint.hex())
    served[OLD.fingerprint.hex()] = Replaced(circle, old.service.results)
    assert [one.survey.name for one in chain(NEW, served)] == ["travel"]
