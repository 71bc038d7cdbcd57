"""The next survey from a list of candidates: what it has, what it costs, and whether it finds the values in `other`.

All seeds are fixed. `test_the_walk_of_the_document_finds_the_value` runs the commands of `docs/other.md`.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from ldpstream.agents import tally
from ldpstream.commands.cli import app
from ldpstream.device import Wallet, WalletFull
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.output.outputs import OutputError
from ldpstream.planning.candidates import (
    CandidatesError,
    NextSurvey,
    least_found,
    next_start,
    next_survey,
    open_attribute,
    read_candidates,
)
from ldpstream.planning.toml_text import document_text
from ldpstream.publishing.answers.responses import ApiResponses
from ldpstream.publishing.answers.summaries import Alert, alerts
from ldpstream.publishing.process.prometheus_publisher import PrometheusPublisher
from ldpstream.publishing.process.vitals import Vitals
from ldpstream.services.demo import Demo
from ldpstream.surveys import Survey, SurveyError, load_survey, parse_survey
from tests.faults.invariant import numbers_of
from tests.publishing.cohort_rig import client_of
from tests.publishing.page.page_rig import OpenPage, served

DOCUMENT = Path(__file__).parents[2] / "docs" / "other.md"
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
MEMOIZED = """
[[attribute]]
name = "age"
bins = [0, 20, 99]
level = [{ name = "all", mechanism = "auto", eps_inf = 2.0, eps_1 = 1.0 }]
"""
PAIR = MEMOIZED + MEMOIZED.replace('"age"', '"both"').replace("bins = [0, 20, 99]", 'pair = ["mode", "age"]')
LABELS = [f"candidate {i}" for i in range(10)]


def made(text: str = SURVEY, labels: Sequence[str] = LABELS, start: datetime | None = None, **keys: Any) -> NextSurvey:
    document = tomllib.loads(text)
    survey = parse_survey(document)
    begin = next_start(keys.get("after", survey)) if start is None else start
    return next_survey(survey, document, 0, list(labels), begin, **keys)


def after(old: str, new: str) -> Survey:
    """A survey that replaces `SURVEY`, with a change."""
    replaces = parse_survey(tomllib.loads(SURVEY)).fingerprint.hex()
    return parse_survey(
        tomllib.loads(f'replaces = "{replaces}"\n' + SURVEY.replace('"travel"', '"travel-2"').replace(old, new))
    )


# ---- the list


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"tram\n\xff\xfe\n", "line 2: must be UTF-8"),
        (b"", "has no candidate"),
        (b"\n\r\n", "has no candidate"),
        (b"tram\nferry\ntram\n", "line 3: 'tram' is already in line 1"),
        (b"tram\nbus\n", "line 2: 'bus' is already a value of mode"),
        (b"other\n", "line 1: 'other' is already a value of mode"),
        ("caf\u00e9\ncafe\u0301\n".encode(), "line 2: 'cafe\u0301' is already in line 1, or looks like it"),
        ("b\u0443s\nbu\u0455\n".encode(), "line 2: 'bu\u0455' is already a value of mode, or looks like one"),
        (b"x" * 201, "line 1: a value must have at most 200 characters, got 201"),
        (b"a\tb\n", "line 1: a value must not contain control characters, got 'a\\tb'"),
        (b"tram \n", "line 1: 'tram ' begins or ends with a space"),
    ],
)
def test_a_wrong_list_is_refused_in_one_line(raw: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(raw)
    with pytest.raises(CandidatesError) as refused:
        read_candidates(path, parse_survey(tomllib.loads(SURVEY)).attributes[0])
    assert str(refused.value).startswith(str(path))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_list_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes('\ufefftram\r\n\nKlo\u0308ster \u00d7 # "x"\n'.encode())
    attribute = parse_survey(tomllib.loads(SURVEY)).attributes[0]
    assert read_candidates(path, attribute) == ["tram", 'Klo\u0308ster \u00d7 # "x"']
    with pytest.raises(CandidatesError, match=r"no\.txt: cannot be read: No such file"):
        read_candidates(tmp_path / "no.txt", attribute)


# ---- the next surveys


def test_the_next_survey_keeps_everything_else() -> None:
    one = made(people=20_000)
    old, new = parse_survey(tomllib.loads(SURVEY)), one.survey
    assert new.attributes[0].values == ("car", "bus", "bicycle", *LABELS, "other")
    assert (new.name, new.replaces, new.n_steps) == ("travel-2", old.fingerprint.hex(), None)
    [level] = new.attributes[0].levels
    assert (level.lifetime_reports, level.every_steps, level.mechanism) == (100 - 3, 4, "GRR")
    again = parse_survey(tomllib.loads(one.text))
    assert again == new
    assert new.attributes[0].catch_all == "other"
    later = made(SURVEY.replace("00:00:00Z", "00:00:00.25Z"), steps=4)
    assert (later.survey.start_ms, later.survey.n_steps) == (one.survey.start_ms + 250, 4)
    assert one.least == {"daily": least_found(mechanism("GRR", 14, eps=2.0).spaced(4, None), 4, 20_000, 10)}


def test_a_file_says_what_its_document_says() -> None:
    document = tomllib.loads(SURVEY) | {
        "title": 'Wie "man" reist \\ #', "start": datetime(2026, 1, 5, 1, tzinfo=UTC),
        "cohort": {"name": "version", "values": ["1", "2"], "least": 5},
    }  # fmt: skip
    document["attribute"][0] |= {"aliases": {"Straßenbahn, alt": "bus"}}
    assert tomllib.loads(document_text(document)) == document
    assert parse_survey(tomllib.loads(document_text(document))) == parse_survey(document)


def test_any_w_consecutive_steps_hold_at_most_one_report_also_across_the_change() -> None:
    """Enumerates all phases of a device in three surveys. Control: surveys that start one step after the end before."""

    def most(surveys: list[Survey], gap: int) -> int:
        w = 4
        worst = 0
        for number in range(w ** len(surveys)):
            at, begin = list[int](), 0
            for i, one in enumerate(surveys):
                at += range(begin + number // w**i % w, begin + (one.n_steps or 0), w)
                begin += (one.n_steps or 0) + gap
            worst = max(worst, max(sum(first <= s < first + w for s in at) for first in range(max(at) + 1)))
        return worst

    old = parse_survey(tomllib.loads(SURVEY))
    second = made(steps=4).survey
    third = made(steps=4, after=second).survey
    gaps = {(b.start_ms - a.opens_ms(a.n_steps or 0)) // a.step_ms for a, b in pairwise((old, second, third))}
    assert gaps == {4}
    assert most([old, second, third], 4) == 1
    assert most([old, second, third], 1) == 2
    assert third.attributes[0].levels[0].lifetime_reports == 100 - 3 - 1
    with pytest.raises(CandidatesError, match="at least 4 steps after the end of survey travel, not before 2026-01-05T16"):
        made(start=next_start(old) - timedelta(milliseconds=1))


def test_a_wallet_admits_the_next_survey_with_the_same_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the wallet refuses a survey that begins right after the end."""
    old, later = parse_survey(tomllib.loads(SURVEY)), made().survey
    hurried = parse_survey(tomllib.loads(made().text.replace("05T16:00", "05T12:00")))
    now = old.start_ms
    monkeypatch.setattr("ldpstream.device.wallet._now_ms", lambda: now)
    wallet = Wallet(tmp_path / "wallet", per_window=4.0, window_s=4 * 3600)  # its window touches five steps: two reports
    wallet.device(old)
    now = hurried.start_ms
    with pytest.raises(WalletFull):
        wallet.device(hurried)
    now = later.start_ms
    wallet.device(later)


@pytest.mark.parametrize(
    ("text", "keys", "error", "told"),
    [
        (SURVEY.replace("ends = 12\n", ""), {}, CandidatesError, "survey travel has no end: give --start, at least 4 steps"),
        (
            SURVEY.replace("ends = 12\n", "").replace("every_steps = 4\n", ""), {}, CandidatesError,
            "no end: give --start, when devices have left this survey",
        ),
        (SURVEY, {"start": datetime(2026, 1, 5, tzinfo=UTC)}, CandidatesError, "after the end of survey travel, not before"),
        (SURVEY, {"after": parse_survey(tomllib.loads(SURVEY + MEMOIZED))}, CandidatesError, "must replace survey travel ("),
        (SURVEY, {"after": after("eps = 2.0", "eps = 3.0")}, CandidatesError, "has other attributes, levels or steps"),
        (SURVEY, {"after": after("lifetime_reports = 100", "")}, CandidatesError, "has other attributes, levels or steps than"),
        (SURVEY, {"after": after("= 3600", "= 60")}, CandidatesError, "has other attributes, levels or steps"),
        (
            SURVEY.replace("ends = 12\n", ""), {"start": datetime(2026, 1, 5, 4, 59, tzinfo=UTC)}, CandidatesError,
            "start must be more than 4 steps after the start of survey travel, 2026-01-05T00:00:00Z, got 2026-01-05T04:59:00Z",
        ),
        (SURVEY.replace("= 100", "= 3"), {}, CandidatesError, "level daily: survey travel uses all of its 3 lifetime_reports"),
        (SURVEY + PAIR, {"labels": [f"{i}" for i in range(600)]}, SurveyError, "604 values of mode times 2 values of age"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_in_one_line(text: str, keys: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error) as refused:
        made(text, **keys)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (SURVEY.replace('"other"', '"tram"'), None, "no attribute has a value for texts not listed"),
        (SURVEY + MEMOIZED, "age", "attribute age has no value for texts that are not listed"),
        (SURVEY, "mod", "attribute must be one of mode, got 'mod'"),
        (SURVEY.replace('"other"]', '"other"]\nordered = true'), None, "attribute mode is ordered"),
        (SURVEY + SURVEY[SURVEY.index("[[") :].replace('"mode"', '"two"'), None, "give --attribute, one of mode, two"),
    ],
)
def test_an_attribute_without_other_is_refused(text: str, name: str | None, told: str) -> None:
    with pytest.raises(CandidatesError, match=re.escape(told)):
        open_attribute(parse_survey(tomllib.loads(text)), name)


# ---- from the growth of `other` to the value


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


def gauge_of(survey: Survey, demo: Demo) -> float | None:
    """The gauge of an estimator that sees the demo's publications."""
    registry = CollectorRegistry()
    service, shown = demo.service, PrometheusPublisher(survey, registry)
    Vitals(survey, service.store, service.log, service.results, shown, registry).look(service.now_ms)
    labels = {"survey": survey.name, "attribute": "mode"}
    return registry.get_sample_value("ldpstream_unlisted_growth_ratio", labels)


def test_the_walk_of_the_document_finds_the_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: OpenPage) -> None:
    monkeypatch.chdir(tmp_path)
    people = 20_000
    Path("travel.toml").write_text(SURVEY)
    modes = ["tram", "scooter", "ferry", *(f"line {i}" for i in range(27))]
    Path("list.txt").write_text("".join(f"{mode}\n" for mode in modes))
    commands = re.findall(r"(?m)^ {7}ldpstream (.+)$", DOCUMENT.read_text())
    assert [command.split()[0] for command in commands] == ["candidates", "diff", "found", "candidates"]
    ask, diff, find, last = (command.replace("--steps 24", "--steps 4").split() for command in commands)

    survey = load_survey("travel.toml")
    first = Demo(survey, Travellers(survey, people, 12, 4), 1)
    first.run(lambda step, made: None)
    status = client_of(survey, first).get("/api/v1/status").json()
    growth = status["attributes"][0]["growth"]
    assert (growth["label"], growth["before_step"]) == ("other", 3)
    assert growth["low"] < 0.05 < growth["high"]
    assert gauge_of(survey, first) == growth["difference"]
    said = ApiResponses(survey, first.service.results, None).status("window", {}, 0)
    assert Alert("other", "mode") in list(alerts(said, 0))
    comparison = client_of(survey, first).get("/api/v1/attributes/mode/comparison?before=3&step=11&estimator=mi").json()
    assert "other" in [label for label, clear in zip(comparison["labels"], comparison["clear"], strict=True) if clear]

    with served(survey, first.service.results) as url:
        page = open_page(url)
        grown = r"^mode: other has grown by \+[45]\.\d+ percentage points since the window until 5 Jan 2026, 03:00–04:00 UTC "
        expect(page.locator("#alerts .warning.other")).to_have_text(re.compile(grown))
        page.close()

    invoke(ask)
    told = invoke([*ask, "--out", str(made_folder(tmp_path)), "--json", "made.json"])
    assert "Nothing needs a fresh budget." in told
    assert "Devices must leave survey travel at least 4 steps before this one starts." in told
    [least] = json.loads(Path("made.json").read_text())["least_share"].values()
    assert f"a candidate with a share of {least:.3g} in 9 of 10 cases" in told
    assert "History of mode: joined" in invoke(diff)
    new = load_survey("travel-2.toml")
    second = Demo(new, Travellers(new, people, 4, 0), 2)
    second.run(lambda step, made: None)
    counts = tally(new, second.service.records()).counts
    stored = second.service.store.tables(range(4))
    assert {key: numbers_of(table) for key, table in stored.items()} == {key: numbers_of(t) for key, t in counts.items()}
    assert sum(table.n for table in stored.values()) == people  # everybody once
    query = re.findall(r"8080(/api[^']+)'", DOCUMENT.read_text())[0]
    Path("found.json").write_text(client_of(new, second).get(query).text)
    assert "1 value found among 30 candidates." in invoke(find)
    assert Path("found.txt").read_text() == "scooter\n"

    invoke(last)
    final = load_survey("travel-3.toml")
    assert final.attributes[0].values == ("car", "bus", "bicycle", "scooter", "other")
    assert (final.replaces, final.n_steps) == (survey.fingerprint.hex(), None)
    assert final.start_ms == new.opens_ms(4 + 4)
    assert final.attributes[0].levels[0].lifetime_reports == 100 - 3 - 1


def test_the_command_writes_no_file_through_a_link_and_names_surveys_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("travel.toml").write_text(SURVEY)
    Path("list.txt").write_text("tram\nCaf\u00e9\n")
    ask = ["candidates", "travel.toml", "--list", "list.txt", "--steps", "4"]
    Path("travel-2.toml").symlink_to("elsewhere.toml")
    refused = CliRunner().invoke(app, ask)
    assert isinstance(refused.exception, OutputError)
    assert str(refused.exception) == "travel-2.toml: exists already; give another folder with --out"
    Path("travel-2.toml").unlink()
    said = invoke(ask)
    assert "travel-2 has ended already. Give a later --start." in said
    Path("travel.toml").write_text(SURVEY + MEMOIZED)
    assert "A device loses up to 2 nats by new memos." in invoke([*ask, "--out", str(made_folder(tmp_path))])


def made_folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "again").mkdir()
    return folder


def invoke(arguments: list[str]) -> str:
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output + repr(shown.exception)
    return " ".join(shown.output.split())


@pytest.mark.parametrize(("people", "warns"), [(99, False), (120, True)])
def test_fewer_than_a_hundred_people_warn_of_nothing(people: int, warns: bool) -> None:
    """All people change to scooters."""

    class Changed(Travellers):
        def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
            return self._people, np.full(people, self._values[4 if step >= 4 else 0])

    survey = parse_survey(tomllib.loads(SURVEY.replace("eps = 2.0", "eps = 8.0")))
    demo = Demo(survey, Changed(survey, people, 12, 4), 1)
    demo.run(lambda step, made: None)
    growth = client_of(survey, demo).get("/api/v1/status").json()["attributes"][0]["growth"]
    assert (growth is not None) is warns
    assert (gauge_of(survey, demo) or 0) == (growth["difference"] if growth else 0)


def test_without_scooters_nothing_warns() -> None:
    survey = parse_survey(tomllib.loads(SURVEY))
    demo = Demo(survey, Travellers(survey, 4000, 12, 99), 1)
    demo.run(lambda step, made: None)
    status = client_of(survey, demo).get("/api/v1/status").json()
    assert status["attributes"][0]["growth"] is None
    assert gauge_of(survey, demo) == 0
    closed = parse_survey(tomllib.loads(SURVEY.replace('"other"]', '"ferry"]')))
    assert gauge_of(closed, demo) is None
