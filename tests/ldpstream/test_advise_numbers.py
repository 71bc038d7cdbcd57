"""Advice for numbers: exact and simulated errors, the choice of mechanism and bins, and surveys from samples."""

import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ldpstream.advice import number_tables
from ldpstream.advice.advise import SURVEY, document
from ldpstream.advice.numbers import (
    BINS,
    NumberAdvice,
    Source,
    advise_numbers,
    counts_in,
    even_bins,
    mean_deviation,
    people,
    repetition,
)
from ldpstream.advice.populations import SHAPES
from ldpstream.advice.proposal import finer_bins
from ldpstream.advice.question import AdviceError, Question
from ldpstream.cli import app
from ldpstream.forecast import INTERVAL, forecast
from ldpstream.mechanisms import mechanism
from ldpstream.surveys import load_survey, parse_survey

N = 4000
EDGES = [[-10.0 + 50 * i / bins for i in range(bins + 1)] for bins in (5, 20)]
AGES = np.random.default_rng(20240601).normal(20, 8, N).clip(-10, 40)


@pytest.mark.parametrize(("name", "losses"), [("SW", {"eps": 1.0}), ("OUE", {"eps": 1.0}), ("L-GRR", {"eps_inf": 4.0})])
def test_the_exact_error_of_the_mean_is_the_forecast_of_check(name: str, losses: dict[str, float]) -> None:
    question = Question(k=20, n=N, numbers=True, **losses)  # type: ignore[arg-type]
    m, even = question.build(name), np.linspace(-10, 40, 2 * N + 1)[1::2]  # equal shares
    survey = parse_survey(SURVEY | {"attribute": [document(m, "age", {"bins": EDGES[1]})]})
    [row] = forecast(survey, N)
    assert INTERVAL * mean_deviation(m, EDGES[1], [even]) == pytest.approx(row.means["step"].half_width)


def test_errors_are_those_of_the_published_numbers_and_of_the_bins() -> None:
    """With ε = 700 a report is the bin, so only the bins cause errors."""
    options = {("GRR", i): mechanism("GRR", len(at) - 1, eps=700.0) for i, at in enumerate(EDGES)}
    half = np.where(np.arange(N) % 2, 4.0, -10.0)
    found = repetition(N, options, EDGES, [half], 1, (0, 0))
    coarse, fine = found["GRR", 0], found["GRR", 1]
    assert coarse["mean"] == pytest.approx(3, abs=0.1)  # of -3; the bins [-10, 0) and [0, 10) have the middles -5 and 5
    assert coarse["histogram"] == pytest.approx((5 + 2.6) / 2, abs=0.1)  # the distances are u from 0 to 10, and |u - 4|
    assert all(fine[of] < coarse[of] for of in fine)


def test_people_and_their_bins() -> None:
    rng = np.random.default_rng(1)
    sources: list[Source] = [*SHAPES, AGES]
    for source in sources:
        drawn = people(source, 500, (-10.0, 40.0), rng)
        assert drawn.size == 500
        assert (np.diff(drawn) >= 0).all()
        assert drawn.min() >= -10
        assert drawn.max() <= 40
    assert people(AGES, N, (0.0, 30.0), rng).tolist() == sorted(AGES.clip(0, 30))
    assert counts_in(np.array([-10.0, -0.1, 0.0, 39.0, 40.0]), [-10, 0, 20, 40]).tolist() == [2, 1, 2]


@pytest.fixture(scope="module")
def advices() -> list[NumberAdvice]:
    once, memoized = Question(k=5, n=N, eps=1.0, numbers=True), Question(k=5, n=N, eps_inf=4.0, numbers=True)
    return [
        advise_numbers(once, EDGES, "histogram", AGES, repeats=20, processes=1),
        advise_numbers(once, EDGES, "mean", repeats=10, processes=1),
        advise_numbers(memoized, EDGES, "percentiles", AGES, repeats=10, processes=1),
    ]


def test_the_advised_mechanism_has_the_least_error(advices: list[NumberAdvice]) -> None:
    """Every mechanism of one-time reports is simulated beside the advised one, with other noise."""
    sample, shapes, memoized = advices
    assert [a.first.candidate.mechanism for a in (sample, shapes)] == ["SW", "SW"]
    assert memoized.first.candidate.mechanism.startswith("L-")
    names = Question(k=5, n=N, eps=1.0, numbers=True).names
    assert "SW" in names
    options = {(name, i): mechanism(name, len(at) - 1, eps=1.0) for name in names for i, at in enumerate(EDGES)}
    runs = [repetition(N, options, EDGES, [AGES], 99, (0, r)) for r in range(20)]
    errors = {option: np.mean([run[option]["histogram"] for run in runs]) for option in options}
    assert min(errors, key=lambda option: errors[option]) == ("SW", EDGES.index(sample.first.edges))
    for advice in advices:
        assert [row.errors[advice.target] for row in advice.ranking] == sorted(
            row.errors[advice.target] for row in advice.ranking
        )
        assert advice.first.best


@pytest.mark.parametrize("eps", [0.5, 1.0, 2.0, 4.0])
def test_square_wave_has_the_least_exact_error_of_the_mean_for_many_bins(eps: float) -> None:
    """For few bins and a large ε, the wave is one cell wide, so Square Wave is GRR."""
    drawn = [people(shape, 10_000, (0.0, 100.0), np.random.default_rng(1)) for shape in SHAPES]
    for at in even_bins(0.0, 100.0):
        question = Question(k=len(at) - 1, n=10_000, eps=eps, numbers=True)
        found = {name: mean_deviation(question.build(name), at, drawn) for name in question.names}
        best = min(other for name, other in found.items() if name != "SW")
        if eps == 4.0 and len(at) - 1 <= 20:
            assert found["SW"] == pytest.approx(best, rel=1e-9)
        else:
            assert 1.35 * found["SW"] < best < 7.65 * found["SW"]


def test_the_stanza_is_a_survey_and_the_reasons_name_the_forecast(advices: list[NumberAdvice]) -> None:
    for advice in advices:
        survey = parse_survey(SURVEY | tomllib.loads(number_tables.stanza(advice, "age")))
        assert survey.attributes[0].bins == tuple(advice.first.edges)
        assert survey.mechanisms[0][0].signature == advice.first.candidate.signature
        [row] = forecast(survey, N)
        why, of_check, *_ = number_tables.reasons(advice)
        assert f"± {row.means['step'].half_width:.3g} " in of_check
        assert f"{advice.first.candidate.mechanism} with {advice.first.bins} bins" in why
        assert number_tables.ranking_table(advice).row_count == len(advice.ranking)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--range 5 5", "range must be two finite numbers in ascending order, got 5 and 5"),
        ("--range 9 -1", "in ascending order, got 9 and -1"),
        ("--range 0 nan", "in ascending order, got 0 and nan"),
        ("--range 0 inf", "in ascending order, got 0 and inf"),
        ("--range 1e15 1000000000000001", "range is too narrow for 200 bins"),
        ("--range 0 9 --choices 2", "--range is for numbers, which have no --k, --choices"),
        ("--range 0 9 --for mode", "must be one of mean, percentiles, histogram, got 'mode'"),
        ("--range 0 9 --repeats 0", "repeats must be an integer in [10, 1000000], got 0"),
        ("--range 0 9 --column a", "--column needs --sample"),
        ("--range 0 9 --sample words.txt", "words.txt: 2 cells are not numbers"),
        ("--range 0 9 --sample empty.txt", "empty.txt: has no number"),
        ("--k 5 --for mean", "--for is for numbers: give --range LOW HIGH"),
    ],
)
def test_bad_questions_get_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("1\n8x7secret\nmany\n2.5\n")
    Path("empty.txt").write_text("NA\n\n")
    done = CliRunner().invoke(app, ["advise", "--n", "100", "--eps", "1", *options.split()])
    assert isinstance(done.exception, AdviceError)
    assert said in str(done.exception)
    assert "secret" not in str(done.exception)


def test_the_command_advises_on_a_sample_of_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpstream.processes.cores", lambda: 1)
    sample, out = tmp_path / "s.csv", tmp_path / "a.json"
    sample.write_text("who,age\n" + "".join(f"{i},{age:.1f}\n" for i, age in enumerate(AGES[:300])) + "x,\n")
    asked = ["--n", "900", "--eps-inf", "2", "--range", "-10", "40", "--for", "mean", "--repeats", "10", "--name", "age"]
    done = CliRunner().invoke(app, ["advise", *asked, "--sample", str(sample), "--column", "age", "--json", str(out)])
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert document["survey"] in done.output
    assert document["sample"] == 300
    assert {len(row["edges"]) - 1 for row in document["ranking"]} == set(BINS)


# ---- init


def test_bins_are_split_only_if_they_stay_integers_of_equal_width() -> None:
    assert finer_bins([0, 10, 20]) == [[0, 5, 10, 15, 20], [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]]
    assert finer_bins([-0.5, 0, 0.5])[0] == [-0.5, -0.25, 0, 0.25, 0.5]
    assert finer_bins([0, 0.5, 1])[1] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
    assert finer_bins([0, 1, 2]) == []
    assert finer_bins([0, 10, 50]) == []


def test_init_proposes_one_time_levels_for_values_that_change(tmp_path: Path) -> None:
    data, out = tmp_path / "people.csv", tmp_path / "s.toml"
    rows = (f"{age:.0f},{('car', 'bus')[i % 2]},{('a;b', 'a', ';')[i % 3]}\n" for i, age in enumerate(AGES[:600]))
    data.write_text("age,mode,apps\n" + "".join(rows))
    done = CliRunner().invoke(app, ["init", "--from", str(data), "-o", str(out), "--eps", "2"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "All levels are one-time" in done.output
    survey = load_survey(out)
    assert [level.mechanism for a in survey.attributes for level in a.levels] == ["SW", "GRR", "PS-GRR"]
    assert all((level.eps, level.every_steps) == (2.0, 24) for a in survey.attributes for level in a.levels)
    assert "SW with" in out.read_text()
    demo = ["demo", "--survey", str(out), "--data", str(data), "--steps", "24", "--json", str(tmp_path / "found.json")]
    for command in (["check", str(out)], ["check", str(out), "--people", "600"], demo):
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
    found = json.loads((tmp_path / "found.json").read_text())["estimates"]
    windows = [e for e in found if e["attribute"] == "age" and e["span"] == "window" and e["step"] == 23]
    mean = windows[-1]["numbers"]["mean"]
    error = (mean["high"] - mean["low"]) / 2 / INTERVAL
    assert abs(mean["value"] - AGES[:600].mean()) < 5 * error < 20
    other = ["init", "--from", str(data), "-o", str(tmp_path / "t.toml")]
    both = CliRunner().invoke(app, [*other, "--eps", "2", "--eps-inf", "2"])
    assert isinstance(both.exception, AdviceError)
    assert not (tmp_path / "t.toml").exists()


def test_the_wasserstein_distance_of_equal_shares_is_small() -> None:
    even = np.linspace(-10, 40, 2 * N + 1)[1::2]
    found = repetition(N, {("GRR", 0): mechanism("GRR", 5, eps=700.0)}, EDGES, [even], 1, (0, 0))
    assert math.isclose(found["GRR", 0]["histogram"], 0, abs_tol=0.05)
