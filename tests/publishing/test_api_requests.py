"""Tests of the API's requests: unknown parameters, methods, redirects, names of downloads, and an extreme confidence."""

import csv
import io
import re

import pytest
from fastapi.testclient import TestClient
from msgspec.structs import replace

from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_surveys_api
from ldpstream.services.demo import Demo

from .api_rig import STEPS, SURVEY

URL = "/api/v1/attributes/screen"


@pytest.mark.parametrize("confidence", ["1e-9", "0.999999999", "0.9999999999", "1e-10", "0", "1"])
@pytest.mark.parametrize("what", ["histogram", "series", "comparison"])
def test_an_extreme_confidence_is_answered_or_refused(client: TestClient, what: str, confidence: str) -> None:
    answer = client.get(f"{URL}/{what}", params={"confidence": confidence, **({"before": 1} if what == "comparison" else {})})
    assert answer.status_code == (200 if confidence in ("1e-9", "0.999999999") else 422)
    assert answer.status_code == 200 or answer.json()["detail"].startswith("confidence: ")


@pytest.mark.parametrize("query", ["histogram?stop=3", "histogram?Step=3", "numbers.csv?estimator=mi"])
def test_an_unknown_parameter_is_refused(client: TestClient, query: str) -> None:
    answer, name = client.get(f"{URL}/{query}"), query.partition("?")[2].partition("=")[0]
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(f"{name}: ")


PATHS = ["/", "/page/page.js", "/favicon.ico", "/openapi.json", "/api/v1/survey", f"{URL}/histogram.csv"]


@pytest.mark.parametrize("path", PATHS)
def test_head_is_answered_like_get(client: TestClient, path: str) -> None:
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert {k: v for k, v in head.headers.items() if k != "date"} == {k: v for k, v in get.headers.items() if k != "date"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused_with_the_methods_allowed(client: TestClient, path: str, method: str) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_redirects_are_relative(demo: Demo) -> None:
    served = {"a": Served(replace(SURVEY, name="a"), demo.service.results, dict)}
    with TestClient(create_surveys_api(served)) as client:
        for path, target in [("/surveys/a", "a/"), ("/surveys/a?span=step", "a/?span=step")]:
            answer = client.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (307, target)
        assert client.get("/surveys/nobody", follow_redirects=False).status_code == 404
        for path in ("/api/v1/surveys/", "/surveys/a/table/", "/page"):
            answer = client.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
            assert answer.status_code == 404
            assert "evil" not in answer.headers.get("location", "")


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ("screen/histogram.csv?span=step&step=2", "demo-screen-step-eb-step-2.csv"),
        ("screen/histogram.csv?estimator=mi&post=norm-sub", f"demo-screen-window-mi-norm_sub-step-{STEPS - 1}.csv"),
        ("screen/series.csv?span=filtered", f"demo-screen-series-filtered-filter-step-0-{STEPS - 1}.csv"),
        ("latency_ms/numbers.csv?last=2", f"demo-latency_ms-numbers-window-eb-step-{STEPS - 2}-{STEPS - 1}.csv"),
        ("screen/comparison.csv?before=1", f"demo-screen-comparison-window-eb-step-1-{STEPS - 1}.csv"),
    ],
)
def test_downloads_say_what_they_are(client: TestClient, request_: str, name: str) -> None:
    answer = client.get(f"/api/v1/attributes/{request_}")
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    row = next(csv.DictReader(io.StringIO(answer.text)))
    told = client.get(f"/api/v1/attributes/{request_.replace('.csv', '')}")
    assert told.headers["content-disposition"] == f'inline; filename="{name[:-3]}json"'
    for column in ("survey", "attribute", "span", "estimator"):
        assert row[column] == told.json()[column]
    assert row["survey"] == SURVEY.name
    assert re.fullmatch(r"[\w.-]+", name, re.ASCII)
