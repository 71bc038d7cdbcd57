"""A survey with cohorts, some of which are below the least size, and a demo of this survey.

1000 people answer three attributes at each step: 470, 242, 158 and 130 of the four cohorts. A histogram needs 150 people. The
last cohort has none, also for a window with its 260 reports.
"""

from functools import cache
from itertools import product

import msgspec
import polars as pl
from fastapi.testclient import TestClient
from msgspec.structs import replace
from prometheus_client import generate_latest

from ldpstream.engines.checkpoint import tables_of
from ldpstream.producers.values import MarkovValues
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.cohorts import conclude_cohort
from ldpstream.publishing.estimates.publication import COHORT_SPANS, Publication
from ldpstream.publishing.history.month_files import rows_of
from ldpstream.services.demo import Demo
from ldpstream.surveys import Cohort, Survey
from tests.small_survey import small_survey

from .metrics_rig import Gauges

PEOPLE, STEPS, LEAST = 1000, 4, 150
COHORT = Cohort(name="version", values=("1.0", "1.1", "beta <b>|&", "=1+1"), least=LEAST)
ONCE = {"name": "standard", "eps": 9.0}
LATENCY = [
    {"name": "standard", "mechanism": "L-OSUE", "eps_inf": 12.0, "eps_1": 9.0},
    {"name": "once", "mechanism": "OLH", "eps": 9.0},
]
PLAIN = small_survey(
    {"name": "screen", "values": ["home", "search", "map", "chat"], "level": [ONCE | {"mechanism": "GRR"}]},
    {"name": "latency_ms", "bins": [0, 10, 20, 50, 100], "level": LATENCY},
    {"name": "wave", "size": 12, "level": [ONCE | {"mechanism": "SW"}]},
    name="versions", step_seconds=3600, collection="spl",
)  # fmt: skip
SURVEY = replace(PLAIN, cohort=COHORT)
ATTRIBUTES = [attribute.name for attribute in SURVEY.attributes]
BELOW = [(span, COHORT.values[3]) for span in COHORT_SPANS]


def demo_of(survey: Survey, people: int, steps: int) -> Demo:
    """Runs simulated people through all steps."""
    found = Demo(survey, MarkovValues(survey, people, steps, 4), 4)
    found.run(lambda step, made: None)
    return found


def client_of(survey: Survey, run: Demo) -> TestClient:
    """A client of the API of the demo's results, with the truth."""
    service = run.service
    return TestClient(create_api(Served(survey, service.results, service.rejected, truth=run.truth.of)))


@cache
def demo() -> Demo:
    return demo_of(SURVEY, PEOPLE, STEPS)


@cache
def client() -> TestClient:
    return client_of(SURVEY, demo())


def published(attribute: str, span: str, step: int, cohort: str | None = None) -> Publication:
    (found,) = [p for p in history() if (p.attribute, p.span, p.step, p.cohort) == (attribute, span, step, cohort)]
    return found


def history() -> list[Publication]:
    return demo().service.results.history()


def without_least(attribute: str, span: str, step: int, cohort: str) -> Publication:
    """The publication of a cohort as it would be without a least size."""
    survey, steps = replace(SURVEY, cohort=replace(COHORT, least=1)), range(max(0, step - (span == "window")), step + 1)
    index, tables = COHORT.index(cohort), demo().service.store.tables(range(STEPS))
    panes = [tables_of(survey, tables, survey.index(attribute), s, index) for s in steps]
    return conclude_cohort(survey, index, published(attribute, span, step), panes)


def everything_shown() -> dict[str, str]:
    """All that the service shows of the last step, as text: the topic, the API and its CSV files, the page, the files of the
    export, and the metrics."""
    shown = {"topic": "\n".join(msgspec.json.encode(p).decode() for p in history())}
    shown["keys"] = "\n".join(p.key for p in history())
    shown["metrics"] = generate_latest(Gauges(SURVEY, history()).registry).decode()
    for attribute in ATTRIBUTES:
        rows = rows_of(SURVEY, [p for p in history() if p.attribute == attribute])
        shown[f"export {attribute}"] = rows.with_columns(pl.all().cast(pl.String)).write_csv()
        for what in ("histogram", "histogram.csv", "series", "series.csv", "numbers", "comparison", "comparison.csv"):
            for cohort in (None, *COHORT.values):
                for span in COHORT_SPANS:
                    query = {"span": span} | ({"before": "0"} if what.startswith("comparison") else {})
                    query |= {} if cohort is None else {"cohort": cohort}
                    answer = client().get(f"/api/v1/attributes/{attribute}/{what}", params=query)
                    if what != "numbers" or attribute == "latency_ms":
                        assert answer.status_code == 200, answer.text
                    shown[f"{what} {attribute} {span} {cohort}"] = answer.text
        for what, span in product(("table", "table.csv"), COHORT_SPANS):
            answer = client().get(f"/api/v1/attributes/{attribute}/{what}", params={"span": span})
            assert answer.status_code == 200, answer.text
            shown[f"{what} {attribute} {span}"] = answer.text
    shown["status"] = client().get("/api/v1/status").text
    return shown
