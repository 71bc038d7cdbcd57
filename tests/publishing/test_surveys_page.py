"""The start page of an estimator with several surveys, its API, and the summaries of surveys."""

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.answers.summaries import Alert
from ldpstream.publishing.api.app import create_api, create_surveys_api
from ldpstream.publishing.estimates.publication import Diagnostics, Jump, Publication
from ldpstream.publishing.estimates.thresholds import OVERDUE_MS
from ldpstream.publishing.progress import Progress
from ldpstream.surveys import Survey
from tests.faults.memory_store import MemoryResults
from tests.publishing.page.page_rig import HONEST, extend, many

from .schedule_rig import SURVEY


@pytest.fixture(scope="module")
def surveys() -> dict[str, Served]:
    made = {}
    for name, said in {
        "calm": HONEST,
        "fit": replace(HONEST, fit_z={"standard": 7.0}),
        "drift": Diagnostics(mass_below_zero=0.0, fit_z={"standard": 0.0}, drift_sigma=9.0, drift_value=0, drift_p=1e-9),
    }.items():
        survey, results = many(5, attributes=2, steps=1)
        survey = replace(survey, name=name)
        jump = Jump(value=1, size=0.1, sigma=9.0, low=0.05, high=0.15, changed_at=1) if name == "fit" else None
        extend(survey, results, 1, np.random.default_rng(2), said, jump=jump)
        made[name] = Served(survey, results, dict, clock=lambda: SURVEY.start_ms)
    made["new"] = Served(replace(made["calm"].survey, name="new"), MemoryResults(), dict)
    return made


def late_ms(survey: Survey) -> int:
    return survey.closes_ms(2)


def test_the_start_page_and_its_api_list_all_surveys(surveys: dict[str, Served]) -> None:
    at_ms = late_ms(surveys["calm"].survey)
    with TestClient(create_surveys_api(surveys, lambda: at_ms)) as client:
        found = {survey["name"]: survey for survey in client.get("/api/v1/surveys").json()["surveys"]}
        assert list(found) == sorted(surveys)
        assert found["calm"]["latest_step"] == 1
        assert found["calm"]["reports"] == 2000
        assert found["calm"]["people_at_least"] == 2000  # smp: an attribute has reports of others than the second
        assert found["calm"]["eps_t"] > 0
        assert found["calm"]["alerts"] == []
        assert found["fit"]["alerts"][0] == {"kind": "fit", "attribute": "a00"}
        assert [alert["kind"] for alert in found["fit"]["alerts"]] == ["fit", "fit", "jump"]
        assert {alert["kind"] for alert in found["drift"]["alerts"]} == {"drift"}
        assert (found["new"]["latest_step"], found["new"]["end_ms"], found["new"]["reports"]) == (None, None, 0)
        assert "This page needs JavaScript." in client.get("/").text
        for name, summary in found.items():
            assert "All surveys" in client.get(summary["path"]).text
            assert client.get(f"/surveys/{name}/api/v1/survey").json()["fingerprint"] == summary["fingerprint"]
        assert client.get("/surveys/calm", follow_redirects=True).status_code == 200
        refused = client.get("/surveys/nobody/api/v1/status")
        assert (refused.status_code, refused.json()["detail"]) == (404, "no survey 'nobody' here")
    with TestClient(create_surveys_api(surveys, lambda: at_ms + OVERDUE_MS + 10**9)) as late:
        assert all(survey["alerts"][0]["kind"] == "late" for survey in late.get("/api/v1/surveys").json()["surveys"][:1])


def test_a_summary_reads_the_estimates_only_after_a_publication(surveys: dict[str, Served]) -> None:
    survey, results = many(5, attributes=1, steps=1)
    reads = 0

    class Source(MemoryResults):
        def get(self, keys: Sequence[str]) -> list[Publication | None]:
            nonlocal reads
            reads += 1
            return results.get(keys)

        def progress(self) -> Progress | None:
            return results.progress()

    served = Served(survey, Source(), dict)
    first = served.summary(late_ms(survey))
    after_first = reads
    assert served.summary(late_ms(survey)) == first
    assert reads == after_first > 0
    extend(survey, results, 1, np.random.default_rng(2), replace(HONEST, fit_z={"standard": 9.0}))
    assert served.summary(late_ms(survey)).alerts == [Alert("fit", "a00")]


def test_a_summary_does_not_compute_the_losses_in_a_year(surveys: dict[str, Served]) -> None:
    """These losses may take half a second for each survey and step, and the start page does not show them."""
    calm = surveys["calm"]
    made = Served(calm.survey, calm.source, dict)
    with patch.object(made, "outlook", wraps=made.outlook) as outlook:
        assert made.summary(late_ms(calm.survey)).eps_sequence > 0
        outlook.assert_not_called()
        made.status("window", late_ms(calm.survey))
        assert outlook.call_count == len(calm.survey.attributes)


def test_the_routes_of_one_survey_are_the_same_alone_and_among_others(surveys: dict[str, Served]) -> None:
    calm = surveys["calm"]
    alone = create_api(Served(calm.survey, calm.source, dict)).openapi()["paths"]
    several = create_surveys_api(surveys).openapi()["paths"]
    assert {path.removeprefix("/surveys/{survey}") for path in several} == {*alone, "/api/v1/surveys"}
    for path, operations in alone.items():
        told = several[f"/surveys/{{survey}}{path}"]["get"]
        parameters = [p["name"] for p in told.get("parameters", [])]
        assert sorted(parameters) == sorted(["survey", *(p["name"] for p in operations["get"].get("parameters", []))])
        assert told["responses"].keys() >= {"200", "404", "503"}
