"""Advice: directly drawn counts are right, errors are exact where possible, and the printed stanza is valid in a survey."""

import io
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ldpstream.advice import advice_tables
from ldpstream.advice.advise import (
    FEW,
    SURVEY,
    Advice,
    Ranked,
    advise,
    document,
    lightest_row,
    rank,
    rank_by_variance,
    worse,
)
from ldpstream.advice.drawn_tables import drawn_table
from ldpstream.advice.methods import DEFAULT
from ldpstream.advice.populations import SHAPES
from ldpstream.advice.question import AdviceError, Question
from ldpstream.advice.runs import inversion_variances, luck, simulate, without_luck
from ldpstream.advice.sample_file import read_sample
from ldpstream.advice.windows import EVERY_STEPS, equal_promises
from ldpstream.estimators import matrix_inversion
from ldpstream.mechanisms import LONGITUDINAL, NAMES, ONE_TIME, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.producers.table_file import DataError
from ldpstream.surveys import parse_survey
from ldpstream.toml_text import toml_lines

PEOPLE = np.array([700, 200, 100, 0, 0])
SAMPLE = np.array([60, 25, 10, 4, 1, 0])
AT_ONCE = ("GRR", "SUE", "OUE", "THE", "L-GRR", "L-SUE", "L-OSUE", "L-SOUE", "L-OUE")
SIGMAS = 5.0  # a normal variable differs from its mean by more than this many standard deviations with probability 6e-7


def built(name: str, k: int = 5, eps: float = 1.0) -> Mechanism:
    return mechanism(name, k, eps_inf=2 * eps, eps_1=eps) if name in LONGITUDINAL else mechanism(name, k, eps=eps)


def moments(m: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of the support counts of PEOPLE: from the dense channel if reports are symbols, else bit by bit."""
    supports = np.full((m.k, m.k), m.q) + (m.p - m.q) * np.eye(m.k)  # probabilities of [value, supported value]
    variances = np.diag(PEOPLE @ (supports * (1 - supports)))
    if m.name.endswith("GRR"):
        rows = m.channel()
        np.testing.assert_allclose(rows, supports)
        variances = sum((n * (np.diag(row) - np.outer(row, row)) for n, row in zip(PEOPLE, rows, strict=True)), np.zeros(()))
    return PEOPLE @ supports, variances


def farthest(m: Mechanism, tables: FloatArray) -> float:
    """Largest distance of the tables' mean and covariance from the expected values, in standard deviations."""
    mean, covariance = moments(m)
    n, spread = len(tables), np.sqrt(np.diag(covariance))
    found = np.cov(tables.T)
    wide = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / n)
    of_mean = np.abs(tables.mean(axis=0) - mean) / (spread / math.sqrt(n))
    return float(max(of_mean.max(), (np.abs(found - covariance) / wide).max()))


@pytest.mark.parametrize("name", AT_ONCE)
def test_directly_drawn_tables_follow_the_reports_law(name: str) -> None:
    """The test checks 20 numbers for each of 9 mechanisms.

    With probability 1e-4, some number differs from its expected value by more than 5 standard deviations.
    """
    m, rng = built(name), np.random.default_rng(7)
    tables = np.array([m.support(drawn_table(m, PEOPLE, rng)) for _ in range(4000)])
    assert farthest(m, tables) < SIGMAS
    assert farthest(built(name, eps=1.05), tables) > SIGMAS


@pytest.mark.parametrize("name", NAMES)
def test_luck_is_zero_on_average(name: str) -> None:
    """The test checks two parts for each of 14 mechanisms, and notices a wrong ε.

    With probability 2e-5, at least one part differs from 0 by more than 5 standard errors.
    """
    m, n, rng = built(name, eps=4.0), int(PEOPLE.sum()), np.random.default_rng(3)
    truth = PEOPLE / n
    inversions = [matrix_inversion(m, drawn_table(m, PEOPLE, rng)).frequencies for _ in range(800)]
    for claimed, right in ((m, True), (built(name, eps=3.0), False)):
        found = np.array([luck(claimed, truth, inverted, n) for inverted in inversions])
        error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
        assert (np.abs(found.mean(axis=0)) <= SIGMAS * error).all() == right


def test_regression_removes_luck_and_nothing_else() -> None:
    rng = np.random.default_rng(5)
    chance, noise = rng.normal(0, 1, (2, 400, 2)), rng.normal(0, 0.1, (2, 400))
    errors = 7 + chance @ [3.0, -2.0] + noise
    rest = without_luck(errors, chance)
    assert rest.std() == pytest.approx(0.1, rel=0.1)
    assert abs(rest.mean() - 7) < SIGMAS * 0.1 / math.sqrt(800)
    assert abs(errors.mean() - 7) > SIGMAS * 0.1 / math.sqrt(800)
    assert without_luck(np.full((2, 400), np.inf), chance).tolist() == np.full((2, 400), np.inf).tolist()
    np.testing.assert_allclose(without_luck(errors, np.zeros_like(chance)), errors)
    unseen = -1e-9 + 1e-25 * chance  # rare events that did not occur: a mean luck far from 0, with hardly any spread
    assert without_luck(errors, unseen).tolist() == errors.tolist()


@pytest.mark.parametrize(
    ("asked", "few", "many"),
    [
        ({"eps": 1e-9}, "mse", "kl"),
        ({"eps": 30.0}, "kl", "mse"),
        ({"eps": 700.0}, "mse", "kl"),
        ({"eps_inf": 700.0, "eps_1": 699.0}, "kl", "mse"),
    ],
)
def test_extreme_epsilons_are_answered(asked: dict[str, Any], few: str, many: str) -> None:
    for k, n, metric in ((2, 2, few), (20, 100, many)):
        advice = advise(Question(k=k, n=n, metric=metric, **asked), repeats=10, processes=1)
        assert all(r.error >= 0 for r in advice.ranking)
        assert all(c.deviation > 0 for c in advice.candidates)
        assert advice.first.mechanism in advice_tables.reasons(advice)[0]
        assert advice_tables.ranking_table(advice).row_count >= advice_tables.SHOWN


@pytest.mark.parametrize("name", NAMES)
def test_exact_error_excludes_the_variance_of_the_people(name: str) -> None:
    m, shares = built(name), PEOPLE / 1000
    expected = [m.variance(f, 50) - f * (1 - f) / 50 for f in shares]
    np.testing.assert_allclose(inversion_variances(m, shares, 50), expected)


def test_inversion_is_exact_and_cores_do_not_change_results() -> None:
    question = Question(k=6, n=2000, eps=1.0)
    alone = simulate(question, ["OLH"], [SAMPLE, "poisson"], 10, 1, processes=1)
    together = simulate(question, ["GRR", "OLH"], [SAMPLE, "poisson"], 10, 1, processes=2)
    for key, runs in alone.items():
        np.testing.assert_array_equal(runs, together[key])
    other = simulate(question, ["OLH"], [SAMPLE, "poisson"], 10, 2, processes=1)
    assert not np.array_equal(alone["OLH", "ibu", "none"], other["OLH", "ibu", "none"])
    everybody = np.array([500, 900, 300, 200, 100, 0])
    exact = simulate(question, ["OLH"], [everybody], 10, 1, processes=1)["OLH", "mi", "none"]
    m = question.build("OLH")
    np.testing.assert_allclose(exact, inversion_variances(m, everybody / 2000, 2000).mean())


def test_ranking_is_by_mean_and_best_by_paired_difference() -> None:
    shared = np.random.default_rng(2).normal(10, 1, 50)
    errors = {
        ("A", "mi", "none"): shared,
        ("A", "mi", "norm"): shared + 0.001 + 0.0001 * np.arange(50),  # significantly worse, though by far less than the noise
        ("B", "ibu", "none"): np.random.default_rng(3).normal(10.1, 1, 50),
        ("C", "mle", "none"): np.full(50, np.inf),
    }
    ranking = rank(errors)
    found = {r.mechanism + r.post: (r.best, r.error) for r in ranking}
    assert [r.error for r in ranking] == sorted(r.error for r in ranking)
    rounded = {("A", "mi", "none"): shared, ("A", "ibu", "none"): shared * (1 - 1e-15)}
    assert rank(rounded)[0].estimator == "mi"  # if errors are equal, the simplest estimator comes first
    assert found["Anone"][0]
    assert not found["Anorm"][0]
    assert found["Bnone"][0]
    assert found["Cnone"] == (False, math.inf)
    assert math.isnan(ranking[-1].standard_error)
    assert not worse(shared, shared)
    assert rank({("C", "mle", "none"): np.full(9, np.inf), ("D", "mle", "none"): np.full(9, np.inf)})[1].best


def test_a_combination_without_an_estimate_ranks_last() -> None:
    """Two reports of three bits often have no bit set. Without a set bit, the likelihoods of bits give no estimate."""
    advice = advise(Question(k=3, n=2, eps=3.0), repeats=30, processes=1)
    missing = [r for r in advice.ranking if math.isinf(r.error)]
    assert {(r.mechanism, r.estimator) for r in missing} >= {("OUE", "ibu"), ("OUE", "mle")}
    assert advice.ranking[-len(missing) :] == missing
    assert not any(r.best for r in missing)


@pytest.mark.parametrize(("given", "named"), [
    ({"k": 1}, "k"), ({"n": 1}, "n"), ({"eps": None}, "eps_inf"), ({"eps_inf": 1.0}, "exactly one"), ({"eps": -1.0}, "eps"),
    ({"eps_1": 0.5}, "eps_1"), ({"budget": 0.5}, "budget"), ({"horizon": 0}, "horizon"), ({"metric": "best"}, "metric"),
    ({"max_bytes": 0}, "max_bytes"), ({"eps": math.nan}, "eps"), ({"eps": None, "eps_inf": 2.0, "eps_1": 2.0}, "eps_1"),
    ({"eps": None, "eps_inf": 2.0, "budget": 2.0}, "budget"), ({"eps": None, "eps_inf": 800.0}, "eps_inf"),
    ({"eps": None, "eps_inf": 2.0, "eps_1": 1.0, "budget": 1.0}, "not both"),
])  # fmt: skip
def test_questions_out_of_range_are_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(AdviceError, match=named):
        Question(**{"k": 5, "n": 100, "eps": 1.0, **given})


def test_candidates_rank_by_variance_or_drop_with_a_reason() -> None:
    shares = [np.full(100, 0.01)]
    free = rank_by_variance(Question(k=100, n=1000, eps_inf=2.0), shares)
    assert [c.deviation for c in free] == sorted(c.deviation for c in free)
    assert sum(not c.dropped for c in free) == FEW
    assert all("times the smallest" in c.dropped for c in free[FEW:])
    short = rank_by_variance(Question(k=100, n=1000, eps_inf=2.0, max_bytes=2), shares)
    assert [c.mechanism for c in short if not c.dropped] == ["L-OLH", "L-BLH", "L-GRR"]
    assert "13 bytes, more than 2" in next(c for c in short if c.mechanism == "L-OSUE").dropped
    with pytest.raises(AdviceError, match="repeats"):
        advise(Question(k=6, n=1000, eps=1.0), SAMPLE, repeats=9)
    with pytest.raises(AdviceError, match="sample must be 7 counts"):
        advise(Question(k=7, n=1000, eps=1.0), SAMPLE)
    with pytest.raises(AdviceError, match="OUE: a report takes 33 bytes"):
        advise(Question(k=260, n=1000, eps=1.0, max_bytes=1))
    large = rank_by_variance(Question(k=100_000, n=10_000_000, eps=1.0), [np.full(100_000, 1e-5)])
    assert "too long to simulate" in next(c for c in large if c.mechanism == "SS").dropped


def test_a_budget_sets_eps_1_of_each_mechanism() -> None:
    question = Question(k=6, n=2000, eps_inf=4.0, budget=2.0, horizon=30)
    found = rank_by_variance(question, [np.full(6, 1 / 6)])
    assert {c.mechanism for c in found} == set(LONGITUDINAL)
    assert all(c.eps_t == pytest.approx(2.0) and c.eps_t <= 2.0 and c.eps_1 < 2.0 for c in found)
    assert len({c.eps_1 for c in found}) > 1
    half = rank_by_variance(Question(k=6, n=2000, eps_inf=4.0), [np.full(6, 1 / 6)])
    assert all(c.eps_1 == pytest.approx(2.0) for c in half)


@pytest.fixture(scope="module")
def advices() -> list[Advice]:
    return [
        advise(Question(k=6, n=2000, eps=1.0), SAMPLE, repeats=10, processes=1),
        advise(Question(k=6, n=2000, eps_inf=2.0, metric="kl"), SAMPLE, repeats=10, processes=1),
        advise(Question(k=6, n=500, eps_inf=2.0, budget=1.5, horizon=20), repeats=10, processes=1),
    ]


def test_the_stanza_is_a_survey_with_the_advised_mechanism(advices: list[Advice]) -> None:
    for advice in advices:
        text = advice_tables.stanza(advice)
        survey = parse_survey(SURVEY | tomllib.loads(text))
        assert survey.mechanisms[0][0].signature == advice.candidate(advice.first.mechanism).signature
        assert (f"post={advice.first.post}\n" in text) == (advice.first.post != "none")
        assert survey.attributes[0].k == 6


def test_advice_gives_its_reasons(advices: list[Advice]) -> None:
    one_time, kl, shapes = advices
    assert {r.mechanism for r in one_time.ranking} <= set(ONE_TIME)
    assert len(one_time.ranking) == FEW * 11
    assert (one_time.sample, shapes.sample) == (100, None)
    assert one_time.first.error < next(r.error for r in one_time.ranking if r.post == "none" and r.estimator == "mi")
    assert math.isfinite(kl.first.error)
    finite = {(r.estimator, r.post) for r in kl.ranking if math.isfinite(r.error)}
    assert ("ibu", "none") in finite
    assert finite.isdisjoint({("mi", "power"), ("mi", "base-pos")})  # these two estimates do not sum to 1
    assert all(r.error > 0 for r in kl.ranking)
    for advice in advices:
        why = " ".join(advice_tables.reasons(advice))
        assert advice.first.mechanism in why
        assert f"{advice.question.horizon} reports" in why
        assert advice_tables.candidate_table(advice).row_count == 7
        assert advice_tables.ranking_table(advice).row_count >= advice_tables.SHOWN
        errors, losses = advice_tables.picture(advice)
        drawn = {(c.label, errors.names[int(x)], y) for c in errors.curves for x, y in zip(c.x, c.y, strict=True)}
        assert drawn == {
            (r.mechanism, r.estimator if r.post == "none" else f"{r.estimator} {r.post}", r.error)
            for r in advice.ranking
            if math.isfinite(r.error)
        }
        assert all(max(c.x) == advice.question.horizon for c in losses.curves)
    assert "Losses add up" in " ".join(advice_tables.reasons(one_time))
    assert "half of ε∞" in " ".join(advice_tables.reasons(kl))


def test_promises_are_equal_and_errors_exact(advices: list[Advice]) -> None:
    one_time, *memoized = advices
    assert one_time.promises == []
    for advice in memoized:
        m = advice.question.build(advice.first.mechanism)
        assert [row.loss for row in advice.promises] == [
            m.eps_1, m.eps_t(advice.question.horizon), m.eps_sequence(advice.question.horizon).value,
        ]  # fmt: skip
        for row in advice.promises:
            spaced = ONE_TIME[row.mechanism](k=m.k, eps=row.eps).spaced(EVERY_STEPS)
            reports = 1 if row.promise == "one report" else spaced.reports_in(advice.question.horizon)
            assert spaced.eps_sequence(reports).value == pytest.approx(row.loss)
    shares = np.array([0.7, 0.2, 0.1, 0.0, 0.0, 0.0])
    m = mechanism("L-OSUE", 6, eps_inf=2.0, eps_1=1.0)
    row = equal_promises(m, 960, 1, [shares])[0]
    fresh = ONE_TIME[row.mechanism](k=6, eps=1.0)
    for found, expected in (
        (row.memoized_step, [m.variance(f, 960) for f in shares]),
        (row.memoized_window, [m.variance(f, 960, EVERY_STEPS) for f in shares]),
        (row.spaced_step, [fresh.variance(f, 960 // EVERY_STEPS) for f in shares]),
        (row.spaced_window, [fresh.variance(f, 960) for f in shares]),
    ):
        assert found == pytest.approx(math.sqrt(np.mean(expected)))
    assert all(ONE_TIME[name](k=6, eps=1.0).variance(0.0) >= 0.9 * fresh.variance(0.0) for name in ONE_TIME)


def test_tables_fit_a_terminal(advices: list[Advice]) -> None:
    many = advise(Question(k=2000, n=3000, eps_inf=2.0, budget=0.5), repeats=10, processes=1)
    for advice in (*advices, many):
        made = (advice_tables.candidate_table, advice_tables.ranking_table, advice_tables.promise_table)
        for shown in [make(advice) for make in made]:
            console = Console(width=80, file=(written := io.StringIO()))
            console.print(shown)
            assert "…" not in written.getvalue()
    assert "times the smallest" in str(advice_tables.candidate_table(many).caption)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9), min_size=2, max_size=5, unique=True))
def test_any_labels_can_be_pasted(labels: list[str]) -> None:
    asked = document(mechanism("OLH", len(labels), eps=1.0), "value", {"values": labels})
    (level,) = asked["level"]
    del asked["level"]
    lines = [*toml_lines(asked), "[[level]]", *toml_lines(level)]
    assert tomllib.loads("\n".join(lines)) == {**asked, "level": [level]}


def test_advice_without_a_sample_simulates_every_shape() -> None:
    advice = advise(Question(k=3, n=100, eps=2.0), repeats=10, processes=1, seen=lambda done, total, what: totals.append(total))
    assert set(totals) == {10 * len(SHAPES)}
    assert advice.rare <= 1


totals: list[int] = []


def test_only_distributions_have_a_finite_divergence() -> None:
    """If the sample lacks values, an estimate with sum 1 may be negative at these values and exceed the truth at the others."""
    question = Question(k=8, n=5000, eps=1.0, metric="kl")
    ranking = advise(question, np.array([3000, 1500, 500, 0, 0, 0, 0, 0]), repeats=10, processes=1).ranking
    assert all(r.error >= 0 for r in ranking)
    assert not any(math.isfinite(r.error) for r in ranking if r.post in ("none", "norm") and r.estimator == "mi")


def test_samples_are_counted(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("3\n0\n\n3\n1\n")
    counts, labels = read_sample(lines)
    assert (counts.tolist(), labels) == ([1, 1, 0, 2], None)
    assert read_sample(lines, k=6)[0].tolist() == [1, 1, 0, 2, 0, 0]
    table = tmp_path / "table.csv"
    table.write_text('person,where\n1,"b, c"\n2,a\n3,a\n4,a\n')
    assert read_sample(table, "where")[0].tolist() == [3, 1]
    counts, labels = read_sample(table, "where", k=3)
    assert (counts.tolist(), labels) == ([3, 1, 0], ["a", "b, c"])
    assert read_sample(table, "person")[0].tolist() == [0, 1, 1, 1, 1]
    table.write_text("\nperson;where\n1;b, c\n2;a\n3;a\n4;a\n")  # as a German spreadsheet writes it
    assert read_sample(table, "where")[1] == ["a", "b, c"]
    table.write_text("person,where\n1,a\n2\n")
    with pytest.raises(DataError, match="line 3: has 1 column, the header 2"):
        read_sample(table, "where")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_records_of_people_are_not_accepted_as_labels(tmp_path: Path, delimiter: str) -> None:
    file = tmp_path / "people.csv"
    people = [("name", "city", "diagnosis"), *[(f"Secret{i % 40}", "Ulm", "flu") for i in range(400)]]  # 41 different lines
    file.write_text("\n".join(delimiter.join(person) for person in people))
    with pytest.raises(AdviceError, match="401 of 401 lines have 3 fields") as refused:
        read_sample(file)
    assert "Secret" not in str(refused.value)
    file.write_text("\n".join(["home"] * 300 + ["Ulm, old town"] * 100))  # a label may hold a comma
    assert read_sample(file)[0].tolist() == [100, 300]


def test_labels_that_name_people_are_refused(tmp_path: Path) -> None:
    lines, table = tmp_path / "lines", tmp_path / "table.csv"
    names = [f"Secret {i // 2 if i < 5 else i}" for i in range(10)]  # 8 names of 10 people
    lines.write_text("\n".join(names))
    table.write_text("name,age\n" + "\n".join(f"{name},{i}" for i, name in enumerate(names)))
    for arguments in ((lines, None), (table, "name")):
        with pytest.raises(AdviceError, match="8 different labels of 10 people") as refused:
            read_sample(*arguments)
        assert "Secret" not in str(refused.value)
    lines.write_text("\n".join(names[:2] * 3 + names[4:6]))  # 3 names of 8 people
    assert read_sample(lines)[0].tolist() == [6, 1, 1]


def test_an_error_does_not_show_a_file_without_a_header(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("Secret,Ulm\nAnna,Bonn\n")
    with pytest.raises(DataError, match="none of its 2 columns is named city") as refused:
        read_sample(file, "city")
    assert "Secret" not in str(refused.value)


@pytest.mark.parametrize(("text", "column", "k", "said"), [
    ("secret\nsecret\n", None, None, "two different"), ("", None, None, "two different"),
    ("0\n77\n77\n", None, 10, r"\[0, 10\) for k = 10, got 2 larger"), ("a\nb\nc\n" * 2, None, 2, r"\[3, "),
    ("0\n999999999\n", None, None, r"\[0, 100000\), got 1 larger number;"), ("\udc80", None, None, "not a text"),
    ("1\nNaN\n", None, None, "two different"), ("a\nNULL\nNA\n", None, None, "two different"),
    ("secret\n1\n2\n10\n", None, None, "--column"), ("-1\n2\n", None, None, "integers"),
    ("1.5\n2\n", None, None, "integers"), ("1\n1234567890\n", None, None, "100000"),
])  # fmt: skip
def test_a_refused_sample_shows_no_value(tmp_path: Path, text: str, column: str | None, k: int | None, said: str) -> None:
    file = tmp_path / "sample"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(AdviceError, match=said) as refused:
        read_sample(file, column, k)
    assert not re.search("secret|77|78|999999999", str(refused.value).removeprefix(str(file)))
    with pytest.raises(AdviceError, match="cannot be read"):
        read_sample(tmp_path / "none")


def test_of_like_variances_the_advised_mechanism_has_the_smaller_weight(advices: list[Advice]) -> None:
    for advice in advices:
        first, own = advice.first, advice.candidate(advice.first.mechanism)
        like = [r for r in advice.ranking if r.best and (r.estimator, r.post) == (first.estimator, first.post)]
        for other in (advice.candidate(r.mechanism) for r in like):
            assert other.weight == advice.question.build(other.mechanism).outweighs()
            if 1 / 1.03 <= other.variance_ratio(own) <= 1:
                assert own.weight <= 1.25 * other.weight


def test_a_lighter_mechanism_replaces_an_equally_good_one() -> None:
    """k = 10, ε∞ = 2, ε₁ = 1: the variances at 0 of L-GRR and L-OLH differ by 1.7 %, the weights are 6.2 and 3.3."""
    question = Question(k=10, n=10_000, eps_inf=2.0)
    rows = [
        Ranked(mechanism=name, estimator=DEFAULT, post="none", error=error, standard_error=0.1, best=best)
        for name, error, best in (("L-GRR", 1.0, True), ("L-OLH", 1.01, True), ("L-BLH", 1.2, False))
    ]
    for shares, expected in ((np.zeros(10), "L-OLH"), (np.full(10, 0.1), "L-GRR")):  # the second variances differ by 7 %
        assert lightest_row(rows, rank_by_variance(question, [shares]), question).mechanism == expected


def test_the_survey_of_a_mechanism_builds_the_same_mechanism() -> None:
    """THE: its report loses less than the ε of the noise, which the survey has."""
    for losses in ({"eps": 2.0}, {"eps_inf": 2.0}):
        question = Question(k=5, n=100, **losses)  # type: ignore[arg-type]
        for name in question.names:
            m = question.build(name)
            survey = parse_survey(SURVEY | {"attribute": [document(m, "value", question.domain())]})
            assert survey.mechanisms[0][0].signature == m.signature
    assert mechanism("THE", 5, eps=2.0).eps_1 < 2
