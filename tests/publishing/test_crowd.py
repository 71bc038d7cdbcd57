"""The crowd of a step: the number of reports of each level, and whether it is as large as the survey assumes."""

from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient
from msgspec import UNSET
from msgspec.structs import replace

from ldpstream.engines import PaneKey
from ldpstream.producers.values import MarkovValues
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.cohorts import crowd_of
from ldpstream.publishing.estimates.publication import Crowd, Publication, decode_publication
from ldpstream.services.demo import Demo
from ldpstream.surveys import Cohort
from tests.small_survey import small_survey

from .metrics_rig import Gauges

PEOPLE, STEPS, CROWD = 400, 3, 110
LEVELS = [{"name": "few", "mechanism": "GRR", "eps": 2.0}, {"name": "bits", "mechanism": "L-OUE", "eps_inf": 2.0, "eps_1": 1.0}]
SURVEY = small_survey(
    {"name": "mode", "values": ["car", "bus", "foot"], "level": LEVELS},
    {"name": "zone", "size": 40, "level": LEVELS[:1]},
    window_steps=2 * STEPS, lateness_steps=2, relay="required", crowd=CROWD,
)  # fmt: skip
COHORTS = replace(SURVEY, cohort=Cohort(name="version", values=("1.0", "1.1", "beta"), least=20))


@cache
def demo(cohorts: bool) -> Demo:
    survey = COHORTS if cohorts else SURVEY
    found = Demo(survey, MarkovValues(survey, PEOPLE, STEPS, 4), 4)
    found.run(lambda step, made: None)
    return found


def history(cohorts: bool) -> list[Publication]:
    return demo(cohorts).service.results.history()


@pytest.mark.parametrize("cohorts", [False, True])
def test_the_crowd_of_a_step_is_the_number_of_its_reports(cohorts: bool) -> None:
    """For all people it is that of the cohort with the fewest reports, since each report carries its cohort."""
    survey, reached = COHORTS if cohorts else SURVEY, set[bool]()
    tables = demo(cohorts).service.store.tables(range(STEPS))
    for p in history(cohorts):
        if p.span != "step":
            assert p.crowd is UNSET
            continue
        attribute = survey.index(p.attribute)
        shown = range(survey.n_cohorts) if p.cohort is None else [survey.cohort_index(p.cohort)]
        numbers = {
            level.name: [n for c in shown if (n := tables[PaneKey(attribute, i, p.step, c)].n)]
            for i, level in enumerate(survey.attributes[attribute].levels)
        }
        least = {name: min(found) for name, found in numbers.items()}
        enough = all(n >= CROWD for n in least.values())
        memoized = ["bits"] if p.attribute == "mode" else []
        assert p.crowd == Crowd(assumed=CROWD, reports=least, reached=enough, memoized=memoized)
        reached.add(enough)
    assert reached == {True, False}


@pytest.mark.parametrize(
    ("numbers", "least", "reached"),
    [
        ([[CROWD]], CROWD, True),
        ([[CROWD - 1]], CROWD - 1, False),
        ([[0]], 0, True),  # nobody answered, so nobody relied on the crowd
        ([[0], [CROWD + 1], [CROWD]], CROWD, True),
        ([[0], [CROWD + 1], [1]], 1, False),
    ],
)
def test_the_assumed_crowd_is_the_least_number_of_reports(numbers: Sequence[list[int]], least: int, reached: bool) -> None:
    """`numbers` has each cohort's reports at the only level of the second attribute."""
    m = SURVEY.mechanisms[1][0]
    cohorts = [[m.table(n, np.bincount(np.arange(n) % 40, minlength=40))] for (n,) in numbers]
    assert crowd_of(SURVEY, 1, cohorts) == Crowd(assumed=CROWD, reports={"few": least}, reached=reached)
    assert crowd_of(replace(SURVEY, crowd=None), 1, cohorts) is UNSET


def test_a_publication_keeps_the_crowd_that_was_assumed() -> None:
    """The survey's file may change later. A publication of an earlier version of this software has no crowd."""
    for p in history(cohorts=False):
        raw = msgspec.json.encode(p)
        assert decode_publication(raw, "the test") == p
        without = msgspec.json.decode(raw)
        assert without.pop("crowd", None) == (msgspec.to_builtins(p.crowd) if p.span == "step" else None)
        assert decode_publication(msgspec.json.encode(without), "the test") == replace(p, crowd=UNSET)


def test_api_and_metrics_say_that_the_crowd_is_too_small() -> None:
    service, last = demo(cohorts=True).service, STEPS - 1
    client = TestClient(create_api(Served(COHORTS, service.results, service.rejected)))
    assert client.get("/api/v1/survey").json()["crowd"] == CROWD
    gauges = Gauges(COHORTS, history(cohorts=True))
    assert gauges("crowd_assumed_reports") == CROWD
    said = dict[bool, int]()
    for p in history(cohorts=True):
        if p.step != last or not p.crowd:
            continue
        query: dict[str, str | int] = {"span": "step", "step": last}
        if p.cohort is not None:
            query["cohort"] = p.cohort
        histogram = client.get(f"/api/v1/attributes/{p.attribute}/histogram", params=query).json()
        assert histogram["crowd"] == msgspec.to_builtins(p.crowd)
        said[p.crowd.reached] = said.get(p.crowd.reached, 0) + 1
        if p.cohort is None:
            (overview,) = [o for o in client.get("/api/v1/status").json()["attributes"] if o["attribute"] == p.attribute]
            assert overview["crowd"] == histogram["crowd"]
            for level, reports in p.crowd.reports.items():
                assert gauges("crowd_reports", attribute=p.attribute, level=level) == reports
    assert set(said) == {True, False}


def test_a_publication_without_a_crowd_ends_the_crowds_gauges() -> None:
    """The survey's file may lose the crowd. A survey that never had one has no such time series."""
    with_crowd = [p for p in history(cohorts=False) if p.span == "step" and p.attribute == "mode"]
    without = [replace(p, crowd=UNSET) for p in with_crowd]
    for published, shown in ((without, ["None", "None"]), ([with_crowd[0], *without[1:]], ["nan", "nan"])):
        gauges = Gauges(SURVEY, published)
        sizes = gauges("crowd_reports", attribute="mode", level="few")
        assert [str(sizes), str(gauges("crowd_assumed_reports"))] == shown
