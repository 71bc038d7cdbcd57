"""The values in `other`: the warning that they grow, and the survey that asks candidates (`docs/howto/other.md`)."""

import csv
import io
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from ldpstream.device import Device, Wallet, WalletFull
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.answers.summaries import Alert, alerts
from ldpstream.publishing.process.vitals import Vitals
from ldpstream.services.demo import Demo
from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.life.lineage import join
from tests.publishing.cohort_rig import client_of
from tests.publishing.metrics_rig import Gauges
from tests.publishing.page.page_rig import OpenPage, served

DOCUMENT = (Path(__file__).parents[2] / "docs" / "howto" / "other.md").read_text()
SURVEY = """
name = "travel"
start = 2026-01-05T00:00:00Z
step_seconds = 3600
window_steps = 4
lateness_steps = 1
collection = "smp"
ends = 12
[[attribute]]
name = "mode"
values = ["car", "bus", "bicycle", "other"]
[[attribute.level]]
name = "daily"
mechanism = "GRR"
eps = 2.0
every_steps = 4
lifetime_reports = 100
"""


def candidates(**changed: Any) -> Survey:
    """The survey `travel-2` of the document: `SURVEY` with the keys that the document names."""
    block = DOCUMENT[DOCUMENT.index('       name = "travel-2"') : DOCUMENT.index("   All other keys stay")]
    keys = tomllib.loads(block) | changed
    document = tomllib.loads(SURVEY)
    attribute = document["attribute"][0]
    attribute["values"] = keys.pop("values")
    attribute["level"][0]["lifetime_reports"] = keys.pop("lifetime_reports")
    return parse_survey(document | keys | {"replaces": parse_survey(tomllib.loads(SURVEY)).fingerprint.hex()})


# ---- the survey with the candidates


def test_the_survey_of_the_document_needs_no_fresh_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the wallet refuses a survey that begins right after the end."""
    old, later = parse_survey(tomllib.loads(SURVEY)), candidates()
    [[m]] = old.mechanisms
    assert later.start_ms == old.opens_ms(12 + 4)
    assert later.attributes[0].levels[0].lifetime_reports == 100 - m.reports_in(12)
    assert join(old, later, "mode").joined
    hurried = candidates(start=datetime(2026, 1, 5, 12, tzinfo=UTC))
    now = old.start_ms
    monkeypatch.setattr("time.time_ns", lambda: now * 1_000_000)
    wallet = Wallet(tmp_path / "wallet", per_window=4.0, window_s=4 * 3600)  # its window touches five steps: two reports
    Device(old, wallet, consent="simulated")
    now = hurried.start_ms
    with pytest.raises(WalletFull):
        Device(hurried, wallet, consent="simulated")
    now = later.start_ms
    Device(later, wallet, consent="simulated")


def test_the_request_of_the_document_finds_the_value() -> None:
    survey = candidates()
    demo = Demo(survey, Travellers(survey, 20_000, 4, 0), 2)
    demo.run(lambda step, made: None)
    [query] = re.findall(r"8080(/api[^']+)'", DOCUMENT)
    assert f"confidence={1 - 0.1 / 3:.4f}" in query
    rows = list(csv.DictReader(io.StringIO(client_of(survey, demo).get(query).text)))
    listed = ("car", "bus", "bicycle", "other")
    assert [row["label"] for row in rows if row["label"] not in listed and float(row["low"]) > 0] == ["ferry", "scooter"]


# ---- the warning that `other` grows


class Travellers:
    """People who answer a survey: from a step on, 5 % of them ride a scooter, which the first survey does not list."""

    def __init__(self, survey: Survey, people: int, steps: int, scooters_from: int) -> None:
        self.n_people, self.n_steps, self._from = people, steps, scooters_from
        attribute = survey.attributes[0]
        self._values = np.array([attribute.index(mode) for mode in ("car", "bus", "bicycle", "ferry", "scooter")])
        self._people = np.arange(people)

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        place = self._people % 100
        mode = np.searchsorted([50, 80, 98, 100], place, side="right")  # 2 % ferries, also not listed
        mode[(place < 5) & (step >= self._from)] = 4
        return self._people, self._values[mode]

    def numbers(self, step: int, attribute: int) -> None:
        """Returns None: the modes are no bins of numbers."""


def gauge_of(survey: Survey, demo: Demo) -> float | None:
    """The gauge of an estimator that sees the demo's publications."""
    service, gauges = demo.service, Gauges(survey)
    Vitals(survey, service.store, service.log, service.results, gauges).look(service.now_ms)
    return gauges("unlisted_growth_ratio", attribute="mode")


def test_the_page_the_api_and_the_metrics_warn_of_scooters(open_page: OpenPage) -> None:
    survey = parse_survey(tomllib.loads(SURVEY))
    first = Demo(survey, Travellers(survey, 20_000, 12, 4), 1)
    first.run(lambda step, made: None)
    status = client_of(survey, first).get("/api/v1/status").json()
    growth = status["attributes"][0]["growth"]
    assert (growth["label"], growth["before_step"]) == ("other", 3)
    assert growth["low"] < 0.05 < growth["high"]
    assert gauge_of(survey, first) == growth["difference"]
    said = Served(survey, first.service.results, dict).status("window", 0)
    assert Alert("other", "mode") in list(alerts(said, 0))
    comparison = client_of(survey, first).get("/api/v1/attributes/mode/comparison?before=3&step=11&estimator=mi").json()
    assert "other" in [label for label, clear in zip(comparison["labels"], comparison["clear"], strict=True) if clear]

    with served(survey, first.service.results) as url:
        page = open_page(url)
        grown = r"^mode: other has grown by \+[45]\.\d+ percentage points since the window until 5 Jan 2026, 03:00–04:00 UTC "
        expect(page.locator("#alerts .warning.other")).to_have_text(re.compile(grown))
        page.close()
