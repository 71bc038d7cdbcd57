"""The adviser's numbers are exact, the advised mechanism is not dominated, and the printed attribute is valid in a survey."""

import itertools
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ldpstream.commands import cli
from ldpstream.estimators.smooth.numbers import mean_variance
from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.registry import AUTO_CANDIDATES, choose
from ldpstream.output.advice_tables import option_table, reasons, stanza
from ldpstream.planning.advise import SURVEY, WINDOW, AdviceError, Question, advise
from ldpstream.planning.forecast import INTERVAL, forecast
from ldpstream.surveys import parse_survey

PEOPLE = 5000
QUESTIONS = {
    "one-time": Question(k=6, people=PEOPLE, eps=1.0),
    "spaced": Question(k=6, people=PEOPLE, eps=1.0, every_steps=24, steps=100),
    "memoized": Question(k=100, people=PEOPLE, eps_inf=2.0),
    "sets": Question(k=6, people=PEOPLE, eps=2.0, choices=2, every_steps=7),
    "memoized sets": Question(k=6, people=PEOPLE, eps_inf=4.0, choices=3),
    "numbers": Question(k=20, people=PEOPLE, eps=1.0, numbers=True, every_steps=3),
    "memoized numbers": Question(k=20, people=PEOPLE, eps_inf=4.0, numbers=True),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_errors_are_the_forecast_of_check(question: Question) -> None:
    """`ldpstream.planning.forecast` has formulas of its own; its tests compare them with simulated reports."""
    for option in advise(question).options:
        keys = {"window_steps": question.window, "attribute": [question.attribute(option.mechanism)]}
        survey = parse_survey(SURVEY | keys)
        if question.numbers:
            ((m,),), middles = survey.mechanisms, (np.arange(question.k) + 0.5) / question.k
            spread = mean_variance(m, np.full(question.k, 1 / question.k), middles, m.reports_in(question.window))
            every = max(1.0, m.reports_in(question.window) * m.every_steps / question.window)
            assert option.errors["window"] == pytest.approx(math.sqrt(every * spread / PEOPLE))
            continue
        [row] = forecast(survey, PEOPLE)
        halves = [row.spans[span].half_width for span in ("step", "window")]
        assert [INTERVAL * option.errors[span] for span in ("step", "window")] == pytest.approx(halves)
        assert question.choices or row.share == 1 / question.k


def test_chances_are_those_of_the_best_guesser_of_all_reports() -> None:
    """Enumerates the reports: one, and the two reports of 48 steps."""
    question = Question(k=3, people=PEOPLE, eps=1.0, every_steps=24, steps=48)
    channel = mechanism("GRR", 3, eps=1.0).channel()
    pairs = [channel[:, a] * channel[:, b] for a, b in itertools.product(range(3), repeat=2)]
    [option] = [one for one in advise(question).options if one.mechanism == "GRR"]
    assert option.guess_one.chance == pytest.approx(channel.max(axis=0).sum() / 3)
    assert option.guess_all.chance == pytest.approx(sum(pair.max() for pair in pairs) / 3)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_dominated_mechanism_is_nowhere_better(question: Question) -> None:
    advice = advise(question)
    of = {option.mechanism: option for option in advice.options}
    for option in advice.options:
        dominating = [
            name
            for name, other in of.items()
            if (differences := np.array(other.costs) - option.costs).max() <= 1e-9 and differences.min() < -1e-9
        ]
        assert (option.dominated_by in dominating) if dominating else not option.dominated_by
    assert not of[advice.first.name].dominated_by
    assert advice.options[0].errors["window"] == min(option.errors["window"] for option in advice.options)


@pytest.mark.parametrize("k", [2, 4, 7, 50, 300])
def test_the_advice_is_the_automatic_choice(k: int) -> None:
    """`auto` compares the variances at a share of 0; here no two mechanisms are near the limits of its rule."""
    m = advise(Question(k=k, people=PEOPLE, eps_inf=2.0)).first
    assert m.signature == choose(k, eps_inf=2.0, eps_1=1.0, steps=WINDOW)[0].signature
    assert m.name in AUTO_CANDIDATES


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_stanza_is_a_survey_with_the_advised_mechanism(question: Question) -> None:
    advice = advise(question)
    survey = parse_survey(SURVEY | tomllib.loads(stanza(advice)))
    assert survey.mechanisms[0][0].signature == advice.first.signature
    assert (survey.attributes[0].k, survey.attributes[0].choices) == (advice.first.k, question.choices)
    assert (survey.attributes[0].levels[0].every_steps or 1) == question.every_steps
    assert advice.first.name in reasons(advice)[0]


@pytest.mark.parametrize("keys", [{"eps": 1e-9}, {"eps": 700.0}, {"eps_inf": 700.0, "eps_1": 699.0}])
def test_extreme_epsilons_are_answered(keys: dict[str, Any]) -> None:
    for k, people in ((2, 2), (100_000, 10_000_000)):
        advice = advise(Question(k=k, people=people, **keys))
        assert all(error >= 0 for option in advice.options for error in option.errors.values())
        assert {*(o.mechanism for o in advice.options), *advice.refused} == set(advice.question.names)
    numbers = advise(Question(k=2000, people=9, eps=1.0, numbers=True))
    assert numbers.refused == {"SW": "k must be an integer in [2, 1024], got 2000"}
    assert reasons(numbers)[-1] == "SW is not possible: k must be an integer in [2, 1024], got 2000."


@pytest.mark.parametrize(("given", "named"), [
    ({"k": 1}, "k"), ({"people": 1}, "people"), ({"eps": None}, "eps_inf"), ({"eps_inf": 1.0}, "exactly one"),
    ({"eps": -1.0}, "eps"), ({"eps_1": 0.5}, "^eps_1 needs eps_inf"), ({"steps": 0}, "steps"),
    ({"eps": math.nan}, "eps"), ({"eps": None, "eps_inf": 2.0, "eps_1": 2.0}, "eps_1"), ({"every_steps": 0}, "every_steps"),
    ({"eps": None, "eps_inf": 800.0}, "eps_inf"),
    ({"choices": 6}, "^choices must be an integer in"), ({"choices": 0}, "^choices must be an integer in"),
    ({"eps": None, "eps_inf": 2.0, "every_steps": 2}, "^every_steps needs eps"),
    ({"k": 31, "choices": 2}, "^k must be an integer in"),
    ({"choices": 2, "numbers": True}, "not both"),
    ({"eps": None, "eps_inf": 700.0, "eps_1": 699.0, "k": 30, "choices": 30}, "no mechanism is possible"),
])  # fmt: skip
def test_a_bad_question_gets_one_clear_error(given: dict[str, Any], named: str) -> None:
    keys = {"k": 5, "people": 100, "eps": 1.0, **given}
    with pytest.raises(AdviceError, match=named):
        advise(Question(**keys))


def test_the_command_prints_the_table_and_the_document(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    asked = ["advise", "--k", "100", "--people", "20000", "--eps-inf", "2", "--json", str(out)]
    done = CliRunner().invoke(cli.app, asked, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    assert found["survey"] in done.output
    assert "│ L-SS*     │   1.34 │ 0.644 │ 0.599 │    1.9 % │ 4.2 % │   3.13 │    13 │" in done.output
    assert "dominated, that is, no better in any column: L-OSUE by L-SS, L-OUE by L-SS." in " ".join(done.output.split())
    advised = next(row for row in found["mechanisms"] if row["mechanism"] == found["advised"] == "L-SS")
    m = mechanism("L-SS", 100, eps_inf=2.0, eps_1=1.0)
    assert advised == {
        "mechanism": "L-SS", "eps_1": m.eps_1, "report_bytes": 13, "weight": m.outweighs(), "dominated_by": None,
        "errors": {
            name: pytest.approx(m.variance(0.01, 20_000, t) ** 0.5) for name, t in (("step", 1), ("window", 24), ("steps", 365))
        },
        "guess_one": {"chance": float(m.guess()), "exact": m.guess().exact, "text": str(m.guess())},
        "guess_all": {"chance": float(m.guess(365)), "exact": m.guess(365).exact, "text": str(m.guess(365))},
    }  # fmt: skip


def test_the_table_of_the_document_is_the_commands() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "choose.md").read_text()
    rows = re.findall(r"(?m)^\| ([A-Z-]+\*?)(?: \(dominated by (.+)\))? \|(.+)\|$", text[text.index("| mechanism | error") :])
    shown = option_table(advise(Question(k=100, people=20_000, eps_inf=2.0)))
    printed = zip(*(column.cells for column in shown.columns), strict=True)
    assert [[name, *cells.split("|")] for name, _, cells in rows[:8]] == [
        [row[0], *(f" {cell} " for cell in row[1:])] for row in printed
    ]
    assert {by for _, by, _ in rows[:8]} == {"", "L-SS"}
