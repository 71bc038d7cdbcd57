"""Compares the numbers in the pages about privacy with the project's own functions."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.guessing import percent, percent_up
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing
from ldpstream.mechanisms.wording import up
from ldpstream.promises.crowds import DELTA, SecondPromise, least_crowd
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.false_reports import weight
from ldpstream.promises.second_promise import second_promise
from ldpstream.promises.statements import DELETIONS, SHARING
from ldpstream.surveys import load_survey
from ldpstream.surveys.survey import KEPT_MS, KEPT_STEPS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = ("howto/promise.md", "howto/observers.md", "explained/privacy.md")
TEXT = "\n".join((ROOT / "docs" / page).read_text() for page in PAGES)
PLAIN = " ".join(TEXT.split())
COMMUTE = load_survey(ROOT / "surveys" / "samples" / "commute.toml")
(DISTANCE,), (MODE,) = COMMUTE.mechanisms
COMMON = (0.431, 0.252, 0.132, 0.067, 0.061, 0.057)


def of_life(people: int) -> list[SecondPromise]:
    return [row for row in second_promise(COMMUTE, people) if row.span == "life"]


def cells(text: str, first: str) -> list[str]:
    """Returns the cells of the only table row that begins with this cell, without the first cell."""
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in row.strip("|").split(" | ")[1:]]


def short(chance: guessing.Chance) -> str:
    return str(chance).replace("at most", "≤")


@pytest.mark.parametrize("eps", [0.5, 1, 2, 4])
def test_the_chances_of_an_eps(eps: float) -> None:
    odds, *chances = cells(TEXT, f"ε = {eps}")
    assert odds == up(math.exp(eps), 3)
    assert chances == [percent_up(guessing.bound(eps, k)) for k in (2, 6, 100)]
    assert cells(TEXT, "no report")[1:] == [percent(guessing.bound(0, k)) for k in (2, 6, 100)]


def test_k_of_2_holds_for_somebody_unsure_between_two_of_many_answers() -> None:
    """The posterior of two answers with prior 1/2 each, after the report that supports one of them most."""
    m = mechanism("GRR", k=100, eps=1.0)
    assert m.p / (m.p + m.q) == pytest.approx(guessing.bound(1.0, 2))
    sure = 0.9 * m.p / (0.9 * m.p + 0.1 * m.q)
    assert f"With ε = 1, somebody who was 90 % sure of an answer can become at most {percent(sure)} sure." in PLAIN


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_the_chances_after_reports_of_the_commute_survey(t: int) -> None:
    chances = [DISTANCE.guess(t), DISTANCE.claims.guess_any_values(t), MODE.claims.guess_any_values(t), MODE.guess()]
    assert cells(TEXT, f"{t} report{'s' if t > 1 else ''}") == [short(chance) for chance in chances]
    assert cells(TEXT, "0 reports") == [percent(1 / k) for k in [DISTANCE.k] * 2 + [MODE.k] * 2]
    assert MODE.guess(t) == MODE.claims.guess_any_values(t)
    assert f"after eight reports of `mode`, up to {percent(guessing.bound(MODE.eps_t(8), MODE.k))}." in PLAIN


def test_the_chances_of_the_whole_device() -> None:
    """The reports of the other attribute tell less than those of a value's own attribute."""
    assert device_chance(COMMUTE, 0, DISTANCE, math.inf) == DISTANCE.guess(math.inf)
    assert device_chance(COMMUTE, 1, MODE, math.inf) == MODE.claims.guess_any_values(MODE.lifetime_reports or 0)


@pytest.mark.parametrize(("eps", "values", "label"), [(0.5, 1, "0.5"), (1, 1, "1"), (1, 5, "1"), (2, 1, "2")])
def test_the_weights_of_a_false_report(eps: float, values: int, label: str) -> None:
    of_set = "one" if values == 1 else "five together"
    columns = [("GRR", 4), ("GRR", 10), ("GRR", 100), ("OUE", 100), ("OLH", 100)]
    weights = [mechanism(name, k, eps=eps).outweighs(values) if values <= k else None for name, k in columns]
    shown = ["–" if w is None else f"{w:.0f}" if w > 100 else f"{w:.1f}" for w in weights]
    assert f"| {label} | {of_set} | {' | '.join(shown)} |" in TEXT


def test_the_weight_of_a_liar_in_the_commute_survey() -> None:
    found = weight(COMMUTE, MODE)
    shown = f"{found.one_value:.1f} honest people in a step of `mode`, {found.in_window:.3g} in a window"
    assert f"{shown} and {found.in_year:.1f} in a year, in which" in PLAIN
    bound = math.ceil(10 * (mechanism("OLH", 100, eps=1.0).outweighs() + 1)) / 10
    assert f"at most {bound} percentage points" in PLAIN


def test_the_numbers_of_hash_functions() -> None:
    few, many = ([(k, mechanism("L-OLH", k=k, eps_inf=e, eps_1=e / 2)) for k in (6, 100, 10_000)] for e in (2.0, 4.0))
    for found, g in ((few, 4), (many, 8)):
        assert all(isinstance(m, LongitudinalHashing) and m.g == g for _, m in found)
    sizes = [f"{m.pool.size:,}".replace(",", " ") for _, m in (*few, *many) if isinstance(m, LongitudinalHashing)]
    assert "S is {} for 6 values, {} for 100 values and {} for 10 000 values".format(*sizes[:3]) in PLAIN
    assert "S is {}, {} and {}.".format(*sizes[3:]) in PLAIN


def test_the_retention() -> None:
    assert f"at least {KEPT_MS // 86_400_000} days, longer for long windows;" in PLAIN
    assert f"estimates of the last `retention_steps` steps ({KEPT_STEPS} by default)" in PLAIN


def test_the_chances_where_one_answer_is_common() -> None:
    """For one report, the sum over all symbols of the largest share times the chance of the symbol."""
    shares = np.array(COMMON)
    assert shares.sum() == pytest.approx(1)
    listed = ", ".join(f"{100 * share:.1f}" for share in COMMON[:-1])
    assert f"Six answers have the shares {listed} and {100 * COMMON[-1]:.1f} %" in PLAIN
    assert cells(TEXT, "none") == [percent(1 / 6), percent(max(COMMON))]
    for name, t in (("one, L-GRR, `eps_1` = 1", 1), ("any number, `eps_inf` = 2", math.inf)):
        assert cells(TEXT, name) == [percent(DISTANCE.guess(t)), short(DISTANCE.claims.guess_known(shares, t))]
    exact = (shares[:, np.newaxis] * DISTANCE.channel()).max(axis=0).sum()
    p = DISTANCE.guess()
    assert f"shows the true answer ({p:.3f} for six values and ε = 1)" in PLAIN
    assert f"one report adds about {100 * (exact - 0.431):.0f} right guesses of 100" in PLAIN
    assert f"With π = 43.1 % and ε = 1, this is {percent_up(0.431 * math.e / (0.431 * math.e + 0.569))}" in PLAIN


@pytest.mark.parametrize("people", [20_000, 1_000_000])
def test_the_second_promise_in_short(people: int) -> None:
    rows = of_life(people)
    assert cells(TEXT, f"second promise: {people:,} people") == [f"≤ {percent_up(row.guess_in_crowd)}" for row in rows]
    first = [str(guessing.Chance(row.guess_everybody, exact=row.guess_everybody_exact)) for row in rows]
    assert cells(TEXT, "first promise: against everybody") == first


def test_the_hint_of_the_other_histograms() -> None:
    distance, mode = of_life(20_000)
    alone = DISTANCE.claims.shuffled(math.inf, least_crowd(20_000, 2, DELTA / 2), DELTA, DELTA / 2).guess(DISTANCE.k)
    assert f"at most {percent_up(alone)} of cases. If" in PLAIN
    assert f"the histograms of `mode` tell more: at most {percent_up(distance.guess_in_crowd)}." in PLAIN
    assert f"{20_000 // 16:,} report `mode` at the same steps on average" in PLAIN
    assert distance.guess_in_crowd == pytest.approx(4 / 6 * mode.guess_in_crowd)


def test_no_document_promises_too_much() -> None:
    words = " ".join(text.lower() for text in (README, *(path.read_text() for path in (ROOT / "docs").rglob("*.md"))))
    assert not any(claim in words for claim in ("never sees anybody", "nobody's own answer", "nobody but the device"))


def test_the_chances_after_deletions() -> None:
    (table,) = re.findall(r"(?m)^\| deletions \|(.*)\n.*\n\| memos in all \|(.*)\n\| right \|(.*)$", TEXT)
    deletions, memos, right = ([cell.strip() for cell in row.strip(" |").split("|")] for row in table)
    exact = {n: str(mechanism("GRR", 6, eps=2.0).guess(n)) for n in (1, 2, 3, 5, 10)}  # the memos of GRR are independent
    assert [int(n) for n in memos] == [int(n) + 1 for n in deletions] == list(exact)
    assert right == list(exact.values())
    assert [str(DISTANCE.claims.guess_memos(n)) for n in exact] == right
    assert DELETIONS == (2, 4, 9)
    assert f"{exact[1]} become {DISTANCE.claims.guess_memos(SHARING)}. Ask such a question" in PLAIN
