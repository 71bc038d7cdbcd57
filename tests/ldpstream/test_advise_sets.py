"""Advice for questions with several answers: exact errors, the comparison with combinations, and surveys from samples."""

import csv
import math
import tomllib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from lab.bench.sets import _error, _listed, _privset
from ldpstream.advice import advice_tables
from ldpstream.advice.advise import SURVEY, Advice, advise, document, rank_by_variance
from ldpstream.advice.columns import Domain, Dropped, propose, read_columns
from ldpstream.advice.combinations import as_single, best_combinations, sum_variances
from ldpstream.advice.drawn_tables import drawn_table, tabulate
from ldpstream.advice.question import AdviceError, Question
from ldpstream.advice.runs import inversion_variances, shares_of
from ldpstream.advice.sample_file import read_sets
from ldpstream.advice.windows import EVERY_STEPS, equal_promises
from ldpstream.agents.tally import Record, tally
from ldpstream.cli import app
from ldpstream.device import Device
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.forecast import INTERVAL, forecast
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.sets import members, set_codes
from ldpstream.surveys import load_survey, parse_survey

SIGMAS = 5.0  # a normal variable differs from its mean by more than this many standard deviations with probability 6e-7


def even_people(n: int, m: int) -> IntArray:
    """Codes of people: every number of values from 0 to m is equally frequent, and so are all sets of this size."""
    ways = math.lcm(*(math.comb(n, size) for size in range(m + 1)))
    codes = set_codes(n, m)
    return np.repeat(codes, [ways // math.comb(n, int(size)) for size in np.bitwise_count(codes)])


@pytest.mark.parametrize("memoized", [False, True])
def test_the_exact_error_is_the_forecast_of_check(memoized: bool) -> None:
    """The forecast has people drawn at random, the adviser's error is that of the people who report."""
    losses = {"eps_inf": 4.0, "eps_1": 2.0} if memoized else {"eps": 2.0}
    question = Question(k=6, n=4000, choices=2, **losses)  # type: ignore[arg-type]
    (name,) = question.names
    share = 2 / 8  # of the forecast
    [found] = rank_by_variance(question, [np.full(6, share)])
    survey = parse_survey(SURVEY | {"attribute": [document(question.build(name), "apps", question.domain())]})
    [row] = forecast(survey, 4000)
    assert row.share == share
    assert INTERVAL * math.sqrt(found.deviation**2 + share * (1 - share) / 4000) == pytest.approx(row.spans["step"].half_width)


def test_the_exact_error_is_that_of_simulated_reports() -> None:
    """The false-alarm rate is 6e-7 for each of two mechanisms; a wrong ε must be noticed."""
    people = np.repeat(even_people(4, 2), 10)
    for memoized in (False, True):
        question = Question(k=4, n=people.size, choices=2, **({"eps_inf": 3.0} if memoized else {"eps": 1.5}))  # type: ignore[arg-type]
        truth, m, rng = shares_of(people, question), question.build(question.names[0]), np.random.default_rng(3)
        runs = [2 * matrix_inversion(m, tabulate(m, people, rng)).frequencies[:4] - truth for _ in range(600)]
        errors = np.mean(np.array(runs) ** 2, axis=1)
        distance = (errors.mean() - inversion_variances(m, truth, people.size).mean()) / (errors.std() / math.sqrt(600))
        wrong = replaced(question, 0.8).build(m.name)
        too_far = (errors.mean() - inversion_variances(wrong, truth, people.size).mean()) / (errors.std() / math.sqrt(600))
        assert abs(distance) < SIGMAS < abs(too_far)


def replaced(question: Question, factor: float) -> Question:
    losses = {key: value and value * factor for key in ("eps", "eps_inf") if (value := getattr(question, key)) is not None}
    return msgspec.structs.replace(question, **losses)


@pytest.mark.parametrize("name", ["GRR", "SS", "OUE", "OLH"])
def test_the_error_of_a_sum_of_shares_is_that_of_simulated_reports(name: str) -> None:
    """The false-alarm rate is 6e-7 for each mechanism; the errors of another ε must be noticed."""
    codes, n = set_codes(3, 3), 800
    counts = np.array([50, 150, 100, 200, 100, 50, 100, 50])
    having, rng = members(codes, 3, 3)[:, :3].T, np.random.default_rng(5)
    m = mechanism(name, codes.size, eps=1.0)
    sums = [having @ matrix_inversion(m, drawn_table(m, counts, rng)).frequencies for _ in range(2000)]
    errors = ((np.array(sums) - having @ counts / n) ** 2).mean(axis=1)
    spread = errors.std() / math.sqrt(2000)
    assert abs(errors.mean() - sum_variances(m, having, counts / n, n).mean()) < SIGMAS * spread
    other = mechanism(name, codes.size, eps=1.3)
    assert abs(errors.mean() - sum_variances(other, having, counts / n, n).mean()) > SIGMAS * spread


@pytest.mark.parametrize(
    ("n", "m", "eps", "combined"),
    [
        (2, 2, 1.0, True), (2, 2, 2.0, True), (2, 2, 4.0, True), (3, 3, 1.0, False), (3, 3, 2.0, True), (5, 2, 1.0, False),
        (5, 2, 2.0, False), (5, 2, 4.0, True), (5, 5, 1.0, False), (5, 5, 2.0, False), (5, 5, 4.0, True),
        (10, 3, 1.0, False), (10, 3, 4.0, False),
    ],
)  # fmt: skip
def test_the_advised_question_has_the_least_exact_error(n: int, m: int, eps: float, combined: bool) -> None:
    """`lab.bench.sets` has the variances of PS-GRR and of GRR on all sets from formulas of its own."""
    people = even_people(n, m)
    question = Question(k=n, n=10_000, eps=eps, choices=m)
    [own] = rank_by_variance(question, [shares_of(people, question)])
    best = best_combinations(question, [people], None)
    assert best is not None
    assert (best.deviation < own.deviation) == combined
    padded, listed = _privset(n, m, eps, 1, 1), _error(_listed(n, m, eps)) ** 2
    assert padded is not None
    assert own.deviation == pytest.approx(_error(padded))
    advised = min(own.deviation, best.deviation) ** 2
    assert advised <= min(own.deviation**2, listed) * (1 + 1e-9)
    single = as_single(question)
    for name in single.names:
        errors = sum_variances(single.build(name), *having_and_shares(people, n, m), 10_000)
        assert advised <= errors.mean() * (1 + 1e-9)
        if name == "GRR":
            assert errors.mean() == pytest.approx(listed)


def having_and_shares(people: IntArray, n: int, m: int) -> tuple[np.ndarray, FloatArray]:
    codes = set_codes(n, m)
    return members(codes, n, m)[:, :n].T, np.array([np.mean(people == code) for code in codes])


@pytest.fixture(scope="module")
def advices() -> list[Advice]:
    people = even_people(2, 2)
    return [
        advise(Question(k=2, n=2000, eps_inf=4.0, choices=2), people, labels=["mail", "chat"], repeats=10, processes=1),
        advise(Question(k=6, n=2000, eps_inf=2.0, choices=3), repeats=10, processes=1),
        advise(Question(k=20, n=2000, eps=2.0, choices=4), repeats=10, processes=1),
    ]


def test_the_stanza_is_a_survey_with_the_better_question(advices: list[Advice]) -> None:
    few, six, many = advices
    [asked] = parse_survey(SURVEY | tomllib.loads(advice_tables.stanza(few, "apps", ["mail", "chat"]))).attributes
    assert (asked.values, asked.choices) == (("none of these", "mail", "chat", "mail + chat"), None)
    assert few.combined is not None
    for advice, said in ((six, "Use choices = 3: asking for one of the 42"), (many, "there are too many combinations")):
        survey = parse_survey(SURVEY | tomllib.loads(advice_tables.stanza(advice)))
        assert survey.attributes[0].choices == advice.question.choices
        assert survey.mechanisms[0][0].signature == advice.candidate(advice.first.mechanism).signature
        assert said in advice_tables.reasons(advice)[1]
    ratio = (few.combined.deviation / few.candidate("L-PS-GRR").deviation) ** 2
    assert f"needs {ratio:.2g} times the people of choices = 2" in advice_tables.reasons(few)[1]
    assert few.combined.mechanism in advice_tables.reasons(few)[1]
    assert [a.first.mechanism for a in advices] == ["L-PS-GRR", "L-PS-GRR", "PS-GRR"]
    for advice in advices:
        raw = next(r for r in advice.ranking if (r.estimator, r.post) == ("mi", "none"))
        assert raw.error == pytest.approx(advice.candidate(raw.mechanism).deviation ** 2, rel=0.02)


def test_equal_promises_are_of_shares_of_people() -> None:
    m, shares = mechanism("L-PS-GRR", 5, eps_inf=4.0, eps_1=2.0, choices=2), np.array([0.7, 0.4, 0.1, 0.0, 0.0])
    row = equal_promises(m, 960, 1, [shares])[0]
    once = mechanism("PS-GRR", 5, eps=2.0, choices=2).spaced(EVERY_STEPS)
    assert row.mechanism == "PS-GRR"
    rows = (
        (row.memoized_step, m, 960, 1),
        (row.memoized_window, m, 960, EVERY_STEPS),
        (row.spaced_step, once, 960 // EVERY_STEPS, 1),
        (row.spaced_window, once, 960, 1),
    )
    for found, of, n, reports in rows:
        expected = [of.variance(f / 2, n, reports) for f in shares]
        assert found == pytest.approx(2 * math.sqrt(np.mean(expected)))


def test_a_budget_sets_eps_1_for_sets() -> None:
    question = Question(k=6, n=2000, eps_inf=4.0, budget=2.0, horizon=30, choices=3)
    [found] = rank_by_variance(question, [np.full(6, 0.2)])
    assert found.eps_t == pytest.approx(2.0)
    assert found.eps_1 < 2.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--k 5 --choices 6", "choices must be an integer in [1, 5], got 6"),
        ("--k 5 --choices 0", "choices must be an integer in [1, 5], got 0"),
        ("--k 31 --choices 2", "k with choices must be an integer in [2, 30], got 31"),
        ("--k 5 --choices 2 --metric kl", "metric with choices must be one of mse, mae, l1, l2, got 'kl'"),
        ("--sample sets.txt --choices 1", "sets.txt: 40 people have more than choices = 1 values"),
        ("--sample twice.txt --choices 3", "twice.txt: 2 people have a value twice"),
        ("--sample sets.txt --choices 2 --k 2", "k must be in [3, 30] with choices, since the sample has 3 values, got 2"),
        ("--sample few.txt --choices 2", "few.txt: 4 different values of 2 people"),
        ("--sample one.txt --choices any", "one.txt: needs at least two different values, got 1"),
        ("--sample none.txt --choices any", "none.txt: cannot be read"),
        ("--sample many.txt --choices any", "many.txt: 31 different values, more than 30 of several answers"),
        ("--sample bad.txt --choices any", "attribute[0].values[0]: must not contain control characters"),
    ],
)
def test_bad_questions_get_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sets.txt").write_text("chat;mail\nmaps\n;\n" * 40)
    Path("twice.txt").write_text("chat;mail\nmaps\n;\n" * 40 + "chat;chat\n" * 2)
    Path("few.txt").write_text("a;b\nc;8x7secret\n")
    Path("one.txt").write_text("chat\n;\n" * 9)
    Path("many.txt").write_text("".join(f"v{i};v{i + 1}\n" * 3 for i in range(30)))
    Path("bad.txt").write_text("chat;8x7\asecret\n" * 9)
    done = CliRunner().invoke(app, ["advise", "--n", "100", "--eps", "1", *options.split()])
    assert isinstance(done.exception, AdviceError)
    assert said in str(done.exception)
    assert "secret" not in str(done.exception)


def test_choices_must_be_a_number_or_any() -> None:
    done = CliRunner().invoke(app, ["advise", "--n", "100", "--eps", "1", "--k", "5", "--choices", "-1"])
    assert done.exit_code == 2
    assert "must be a whole number" in done.output


def test_a_sample_of_sets_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text('who,apps\n1,"maps; chat"\n2,;\n3,\n4,mail\n5,mail\n6,mail;chat\n7,NA\n8,chat\n9,chat\n')
    codes, labels = read_sets(path, "apps", None, 2)
    assert labels == ["chat", "mail", "maps"]
    assert sorted(codes.tolist()) == [0, 0b001, 0b001, 0b010, 0b010, 0b011, 0b101]


# ---- init


def table(folder: Path, cells: list[str], name: str = "apps") -> Path:
    path = folder / "people.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name, "mode"])
        writer.writerows([cell, ("car", "bus")[i % 2]] for i, cell in enumerate(cells))
    return path


COMMON = ["chat;mail", "mail; maps ;chat", ";", "maps"] * 50


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (COMMON, {"values": ["chat", "mail", "maps"], "choices": 3}),
        ([*COMMON, *["8x7secret;chat"] * 9], {"values": ["chat", "mail", "maps", "other"], "choices": 3}),
        ([*COMMON[:180], *["a;b;c;d"] * 9], {"values": ["chat", "mail", "maps", "other"], "choices": 3}),
        (["chat", "mail"] * 50 + ["chat;mail"] * 9, {"values": ["chat", "mail", "other"]}),
        (["a;", "a"] * 50, None),
        ([";".join(f"v{(i + j) % 40}" for j in range(9)) for i in range(400)], None),
        (["8x7a;8x7b"] * 9 + [";"] * 50, None),
    ],
    ids=["sets", "a rare value", "rare large sets", "few sets", "one value", "many values", "few people"],
)  # fmt: skip
def test_a_column_with_several_answers_is_recognised(tmp_path: Path, cells: list[str], expected: object) -> None:
    _, (column, _) = read_columns(table(tmp_path, cells))
    found = propose(column, least=10)
    if expected is None:
        assert isinstance(found, Dropped)
        assert "8x7" not in str(found)
    else:
        assert isinstance(found, Domain)
        assert found.keys == expected
        assert "8x7secret" not in str(found)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (COMMON, "3 values, each of at least 10 people of the sample; a device makes no report of any other text"),
        (
            ["a;b", "b;c"] * 50,
            "3 values, each of at least 10 people of the sample; a device makes no report of any other text, "
            "nor of more than 2 answers",
        ),
        (
            ["a;b", "b"] * 50 + ["8x7secret"],
            '2 values, each of at least 10 people of the sample; "other" stands for all others; '
            "a device makes no report of more than 2 answers",
        ),
    ],
    ids=["any number", "at most two", "other"],
)
def test_the_words_count_the_listed_values(tmp_path: Path, cells: list[str], said: str) -> None:
    _, (column, _) = read_columns(table(tmp_path, cells))
    found = propose(column, least=10)
    assert isinstance(found, Domain)
    assert found.words == said


def test_the_user_may_name_a_column_with_several_answers(tmp_path: Path) -> None:
    path = table(tmp_path, ["chat", "mail"] * 90 + ["chat;mail"] * 9, name="My apps")
    out = tmp_path / "s.toml"
    done = CliRunner().invoke(app, ["init", "--from", str(path), "-o", str(out), "--sets", "My apps"])
    assert done.exit_code == 0, done.output
    assert load_survey(out).attributes[0].choices == 1
    again = CliRunner().invoke(app, ["init", "--from", str(path), "-o", str(tmp_path / "t.toml"), "--sets", "apps"])
    assert isinstance(again.exception, AdviceError)
    assert str(again.exception).endswith("got 'apps'")
    assert not (tmp_path / "t.toml").exists()


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("init")
    data, out = table(folder, COMMON), folder / "s.toml"
    done = CliRunner().invoke(app, ["init", "--from", str(data), "-o", str(out), "--eps-inf", "16"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "m/(n + m)" in done.output
    assert "Ask for one of the 8 combinations instead" in out.read_text()  # ε is large
    return data, out


def test_a_proposed_survey_runs_from_device_to_estimate(proposed: tuple[Path, Path], tmp_path: Path) -> None:
    """Each share differs from the truth by more than 5 standard errors with probability 6e-7."""
    _, out = proposed
    survey = load_survey(out)
    apps = survey.attributes[0]
    assert (apps.values, apps.choices, apps.levels[0].mechanism) == (("chat", "mail", "maps"), 3, "L-PS-GRR")
    answers = [[], ["chat", "mail"], ["maps"], ["maps", "mail", "chat"]]
    records, sent = [], []
    for i in range(240):
        device = Device(survey, tmp_path / f"{i}.device")
        envelope = device.report("apps", answers[i % 4], 0)
        if envelope is not None:  # under smp, half of the devices answer the other attribute
            records.append(Record(i, survey.opens_ms(0), envelope))
            sent.append(answers[i % 4])
    found = tally(survey, records)
    assert not found.rejected
    [counted] = found.counts.values()
    assert counted.n == len(sent) > 50
    estimate = matrix_inversion(survey.mechanisms[0][0], counted).times(3)
    truth = np.array([np.mean([value in each for each in sent]) for value in ("chat", "mail", "maps")])
    assert (np.abs(estimate.frequencies[:3] - truth) < SIGMAS * estimate.standard_errors[:3]).all()
    assert (estimate.standard_errors[:3] < 0.15).all()


def test_a_proposed_survey_passes_check_and_demo(proposed: tuple[Path, Path]) -> None:
    data, out = proposed
    demo = ["demo", "--survey", str(out), "--data", str(data), "--steps", "1"]
    for command in (["check", str(out)], ["check", str(out), "--people", "200"], demo):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
