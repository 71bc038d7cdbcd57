"""The command `assessment`: its papers state the survey's numbers, in each language, and a paper that drifts is found."""

import math
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from devices.vectors.vectors import SURVEYS as VECTORS
from ldpstream.commands.arguments import DEMO_SURVEY
from ldpstream.mechanisms.claims.guessing import percent_up
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.papers.assessment import ENGLISH, PAPERS, papers, read_language
from ldpstream.promises.second_promise import loss_up, second_promise
from ldpstream.surveys import load_survey, parse_survey
from tests.pair_survey import pair_survey
from tests.set_survey import set_survey
from tests.small_survey import small_survey

from .conftest import RunCommand

COMMUTE = DEMO_SURVEY.with_name("commute.toml")
LANGUAGES = sorted(ENGLISH.parent.glob("*.toml"))
FRESH = {"name": "mode", "values": ["car", "bus"], "level": [{"name": "l", "mechanism": "GRR", "eps": 1.0}]}
LEVELS = [FRESH["level"][0], {"name": "b", "mechanism": "L-GRR", "eps_inf": 2.0, "eps_1": 1.0}]
OTHERS = {
    "pair": pair_survey(),
    "set": set_survey(),
    "relay": small_survey(FRESH, relay="required", lateness_steps=2, ends=50, owner="A*B <i> [x](y)"),
    "crowd": small_survey(FRESH, relay="required", lateness_steps=2, crowd=1234, ends=20),
    "cohort": small_survey(FRESH, cohort={"name": "version", "values": ["1", "2"], "least": 900}),
    "levels": small_survey(FRESH | {"level": LEVELS}),
    "many": small_survey(FRESH | {"values": [str(i) for i in range(100)]}),
    "plain": small_survey(FRESH | {"unlisted": "car"}, ends=20),
}
# more than a year's reports
OTHERS["habit"] = parse_survey(tomllib.loads(COMMUTE.read_text().replace("lifetime_reports = 8 ", "lifetime_reports = 90 ")))
SURVEYS = {path.stem: load_survey(path) for path in (*sorted(DEMO_SURVEY.parent.glob("*.toml")), *VECTORS)} | OTHERS


@cache
def written(name: str, language: Path = ENGLISH) -> dict[str, str]:
    return papers(SURVEYS[name], read_language(language))


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", SURVEYS)
def test_the_papers_of_every_survey_are_complete_in_every_language(name: str, language: Path) -> None:
    """The numbers are those of the English papers, which the next tests check."""
    english, here = written(name), written(name, language)
    for paper in PAPERS:
        assert not re.search(r"\{\w*\}|(?m:^\?)|\bNone\b|\n\n\n", here[paper])
        numbers = [re.findall(r"\d+[.,]\d+", text.partition("<!--")[0]) for text in (english[paper], here[paper])]
        assert sorted(one.replace(",", ".") for one in numbers[1]) == sorted(numbers[0])
        rows = re.findall(r"(?m)^\|.*\|$", here[paper])
        assert {row.count(" | ") for row in rows if not row.startswith("|--")} <= {1, 3}


def table(text: str, question: str) -> list[str]:
    block = text[text.index(f"### `{question}`") :]
    return re.findall(r"(?m)^\| [^|]+ \| ([^|]+) \|$", re.split(r"\n#", block)[0])[1:]


@pytest.mark.parametrize(("name", "reports"), [("commute", 8), ("habit", 90)])
@pytest.mark.parametrize("paper", ["assessment", "notice"])
def test_the_chances_are_those_of_the_mechanisms(paper: str, name: str, reports: int) -> None:
    """Each number is asked from the mechanism for exactly what its row says."""
    survey = SURVEYS[name]
    (distance,), (mode,) = survey.mechanisms
    text, year = written(name)[paper], survey.steps_a_year

    def right(*chances: Any) -> str:
        return "; ".join(str(chance).removesuffix(" %") for chance in chances)

    whole = [device_chance(survey, i, m, year, any_values=True) for i, m in enumerate((distance, mode))]
    of_year = [[right(chance)] if paper == "assessment" else [] for chance in whole]
    assert table(text, "distance_km") == [
        "16.7", right(distance.guess()), right(distance.guess(math.inf)), right(distance.claims.guess_any_values(year)),
        right(device_chance(survey, 0, distance, math.inf)), *of_year[0], right(*map(distance.claims.guess_memos, (3, 5, 10))),
        right(distance.claims.guess_memos(4)),
    ]  # fmt: skip
    assert table(text, "mode") == [
        "25.0", right(mode.guess()), right(mode.guess(reports)), right(mode.claims.guess_any_values(min(reports, 46))),
        right(mode.guess()), right(device_chance(survey, 1, mode, math.inf)), *of_year[1],
        right(*map(mode.guess, (3, 5, 10))), right(mode.guess(4)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "paper", "sentence"),
    [
        ("commute", "assessment", "factor of 7.39 (ε = 2), and 88.1 % sure"),
        ("commute", "assessment", "**All reports, whatever the answers**: ε = 8."),
        ("relay", "assessment", "**All reports, whatever the answers**: ε = 50."),
        ("demo", "assessment", "one step lose at most ε = 2, whatever"),
        ("commute", "notice", "It stops after 8 reports."),
        ("fake", "notice", "made-up answers"),
        ("commute", "notice", "at most one report about this question in 8 days."),
        ("commute", "assessment", "A window adds up 8 days."),
        ("demo", "assessment", "A step is 1 hour."),
        ("cohort", "assessment", "| all reports about this question in a year; the answer never changes |"),
        ("demo", "assessment", "hash function, one of 16."),
        ("many", "assessment", "Answers: 0, 1, 2, …, 99."),
        ("set", "notice", "yes and no are equally likely at first"),
        ("pair", "notice", "Your device sends no report of some answers."),
        ("relay", "notice", "Your reports reach us through"),
        ("relay", "assessment", r"A\*B \<i> \[x](y)"),
        ("crowd", "notice", "needs all of these conditions"),
        ("cohort", "notice", "at least 900 people"),
        ("levels", "notice", "level `b`"),
        ("levels", "notice", "About `mode` (b), your device keeps"),
    ],
)
def test_a_sentence_stands_only_where_it_holds(name: str, paper: str, sentence: str) -> None:
    """As a control, the papers of a plain survey lack it."""
    assert sentence in written(name)[paper]
    assert sentence not in written("plain")[paper]


def test_the_second_promise_comes_after_the_first_and_states_its_bound() -> None:
    survey = OTHERS["crowd"]
    (row,) = [row for row in second_promise(survey, None) if row.span == "life"]
    assert row.guess_in_crowd < row.guess_everybody
    for paper in ("assessment", "notice"):
        text = written("crowd")[paper]
        said = f"at most {percent_up(row.guess_in_crowd).removesuffix(' %')} right guesses of 100 from all reports"
        assert text.index("| one report | 73.1 |") < text.index("hold against everybody") < text.index(said)
        assert f"in a crowd of 1234 honest people (ε = {loss_up(row.eps_in_crowd)}, δ = 0.000000001)" in text


@dataclass
class Files:
    """The papers of a survey in a folder."""

    survey: Path
    folder: Path
    command: RunCommand

    def check(self, *options: str | Path) -> tuple[int, list[str]]:
        status, _, said = self.command("assessment", self.survey, "--check", self.folder, *options)
        return status, said


@pytest.fixture
def files(tmp_path: Path, run_command: RunCommand) -> Files:
    survey, folder = tmp_path / "commute.toml", tmp_path / "papers"
    survey.write_text(COMMUTE.read_text())
    status, said, err = run_command("assessment", survey, "--out", folder)
    assert (status, err, said.count("places marked […]")) == (0, [], 3)
    return Files(survey, folder, run_command)


def test_completed_and_wrapped_papers_fit_their_survey(files: Files) -> None:
    assert files.command("assessment", files.survey, "--check", files.folder)[1].count("places marked […] are left") == 3
    for paper in PAPERS:
        path = files.folder / f"{paper}.md"
        path.write_text("Our own words.\n\n" + path.read_text().replace("[…]", "Office, 3 streets").replace(", ", ",\n"))
    assert files.check() == (0, [])


@pytest.mark.parametrize(
    ("paper", "old", "new", "lacks"),
    [
        ("notice", "| 72.8 |", "| 27.8 |", "all reports about this question that a device ever makes"),
        ("notice", "We cannot find or delete reports", "We can delete reports", "You can stop at any time"),
        ("record", "at least 11 days in Kafka", "at least 1 day in Kafka", "Time limits"),
    ],
)
def test_a_changed_paper_is_found(files: Files, paper: str, old: str, new: str, lacks: str) -> None:
    path = files.folder / f"{paper}.md"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    status, (said,) = files.check()
    assert (status, f"{paper}.md: does not fit" in said, lacks in said) == (2, True, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lifetime_reports = 8 ", "lifetime_reports = 9 "),
        ("eps_1 = 1.0", "eps_1 = 0.9"),
        ("window_steps", 'purpose = "Plans"\nwindow_steps'),
    ],
)
def test_papers_of_a_changed_survey_are_found(files: Files, old: str, new: str) -> None:
    text = files.survey.read_text()
    assert old in text
    files.survey.write_text(text.replace(old, new))
    status, (said,) = files.check()
    assert (status, "does not fit" in said) == (2, True)


def test_a_bad_survey_or_language_gets_one_line(files: Files, tmp_path: Path) -> None:
    german = (ENGLISH.parent / "german.toml").read_text()
    language = tmp_path / "texts.toml"
    for text, fault in (
        (german.replace("?relay - ", "- ", 1), "assessment, line 22: must have '?relay' as in English, got ''"),
        (german.replace("{one_report} |", "35,2 |", 1), "chances, line 6: must have '{one_report}' as in English, got ''"),
        (german.replace("\n## Ihre Wahl", "## Ihre Wahl"), "notice, line"),
        (german.replace('year = "einem Jahr"', ""), "year differs"),
        (german + 'more = "x"', "more differs"),
        (german.replace('"einem Jahr"', "3"), "year differs"),
        ("= x", "Invalid"),
    ):
        language.write_text(text)
        status, (said,) = files.check("--language", language)
        assert (status, fault in said, str(language) in said) == (2, True, True), said
    files.survey.write_text("name = 3")
    status, (said,) = files.check()
    assert (status, "commute.toml" in said) == (2, True)
