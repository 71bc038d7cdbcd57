"""The published cross tables: of a pair, by cohort, in the API and as CSV."""

import csv
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient
from polars import DataFrame

from ldpstream.engines.checkpoint import tables_of
from ldpstream.estimators.pairs import Counted, independence, pair_estimate
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.producers.population import Population
from ldpstream.producers.produce import produce_step
from ldpstream.producers.sinks import MemorySink
from ldpstream.producers.values import MarkovValues
from ldpstream.publishing.answers.queries import TableQuery
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.conclusions import conclude, pooled
from ldpstream.publishing.estimates.cross_table import CrossTable, cross_table
from ldpstream.publishing.estimates.publication import Publication, publication_key, publication_keys
from ldpstream.publishing.history.month_files import SCHEMA, TABLE, MonthFiles, merged, month_of, rows_of
from ldpstream.publishing.progress import Progress
from ldpstream.services.demo import Demo, EmbeddedService
from tests.faults.memory_store import MemoryResults
from tests.pair_survey import BOTH, LEVEL, MODE, ZONE, pair_survey
from tests.publishing import cohort_rig as rig
from tests.small_survey import small_survey

SURVEY, STEPS = pair_survey(lateness_steps=1), 3
PATH = "/api/v1/attributes/mode_by_zone/table"
PARTS = ("cells", "rows", "columns", "within_rows", "within_columns")


@cache
def demo() -> Demo:
    return rig.demo_of(SURVEY, 6000, STEPS)


@cache
def client() -> TestClient:
    return rig.client_of(SURVEY, demo())


def published(span: str, step: int = STEPS - 1) -> Publication:
    history = demo().service.results.history()
    [found] = [p for p in history if (p.attribute, p.span, p.step) == ("mode_by_zone", span, step)]
    return found


def panes_of(attribute: int, steps: range) -> list[Any]:
    tables = demo().service.store.tables(range(STEPS))
    return [tables_of(SURVEY, tables, attribute, s) for s in steps]


@pytest.mark.parametrize(("span", "steps"), [("step", range(2, 3)), ("window", range(1, 3))])
def test_the_table_is_the_estimate_from_the_three_questions(span: str, steps: range) -> None:
    counts = [Counted(*pooled(SURVEY.mechanisms[a], panes_of(a, steps))) for a in (2, 0, 1)]
    expected, table = pair_estimate(counts, (3, 3)), published(span).table
    assert expected is not None
    assert isinstance(table, CrossTable)
    assert (table.first, table.second, table.interval_withheld) == ("mode", "zone", None)
    assert table.first_reports == sum(t.n for _, t in counts[1].groups)
    assert table.second_reports == sum(t.n for _, t in counts[2].groups)
    parts = [expected.cells(), expected.margin(0), expected.margin(1), expected.within(0), expected.within(1)]
    for name, part in zip(PARTS, parts, strict=True):
        for key in ("shares", "low", "high"):
            np.testing.assert_allclose(
                np.array(getattr(getattr(table, name), key), float), getattr(part, key).ravel(), rtol=1e-12
            )
    tested = independence(counts, (3, 3))
    assert tested is not None
    assert table.independence is not None
    assert (table.independence.p, table.independence.degrees) == (tested.p, 4)
    assert tested.p < 1e-6  # the simulated values of a pair depend on each other


def test_the_api_shows_the_table_and_the_truth() -> None:
    found = client().get(PATH).json()
    p = published("window")
    assert isinstance(p.table, CrossTable)
    stored = msgspec.to_builtins(p.table)
    assert (found["estimator"], found["reports"], found["step"], found["span"]) == ("joint", p.reports, STEPS - 1, "window")
    assert {name: found[name] for name in ("cells", "within_rows", "within_columns")} == {
        name: stored[name] for name in ("cells", "within_rows", "within_columns")
    }
    assert found["rows"] == {
        "name": "mode", "kind": "attribute", "labels": ["car", "bus", "bicycle"], "reports": p.table.first_reports,
        "shares": stored["rows"],
    }  # fmt: skip
    assert found["columns"]["labels"] == ["0 to 2", "2 to 5", "5 to 50"]
    assert found["independence"] == stored["independence"]
    assert found["truth"] == demo().truth.of(p).shares
    info = client().get("/api/v1/survey").json()["attributes"]
    assert [attribute["pair"] for attribute in info] == [None, None, ["mode", "zone"]]


def test_the_csv_file_has_a_line_for_each_cell() -> None:
    answer = client().get(f"{PATH}.csv", params={"span": "step"})
    assert 'filename="small-mode_by_zone-table-step-joint-step-2.csv"' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    found = client().get(PATH, params={"span": "step"}).json()
    assert [(row["row_label"], row["column_label"]) for row in rows[:4]] == [
        ("car", "0 to 2"), ("car", "2 to 5"), ("car", "5 to 50"), ("bus", "0 to 2")
    ]  # fmt: skip
    assert [float(row["share"]) for row in rows] == found["cells"]["shares"]
    assert [float(row["within_column_high"]) for row in rows] == found["within_columns"]["high"]
    assert {float(row["independence_p"]) for row in rows} == {found["independence"]["p"]}


@pytest.mark.parametrize(
    ("path", "query", "status", "told"),
    [
        ("/api/v1/attributes/mode/table", {}, 404, "no cross table: it is not a pair, and the survey has no cohorts"),
        (PATH, {"span": "filtered"}, 422, "span must be step or window"),
        (PATH, {"step": "77"}, 404, "no estimate of mode_by_zone for step 77"),
        (PATH, {"cohort": "x"}, 422, "cohort"),
        ("/api/v1/attributes/nothing/table", {}, 404, "no attribute 'nothing'"),
    ],
)
def test_a_wrong_request_is_refused(path: str, query: dict[str, str], status: int, told: str) -> None:
    answer = client().get(path, params=query)
    assert (answer.status_code, told in answer.json()["detail"]) == (status, True), answer.text


def test_without_reports_all_numbers_are_unknown() -> None:
    empty = [[m.empty_table() for m in levels] for levels in SURVEY.mechanisms]
    made = conclude(SURVEY, 2, 0, "step", [empty[2]], True, of_members=[[empty[0]], [empty[1]]])
    assert (made.table, made.diagnostics.failed) == (None, ())


def test_if_people_with_one_value_differ_only_the_reports_of_the_pair_count() -> None:
    """Nobody who walks has a distance, so the pair's reports have no walkers, and the attribute's reports have 30 %.

    Control: if the reports agree, all of them count.
    """
    [mode], [zone], [both] = pair_survey().mechanisms
    draw = np.random.default_rng(20261127)

    def counted(m: Any, shares: list[float]) -> Counted:
        values = draw.choice(m.k, 20_000, p=np.array(shares) / sum(shares))
        return Counted([(m, m.tabulate(m.simulate(values, draw)))])

    even = [1.0] * 3
    together = counted(both, [0.0] * 3 + [1.0] * 6)
    apart = cross_table(("mode", "zone"), [together, counted(mode, [0.3, 0.35, 0.35]), counted(zone, even)], (3, 3), False)
    alone = cross_table(("mode", "zone"), [together, Counted([]), Counted([])], (3, 3), False)
    assert apart == alone
    agree = cross_table(("mode", "zone"), [together, counted(mode, [0.0, 1.0, 1.0]), counted(zone, even)], (3, 3), False)
    assert agree is not None
    assert (agree.first_reports, agree.second_reports) == (20_000, 20_000)


def test_reports_with_square_wave_count_neither_for_the_margins_nor_in_their_number() -> None:
    """Control: reports of the same question with GRR count."""
    draw = np.random.default_rng(20261128)

    def counted(m: Mechanism) -> Counted:
        return Counted([(m, m.tabulate(m.simulate(draw.integers(0, m.k, 900), draw)))])

    wave, first = counted(mechanism("SW", 3, eps=1.0)), counted(mechanism("GRR", 3, eps=1.0))
    second, both = counted(mechanism("GRR", 2, eps=1.0)), counted(mechanism("GRR", 6, eps=1.0))
    with_wave = cross_table(("age", "mode"), [both, wave, second], (3, 2), False)
    assert with_wave == cross_table(("age", "mode"), [both, Counted([]), second], (3, 2), False)
    assert with_wave is not None
    assert (with_wave.first_reports, with_wave.second_reports) == (0, 900)
    control = cross_table(("age", "mode"), [both, first, second], (3, 2), False)
    assert control is not None
    assert (control.first_reports, control.second_reports) == (900, 900)
    assert control.rows != with_wave.rows


def test_levels_that_differ_take_the_intervals_and_the_test_away() -> None:
    levels = [LEVEL, LEVEL | {"name": "other"}]
    survey, rng = small_survey(*(a | {"level": levels} for a in (MODE, ZONE, BOTH))), np.random.default_rng(5)

    def tables(attribute: int, *values: int) -> list[Any]:
        return [
            m.tabulate(m.simulate(np.full(3000, v), rng)) for m, v in zip(survey.mechanisms[attribute], values, strict=True)
        ]

    def made(*modes: int) -> CrossTable:
        p = conclude(survey, 2, 0, "step", [tables(2, 4, 4)], True, of_members=[[tables(0, *modes)], [tables(1, 1, 1)]])
        assert isinstance(p.table, CrossTable)
        return p.table

    alike, apart = made(1, 1), made(0, 2)
    assert alike.interval_withheld is None
    assert alike.cells.low[4] is not None
    assert (apart.interval_withheld, apart.independence) == ("levels", None)
    assert set(apart.cells.low + apart.within_rows.high) == {None}
    assert apart.cells.shares[4] is not None


def test_the_exported_files_have_every_number_of_the_table(tmp_path: Path) -> None:
    made, files = [published("step"), published("window")], MonthFiles(tmp_path)
    files.add(month_of(SURVEY, made[0]), rows_of(SURVEY, made))
    rows = files.read(month_of(SURVEY, made[0]))
    pair = SURVEY.attributes[2]
    for p in made:
        for name, part in TABLE.items():
            own, shares = rows.filter(span=p.span, estimator=name), getattr(p.table, part)
            margin = {"rows": SURVEY.attributes[0], "columns": SURVEY.attributes[1]}.get(part, pair)
            assert own["label"].to_list() == list(margin.labels)
            assert own["value"].to_list() == list(range(margin.k))
            assert own["standard_error"].null_count() == margin.k
            assert own["reports"].unique().to_list() == [p.reports]
            for column, key in (("frequency", "shares"), ("low", "low"), ("high", "high")):
                assert own[column].to_list() == getattr(shares, key)
    assert set(rows["estimator"]) == {*TABLE, *made[0].estimators}
    again = msgspec.structs.replace(made[0], table=None)  # an equally good publication of the same step replaces all its rows
    files.add(month_of(SURVEY, again), rows_of(SURVEY, [again]))
    rows = files.read(month_of(SURVEY, again))
    assert {span: set(of["estimator"]) & {*TABLE} for (span,), of in rows.group_by("span")} == {
        "step": set(),
        "window": {*TABLE},
    }


# ---- cohorts


def test_a_step_that_is_published_again_changes_the_whole_table_by_cohort() -> None:
    """The second publications arrive between two reads. A mixture would state shares of one and reports of the other."""
    keys = [publication_key("screen", "window", rig.STEPS - 1, cohort) for cohort in (None, *rig.COHORT.values)]
    results = rig.demo().service.results
    later = {p.key: msgspec.structs.replace(p, reports=2 * p.reports) for p in results.get(keys) if p is not None}
    assert list(later) == keys

    class Source:
        reads = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(results, name)

        def get(self, keys: Sequence[str]) -> list[Publication | None]:
            self.reads += 1
            return results.get(keys) if self.reads == 1 else [later[key] for key in keys]

    found = Served(rig.SURVEY, cast(Any, Source()), dict).table("screen", TableQuery(step=rig.STEPS - 1))
    assert found.reports == later[keys[0]].reports


def test_the_table_by_cohort_has_the_histograms_of_the_cohorts() -> None:
    found = rig.client().get("/api/v1/attributes/screen/table", params={"span": "window"}).json()
    assert found["rows"]["kind"] == "cohort"
    assert found["rows"]["labels"] == list(rig.COHORT.values)
    step, k = rig.STEPS - 1, 4
    cohorts = [rig.published("screen", "window", step, cohort) for cohort in rig.COHORT.values]
    total = sum(p.reports for p in cohorts)
    for i, p in enumerate(cohorts):
        row = slice(i * k, (i + 1) * k)
        if p.below_least:
            for part in ("cells", "within_rows", "within_columns"):
                assert set(found[part]["shares"][row] + found[part]["low"][row] + found[part]["high"][row]) == {None}
            continue
        frequencies = p.estimators["eb"]
        assert found["within_rows"]["shares"][row] == frequencies.frequencies
        assert found["within_rows"]["low"][row] == frequencies.low
        np.testing.assert_allclose(
            found["cells"]["shares"][row], np.array(frequencies.frequencies, float) * p.reports / total, rtol=1e-12
        )
    shown = [i for i, p in enumerate(cohorts) if not p.below_least]
    assert len(shown) == 3
    for j in range(k):
        column = [found["within_columns"]["shares"][i * k + j] for i in shown]
        assert sum(column) == pytest.approx(1)
        for i in shown:
            low, share, high = (found["within_columns"][key][i * k + j] for key in ("low", "shares", "high"))
            assert 0 <= low <= share <= high <= 1
    assert found["independence"] is None
    truth = np.array(found["truth"]).reshape(4, k)
    assert truth.sum() == pytest.approx(1)


def test_an_incomplete_step_of_a_pair_is_published_again_for_everybody_and_each_cohort() -> None:
    """At the deadline, only half of the reports are counted. Progress, results and files then follow the complete step."""
    survey = pair_survey(lateness_steps=1, cohort={"name": "version", "values": ["1", "2"], "least": 10})
    service, envelopes = EmbeddedService(survey), list[bytes]()
    produce_step(survey, Population(survey, MarkovValues(survey, 3000, 1, 5), 5), MemorySink(envelopes.append), 0)
    for envelope in envelopes[::2]:
        service.append(envelope)
    service.count()
    for envelope in envelopes[1::2]:
        service.append(envelope)
    service.now_ms = survey.closes_ms(0) + survey.step_ms
    early = [p for p in service._schedule.run(service.now_ms) if p.step == 0]
    announced = service.results.progress()
    late = [p for p in service.estimate() if p.step == 0]
    assert {p.key for p in early} == {p.key for p in late} == set(publication_keys(survey, 0))
    assert ({p.complete for p in early}, {p.complete for p in late}) == ({False}, {True})
    assert service.results.progress() != announced  # the page and other listeners are told of a changed progress
    rows = merged(rows_of(survey, [p for p in early if p.attribute == "mode_by_zone"]), DataFrame(schema=SCHEMA))
    rows = merged(rows, rows_of(survey, of_pair := [p for p in late if p.attribute == "mode_by_zone"]))
    assert sum(p.reports for p in early) < sum(p.reports for p in late)
    assert set(rows["complete"]) == {True}
    assert set(rows["cohort"]) == {None, "1", "2"}
    for before, after in zip(sorted(early, key=lambda p: p.key), sorted(late, key=lambda p: p.key), strict=True):
        assert before.reports <= after.reports
        assert service.results.get([after.key]) == [after]
    [table] = [p.table for p in of_pair if p.cohort is None and p.span == "step"]
    assert isinstance(table, CrossTable)
    assert rows.filter(span="step", estimator="joint")["frequency"].to_list() == table.cells.shares


def test_a_pair_has_one_share_for_each_cell_within_its_interval() -> None:
    """The histogram, the curves and the table show the same numbers, also where the unbiased share is negative."""
    survey, rng = pair_survey(), np.random.default_rng(2)
    (m,), of_parts = survey.mechanisms[2], [survey.mechanisms[a][0] for a in (0, 1)]
    drawn = rng.choice([0, 4], 300)  # two of the nine cells
    panes = [[[m.tabulate(m.simulate(drawn, rng))]], *([[part.empty_table()]] for part in of_parts)]
    unbiased = pair_estimate([Counted(*pooled([m], panes[0])), Counted([]), Counted([])], (3, 3))
    assert unbiased is not None
    assert unbiased.shares.min() < 0
    p = conclude(survey, 2, 0, "step", panes[0], True, of_members=panes[1:])
    results = MemoryResults()
    assert results.save([p], None, Progress(first_step=0, next_step=1))
    api = TestClient(create_api(Served(survey, results, dict)))
    url, query = "/api/v1/attributes/mode_by_zone", {"span": "step"}
    h, t = api.get(f"{url}/histogram", params=query).json(), api.get(f"{url}/table", params=query).json()
    assert (h["estimator"], h["frequencies"]) == ("joint", t["cells"]["shares"])
    assert (h["low"], h["high"]) == (t["cells"]["low"], t["cells"]["high"])
    lines = api.get(f"{url}/series", params=query | {"values": "0,1"}).json()["lines"]
    assert [line["frequencies"] for line in lines] == [[share] for share in h["frequencies"][:2]]
    assert [error is not None for error in h["standard_errors"]] == [True] * 9
    cells = np.array(t["cells"]["shares"])
    np.testing.assert_allclose(cells.reshape(3, 3).sum(axis=1), t["rows"]["shares"]["shares"])
    np.testing.assert_allclose(cells.sum(), 1)
    for part in (t["cells"], t["within_rows"], t["within_columns"], t["rows"]["shares"], t["columns"]["shares"]):
        for share, low, high in zip(part["shares"], part["low"], part["high"], strict=True):
            assert share is None or 0 <= low <= share <= high <= 1
