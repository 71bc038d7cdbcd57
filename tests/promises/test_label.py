"""The label: eight lines with bounds for every question, the same in `check`, in the picture and in the API."""

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient

from ldpstream.device.consent.words import question
from ldpstream.mechanisms.wording import up
from ldpstream.promises.check_document import check_document
from ldpstream.promises.label import LINES, NO_LIMIT, Label, label
from ldpstream.promises.label_picture import picture
from ldpstream.promises.promise import promise
from ldpstream.promises.statements import checked_level, device_loss
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.services.demo import EmbeddedService
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.signatures import FILE, signed_at, statement
from tests.ldpstream.conftest import RunCommand, run_command
from tests.ldpstream.test_assessment import FRESH, SURVEYS, written
from tests.small_survey import small_survey

__all__ = ["run_command"]
DOCS = Path(__file__).parents[2] / "docs" / "howto"
COMMUTE = Path(__file__).parents[2] / "surveys" / "samples" / "commute.toml"


def chances(survey: Survey) -> dict[str, float]:
    """The largest chances of all levels, as `check --json` has them."""
    levels = [checked_level(survey, i, level.name, m).device_chances for i, _, level, m in survey.levels]
    names = {"blind": "no_report", "one_report": "one_report", "year": "year", "year_any_values": "year_any_values"}
    return {name: max(getattr(level, key).chance for level in levels) for name, key in names.items()}


def text(of: Label, name: str) -> str:
    return next(line.text for line in of.lines if line.name == name)


@pytest.mark.parametrize("name", SURVEYS)
def test_the_label_bounds_every_question_and_never_promises_100_of_100(name: str) -> None:
    made = label(SURVEYS[name], None)
    assert [line.name for line in made.lines] == list(LINES)
    assert not re.search(r"[{}?|]|None|\b100(\.0)? (%|of)|  ", " ".join(line.text for line in made.lines))
    assert {one.name: one.chance for one in made.chances} == chances(SURVEYS[name])
    for one in made.chances:
        told = math.inf if one.text == NO_LIMIT else int(one.text.removesuffix(" of 100"))
        assert told >= 100 * one.chance - 1e-5  # an error of the calculation
        assert (told == math.inf) == (one.chance > 0.99)
        assert f"{one.text} {one.heading}" in text(made, "how_strong")


RELAYED = small_survey(FRESH, relay="required", lateness_steps=2, ends=50, owner="A & B")
LONG = small_survey(FRESH, *({"name": f"q{i}", "values": ["a", "b"], "level": FRESH["level"]} for i in range(4)))


@pytest.mark.parametrize(
    ("survey", "name", "said", "other"),
    [
        (RELAYED, "addresses", "The relay's operator", "commute"),
        (RELAYED, "how_strong", "after the whole survey of any answers", "commute"),
        (RELAYED, "signed", "Responsible: A & B.", "commute"),
        (LONG, "protected", "about mode, q0, q1 and 2 more.", "commute"),
        (SURVEYS["cohort"], "not_protected", "The cohort (version).", "commute"),
        (SURVEYS["levels"], "not_protected", "The chosen level.", "commute"),
        (SURVEYS["levels"], "how_long", "mode (l): one report, whatever the answer. The losses add up without end.", "commute"),
        (SURVEYS["commute"], "not_protected", "Silence", "plain"),
        (SURVEYS["commute"], "how_long", "mode: any 8 steps in a row", "plain"),
        (SURVEYS["commute"], "how_long", "until the device stops after 8 reports.", "plain"),
        (SURVEYS["commute"], "stored", "after 7 days, or in Kafka after 11 days.", "plain"),
        (SURVEYS["set"], "how_strong", "yes and no are equally likely at first", "plain"),
        (RELAYED, "how_long", "The losses add up, until the survey ends.", "levels"),
    ],
)
def test_the_label_says_what_holds_for_this_survey(survey: Survey, name: str, said: str, other: str) -> None:
    assert said in text(label(survey, None), name)
    assert said not in text(label(SURVEYS[other], None), name)


def test_a_signature_beside_the_file_is_named_until_the_survey_changes(tmp_path: Path) -> None:
    path, at = tmp_path / "commute.toml", datetime(2026, 3, 1, 12, tzinfo=UTC)
    path.write_text(COMMUTE.read_text())
    survey = load_survey(path)
    assert signed_at(survey, path) is None
    stated = statement(survey, path.read_text(), None, at)
    (tmp_path / FILE).write_text(json.dumps({"statement": stated, "signature": "x", "toml": path.read_text()}))
    assert signed_at(survey, path) == at
    assert "a signature of 2026-03-01 12:00 UTC. This label does not verify it" in text(label(survey, at), "signed")
    assert signed_at(SURVEYS["demo"], path) is None
    (tmp_path / FILE).write_text("broken")
    assert signed_at(survey, path) is None


def test_command_picture_and_api_show_the_same_words(run_command: RunCommand, tmp_path: Path) -> None:
    survey = load_survey(COMMUTE)
    lines = [f"{line.heading} {line.text}" for line in label(survey, None).lines]
    status, out, _ = run_command("check", COMMUTE, "--label", "--svg", tmp_path / "l.svg", "--json", tmp_path / "l.json")
    assert status == 0
    assert " ".join(out.split()) == " ".join([survey.name, *lines])
    served = EmbeddedService(survey)
    api = TestClient(create_api(Served(survey, served.results, served.rejected)))
    drawn = api.get("/api/v1/label.svg")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert drawn.text == (tmp_path / "l.svg").read_text() == (DOCS.parent / "pictures" / "label.svg").read_text()
    of_api = api.get("/api/v1/survey").json()["label"]
    assert of_api == json.loads((tmp_path / "l.json").read_text())["label"]
    assert [f"{line['heading']} {line['text']}" for line in of_api["lines"]] == lines


def test_the_picture_is_xml_whatever_the_words_are() -> None:
    root = ElementTree.fromstring(picture(label(small_survey(FRESH, title="A < B & C", owner="D " * 100), None)))
    texts = " ".join(found.text or "" for found in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "Privacy of A < B & C" in texts
    assert "D D D" in texts
    lowest = max(float(found.get("y", 0)) for found in root.iter("{http://www.w3.org/2000/svg}text"))
    assert lowest < float(root.get("height", 0))


def test_every_place_names_variant_unit_and_neighbouring_data() -> None:
    survey, papers, page = SURVEYS["commute"], written("crowd"), (DOCS / "promise.md").read_text(encoding="utf-8")
    check, lines = " ".join(promise(survey)), " ".join(line.text for line in label(survey, None).lines)
    for said in (check, lines, papers["assessment"], page):
        assert all(word in said.lower() for word in ("ε-dp", "change of a value", "one enrolment"))
    for said in (check, papers["assessment"], page):
        assert all(word in said.lower() for word in ("event level", "user level"))
    assert "w-event" in check
    second = " ".join(check_document(SURVEYS["crowd"]).promise)
    assert all("(ε, δ)-DP in the shuffle model" in one for one in (second, papers["assessment"], page))


@pytest.mark.parametrize(("name", "of_day"), [("commute", ["1"]), ("demo", ["4", "498.9"])])
def test_the_documents_have_the_loss_of_a_day(name: str, of_day: list[str]) -> None:
    survey, page = SURVEYS[name], (DOCS / "promise.md").read_text(encoding="utf-8")
    row, day = next(line for line in page.split("\n") if f"sample `{name}` |" in line), 86_400 // survey.step_seconds
    same = device_loss(survey, lambda m: m.eps_t(m.reports_in(day)))
    any_values = device_loss(survey, lambda m: m.eps_sequence(m.reports_in(day)).value)
    assert list(dict.fromkeys((up(same), up(any_values)))) == of_day == re.findall(r"[\d.]+", row.split("|")[-2])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--svg", "x.svg"], "--svg needs --label"), (["--label", "--people", "9"], "give --label or --people")],
)
def test_options_that_do_not_fit_are_refused(run_command: RunCommand, arguments: list[str], said: str) -> None:
    status, _, err = run_command("check", COMMUTE, *arguments)
    assert status == 2
    assert said in err[0]


@pytest.mark.parametrize("sample", sorted(COMMUTE.parent.glob("*.toml")), ids=lambda path: path.stem)
def test_label_and_question_of_a_device_agree(sample: Path) -> None:
    """The device knows the losses alone: its bounds are not smaller, and end only where the label's end."""
    survey = load_survey(sample)
    shown, asked = label(survey, None), question(survey, [0] * len(survey.attributes))
    rows = [re.findall(rf"(\d+) of 100|{NO_LIMIT}", line) for line in asked.splitlines() if line.startswith("A guess")]
    most = [max(int(text or 100) for text in column) for column in zip(*rows, strict=True)]
    told = [100 if one.text == NO_LIMIT else int(one.text.split()[0]) for one in shown.chances[:3]]
    assert most[0] == told[0]
    assert all(mine >= theirs for mine, theirs in zip(most, told, strict=True))
    assert [mine == 100 for mine in most] == [theirs == 100 for theirs in told]
    for words in (" ".join(line.text for line in shown.lines), asked):
        assert all(word in words.lower() for word in ("answers are equally likely", "part", "silen", "storage", "question"))
