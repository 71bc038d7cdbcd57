"""Compares the forecast of accuracy with simulated reports, read by the estimators that the service uses.

All seeds are fixed. A mean over runs must be within five standard errors of its forecast: a right forecast fails with a
probability below 3e-5. Each comparison has a control: the forecast for other people or for a smaller effect must fail.
"""

import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.estimators import matrix_inversion
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.planning.forecast import INTERVAL, Forecast, forecast
from ldpstream.surveys import Survey, parse_survey
from tests.small_survey import small_text

SIGMAS, RUNS, PEOPLE = 5.0, 60, 4000
WINDOW = 8
LEVELS = {
    "memoized symbols": 'mechanism = "L-GRR"\neps_inf = 2.0\neps_1 = 1.0',
    "memoized hashes": 'mechanism = "L-OLH"\neps_inf = 2.0\neps_1 = 1.0',
    "spaced symbols": 'mechanism = "GRR"\neps = 1.0\nevery_steps = 8',
    "spaced symbols, two reports": 'mechanism = "GRR"\neps = 1.0\nevery_steps = 2\nlifetime_reports = 2',
    "fresh bits": 'mechanism = "OUE"\neps = 1.0',
    "waves": 'mechanism = "SW"\neps = 2.0\nevery_steps = 8',
}


def survey_of(level: str, k: int, attributes: int = 1, collection: str = "smp", domain: str = "") -> Survey:
    head = f'name = "f"\nstart = 2026-01-05T00:00:00Z\nstep_seconds = 3600\nwindow_steps = {WINDOW}\nlateness_steps = 1\n'
    domain = domain or f"size = {k}"
    asked = [f'[[attribute]]\nname = "a{i}"\n{domain}\n[[attribute.level]]\nname = "l"\n{level}' for i in range(attributes)]
    return parse_survey(tomllib.loads(f'{head}collection = "{collection}"\n' + "\n".join(asked)), "a test")


def table_of(m: Mechanism, shares: FloatArray, people: int, steps: int, rng: np.random.Generator) -> CountTable:
    """Reports of a random sample of people; at a spaced level, each person whose turn it is reports once in `every_steps`."""
    values = np.repeat(np.arange(m.k), rng.multinomial(people, shares))
    if m.every_steps > 1:
        turns = min(max(1, steps // m.every_steps), m.lifetime_reports or steps)
        values = rng.permutation(values)[: round(people * min(1, steps / m.every_steps))]
        steps = turns
    return m.tabulate(m.simulate(values, rng, steps))


def near_one(numbers: FloatArray) -> bool:
    """True if the mean of these runs is 1 to within five standard errors."""
    return bool(abs(numbers.mean() - 1) < SIGMAS * numbers.std(ddof=1) / math.sqrt(numbers.size))


@pytest.mark.parametrize("span", ["step", "window"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_half_width_is_that_of_the_published_interval_and_of_the_error(level: str, span: str) -> None:
    k, steps = 6, WINDOW if span == "window" else 1
    survey = survey_of(LEVELS[level], k)
    ((m,),), (row,) = survey.mechanisms, forecast(survey, PEOPLE)
    assert isinstance(m, Mechanism)
    uniform, rng, half, errors = np.full(k, 1 / k), np.random.default_rng(1), [], []
    worst = [int(m.reading.inversion_variances(uniform, 1).argmax())] if level == "waves" else list(range(k))
    runs = 400 if level == "waves" else RUNS  # a single value needs more runs
    for _ in range(runs):
        found = matrix_inversion(m, table_of(m, uniform, PEOPLE, steps, rng), steps=m.reports_in(steps))
        low, high = found.interval(0.95)
        half.append((high - low)[worst].mean() / 2)
        errors.append((found.frequencies - uniform)[worst])
    predicted = row.spans[span].half_width
    assert np.mean(half) == pytest.approx(predicted, rel=0.03)
    ratio = np.square(np.array(errors) * INTERVAL / predicted).mean(axis=1)
    assert near_one(ratio)
    assert not near_one(ratio * 2)  # control: the forecast for twice as many people


# ---- people


def rows_of(survey: Survey, people: int, width: float = 0.01) -> Forecast:
    return forecast(survey, people, width)[0]


def test_smp_divides_the_people_and_spl_does_not() -> None:
    level = LEVELS["fresh bits"]
    one, four = rows_of(survey_of(level, 6), 1000), rows_of(survey_of(level, 6, 4), 4000)
    assert (four.people, four.spans["step"].half_width) == (1000, one.spans["step"].half_width)
    assert four.spans["step"].people == pytest.approx(4 * one.spans["step"].people, rel=1e-3)
    split = rows_of(survey_of(level, 6, 4, "spl"), 1000)
    assert split.people == 1000
    assert split.spans["step"].half_width > 3 * one.spans["step"].half_width  # each attribute has a quarter of ε
    assert rows_of(survey_of(level, 6, 4, "rs+fd"), 1000).people == 1000


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("span", ["step", "window"])
def test_the_wished_width_needs_exactly_the_people(level: str, span: str) -> None:
    survey = survey_of(LEVELS[level], 6)
    needed = rows_of(survey, 1000, 0.03).spans[span].people
    assert rows_of(survey, needed).spans[span].half_width <= 0.03 * (1 + 1e-9)
    assert rows_of(survey, needed - 1).spans[span].half_width > 0.03 * (1 - 1e-9)


# ---- the command


def test_check_prints_a_table_that_fits_a_terminal(tmp_path: Path) -> None:
    path, out = tmp_path / "s.toml", tmp_path / "f.json"
    spaced = {"name": "standard", "mechanism": "GRR", "eps": 1.0, "every_steps": 8}
    memoized = {"name": "standard", "mechanism": "auto", "eps_inf": 2.0, "eps_1": 1.0}
    questions = {"name": "how_they_come", "size": 4, "level": [spaced]}, {"name": "b", "size": 3, "level": [memoized]}
    path.write_text(small_text(*questions, window_steps=8, lateness_steps=1))
    options = [str(path), "--people", "5000", "--width", "0.02", "--json", str(out)]
    done = CliRunner().invoke(app, ["check", *options], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert all(len(line) <= 80 for line in done.output.splitlines())
    assert "…" not in done.output
    words = " ".join(done.output.split())
    assert "5,000 people: a device answers one of 2 attributes, so about 2,500 answer each" in words
    assert "once in 8 steps, so a step has about 312 reports" in words
    written = json.loads(out.read_text())
    assert [row["people"] for row in written["forecast"]] == [2500, 2500]
    assert set(written["forecast"][0]["spans"]) == {"step", "window"}
