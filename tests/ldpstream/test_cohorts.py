"""A survey with cohorts, through the whole pipeline in one process, beside the same survey without cohorts."""

import json
import re
import tomllib
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from ldpstream.commands.demo import demo
from ldpstream.output.terminal import console
from ldpstream.producers.values import MarkovValues
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.services.demo import Demo
from ldpstream.surveys import parse_survey

DEMO = Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml"
COHORT = '[cohort]\nname = "version"\nvalues = ["1.0", "1.1", "other"]\nleast = 300\n'
TEXT = DEMO.read_text(encoding="utf-8").replace("[[attribute]]", f"{COHORT}[[attribute]]", 1)
SURVEY = parse_survey(tomllib.loads(TEXT))
PLAIN = parse_survey(tomllib.loads(DEMO.read_text(encoding="utf-8")))
STEPS = 3


@cache
def demo_of(cohorts: bool) -> Demo:
    survey = SURVEY if cohorts else PLAIN
    demo = Demo(survey, MarkovValues(survey, 3000, STEPS, 4), 4)
    demo.run(lambda step, made: None)
    assert demo.service.rejected() == {}
    return demo


def everybody(cohorts: bool) -> list[Publication]:
    """The publications of all people, without the survey's fingerprint."""
    return [replace(p, fingerprint="") for p in demo_of(cohorts).service.results.history() if p.cohort is None]


def test_the_histograms_of_all_people_are_those_without_cohorts_to_the_last_bit() -> None:
    assert len(everybody(cohorts=False)) == 2 * 3 * STEPS
    assert everybody(cohorts=True) == everybody(cohorts=False)


def test_the_demo_prints_the_reports_of_each_cohort_and_no_histogram_of_one(tmp_path: Path) -> None:
    file, out = tmp_path / "survey.toml", tmp_path / "demo.json"
    file.write_text(TEXT, encoding="utf-8")
    with console.capture() as capture:
        demo(file, users=900, steps=1, json=out, page=False)
    lines = [line for line in capture.get().splitlines() if "reports by version" in line]
    sizes = [re.findall(r"(1\.0|1\.1|other) (\d+)(?: \(below 300: no histogram\))?", line) for line in lines]
    assert [[name for name, _ in found] for found in sizes] == [["1.0", "1.1", "other"]] * 2
    assert sum(int(n) for found in sizes for _, n in found) == 900
    assert "900 reports counted in 1 step; rejected: 0." in capture.get()
    assert capture.get().count(" · step 0 · ") == 2
    estimates = json.loads(out.read_text())["estimates"]
    assert {e["cohort"] for e in estimates} == {None, "1.0", "1.1", "other"}
    assert all(bool(e["estimators"]) is not e["below_least"] for e in estimates)
