"""The bounds in a crowd against the distributions of all histograms, enumerated from the coins of the devices.

The enumeration shares no code with `mechanisms`: a device reports its value with odds e^ε against each other value.
"""

import itertools
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache

import pytest

from ldpstream.mechanisms import mechanism
from ldpstream.promises.crowds import DELTA, Span, in_crowds, least_crowd
from ldpstream.surveys import Survey, parse_survey

N = 3  # people in each crowd
Row = Sequence[float]
Law = dict[tuple[int, ...], float]
HEAD = 'name = "t"\nstart = 2026-01-05T00:00:00Z\nstep_seconds = 86400\nwindow_steps = 8\nlateness_steps = 2\n'


def survey_of(*levels: tuple[int, str], collection: str, steps: int = 1) -> Survey:
    text = f'{HEAD}ends = {steps}\nrelay = "required"\ncrowd = {N}\ncollection = "{collection}"\n'
    for i, (k, level) in enumerate(levels):
        text += f'[[attribute]]\nname = "a{i}"\nsize = {k}\n[[attribute.level]]\nname = "l"\n{level}\n'
    return parse_survey(tomllib.loads(text), "a test")


def rows(k: int, eps: float) -> list[Row]:
    """The probabilities of each report, for each value."""
    odds = math.exp(eps)
    return [[(odds if y == v else 1) / (odds + k - 1) for y in range(k)] for v in range(k)]


def histogram(reports: Iterable[Row]) -> Law:
    """The law of the numbers of reports of each value; each report has the probabilities of one row."""
    law: Law = {(): 1.0}
    for row in reports:
        after = Counter[tuple[int, ...]]()
        for counts, chance in law.items():
            for y, p in enumerate(row):
                before = counts or (0,) * len(row)
                after[(*before[:y], before[y] + 1, *before[y + 1 :])] += chance * p  # type: ignore[assignment]  # a Counter of floats
        law = dict(after)
    return law


def together(*laws: Law) -> Law:
    """The law of independent observations."""
    return {
        tuple(itertools.chain.from_iterable(seen)): math.prod(law[x] for law, x in zip(laws, seen, strict=True))
        for seen in itertools.product(*laws)
    }


def mixed(*laws: Law) -> Law:
    outcomes = set(itertools.chain(*laws))
    return {x: sum(law.get(x, 0.0) for law in laws) / len(laws) for x in outcomes}


def chance(laws: Sequence[Law]) -> float:
    """The chance of the best guess of an equally likely value: the law of what is seen for each value."""
    outcomes = set(itertools.chain(*laws))
    return sum(max(law.get(x, 0.0) for law in laws) for x in outcomes) / len(laws)


def crowds_of(k: int, tables: int = 1) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All values of the other people, in each table."""
    return itertools.product(itertools.combinations_with_replacement(range(k), N - 1), repeat=tables)


def laws_of(k: int, eps: float, tables: int = 1) -> Iterator[list[Law]]:
    """For all values of the other people: the law of the tables, for each value of the person."""
    matrix = rows(k, eps)
    for others in crowds_of(k, tables):
        yield [together(*(histogram([matrix[v], *(matrix[x] for x in table)]) for table in others)) for v in range(k)]


def guesses(survey: Survey, span: Span = "life") -> list[float]:
    return [row.guess_in_crowd for row in in_crowds(survey, span, None)]


def from_own_reports(survey: Survey, attribute: int) -> float:
    """The former formula: the bound from the attribute's own reports alone."""
    m = survey.mechanisms[attribute][0]
    loss = m.claims.shuffled(math.inf if m.memoized else survey.n_steps or 1, N, DELTA)
    return min(loss.guess(m.k), m.guess(math.inf if m.memoized else survey.n_steps or 1))


FRESH = [(3, 'mechanism = "GRR"\neps = {}'), (2, 'mechanism = "GRR"\neps = {}')]
MEMOS = [(k, f'mechanism = "L-GRR"\neps_inf = {{}}\neps_1 = {0.1}') for k, _ in FRESH]


@pytest.mark.parametrize("collection", ["smp", "rs+fd"])
@pytest.mark.parametrize("eps", [(0.2, 2.0), (2.0, 0.2), (1.0, 1.0)])
@pytest.mark.parametrize("levels", [FRESH, MEMOS, [FRESH[0], MEMOS[1]], [MEMOS[0], FRESH[1]]])
def test_no_other_attribute_gives_a_better_guess_than_the_bound(
    collection: str, eps: tuple[float, float], levels: list[tuple[int, str]]
) -> None:
    """All functions of the guessed value, all values of the others. Any number of reports of memos reveal at most the memos."""
    steps = 2 if collection == "smp" else 1
    survey = survey_of(
        *((k, text.format(e)) for (k, text), e in zip(levels, eps, strict=True)), collection=collection, steps=steps
    )
    exact = []
    for guessed, (k, _) in enumerate(levels):
        for answered, (size, text) in enumerate(levels):  # the attribute that the device drew
            functions = [range(k)] if guessed == answered else list(itertools.product(range(size), repeat=k))
            tables = steps if "L-" not in text else 1
            found = max(chance([laws[x] for x in f]) for laws in laws_of(size, eps[answered], tables) for f in functions)
            assert found <= guesses(survey)[guessed]
            exact.append(found)
    if eps == (0.2, 2.0):
        assert exact[1] > from_own_reports(survey, 0)  # control: the other attribute reveals more than the own one


def test_an_observer_who_does_not_know_the_true_answer_guesses_no_better() -> None:
    """RS+FD: each device sends both answers, one of them fake. The observer sees both tables."""
    survey, eps = (
        survey_of(*((k, text.format(e)) for (k, text), e in zip(FRESH, (0.2, 2.0), strict=True)), collection="rs+fd"),
        (0.2, 2.0),
    )
    a, b = rows(3, eps[0]), rows(2, eps[1])
    fake_a, fake_b = [sum(column) / 3 for column in zip(*a, strict=True)], [sum(column) / 2 for column in zip(*b, strict=True)]
    found = []
    for (of_a,), (of_b,) in itertools.product(crowds_of(3), crowds_of(2)):
        crowd_a, crowd_b = [a[x] for x in of_a], [b[x] for x in of_b]
        laws = [
            mixed(
                together(histogram([a[v], *crowd_a]), histogram([fake_b, *crowd_b])),
                together(histogram([fake_a, *crowd_a]), histogram([b[f], *crowd_b])),
            )
            for v, f in enumerate((0, 1, 1))
        ]
        found.append(chance(laws))
    assert from_own_reports(survey, 0) < max(found) <= guesses(survey)[0]


@pytest.mark.parametrize("eps", [(0.2, 2.0), (2.0, 0.2), (1.0, 1.0)])
@pytest.mark.parametrize("levels", [FRESH, MEMOS, [FRESH[0], MEMOS[1]]])
def test_all_attributes_together_give_no_better_guess_than_the_bound(
    eps: tuple[float, float], levels: list[tuple[int, str]]
) -> None:
    """SPL: each device answers both questions, each with half of its ε."""
    survey = survey_of(*((k, text.format(e)) for (k, text), e in zip(levels, eps, strict=True)), collection="spl")
    for guessed in (0, 1):
        k, size, found = levels[guessed][0], levels[1 - guessed][0], 0.0
        for own, other in itertools.product(laws_of(k, eps[guessed] / 2), laws_of(size, eps[1 - guessed] / 2)):
            for f in itertools.product(range(size), repeat=k):
                found = max(found, chance([together(own[v], other[x]) for v, x in enumerate(f)]))
        assert found <= guesses(survey)[guessed]
        assert found > from_own_reports(survey, guessed) or eps[1 - guessed] < 1  # control: the other attribute adds evidence


@cache
def chances_of_crowds(people: int, parts: int) -> list[Fraction]:
    """Exact probability of each number of people in a person's crowd."""
    ways = [math.comb(people - 1, x) * (parts - 1) ** (people - 1 - x) for x in range(people)]
    return [Fraction(), *(Fraction(n, parts ** (people - 1)) for n in ways)]


COHORT = '[cohort]\nname = "c"\nvalues = ["x", "y"]\nleast = 1\n'


@pytest.mark.parametrize(
    ("collection", "more", "levels", "every", "parts"),
    [("smp", "", 1, 1, 2), ("smp", COHORT, 2, 2, 16), ("spl", "", 1, 3, 3), ("spl", "", 1, 1, 1), ("rs+fd", COHORT, 1, 1, 2)],
)
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-9])
def test_a_persons_own_crowd_is_seldom_smaller_than_printed(
    collection: str, more: str, levels: int, every: int, parts: int, delta: float
) -> None:
    """The devices' coins, all of them for four people; then their binomial law for many."""
    text = f'{HEAD}collection = "{collection}"\n{more}'
    for name in "ab":
        text += f'[[attribute]]\nname = "{name}"\nsize = 4\n'
        text += "".join(
            f'[[attribute.level]]\nname = "l{i}"\nmechanism = "GRR"\neps = 1.0\nevery_steps = {every}\n' for i in range(levels)
        )
    survey = parse_survey(tomllib.loads(text), "a test")
    drawn = [range(2 if collection == "smp" else 1), range(levels), range(2 if more else 1), range(every)]
    own = list(itertools.product(*drawn))
    sizes = Counter(1 + sum(choices == own[0] for choices in others) for others in itertools.product(own, repeat=3))
    assert [Fraction(sizes[n], len(own) ** 3) for n in range(5)] == chances_of_crowds(4, parts)
    exceeded = False
    for people in (1, 2, 4, 30, 200, 400):
        exact = chances_of_crowds(people, parts)
        for row in in_crowds(survey, "report", people, delta=delta):
            assert 1 <= row.crowd <= people
            assert sum(exact[: row.crowd]) <= Fraction(delta) / 2
        exceeded = exceeded or sum(exact[: people // parts]) > Fraction(delta)
    assert exceeded == (parts > 1)  # control: the mean crowd fails too often


@pytest.mark.parametrize(("parts", "delta"), [(2, 0.1), (2, 1e-6), (4, 0.01)])
def test_the_loss_holds_over_the_coins_that_draw_the_crowd(parts: int, delta: float) -> None:
    """All histograms of the people who share the person's crowd, each with probability 1/parts, for many values of them."""
    people, eps, r = 24, 2.0, rows(2, 2.0)
    m, n = mechanism("GRR", 2, eps=eps), least_crowd(people, parts, delta / 2)
    told = min(m.claims.shuffled(1, n, delta, delta / 2).eps(delta), eps)
    all_people = m.claims.shuffled(1, people, delta).eps(delta)  # control: as if everybody were in the crowd
    found, exceeded = 0.0, 0.0
    for ones in range(0, people, 4):
        others = [[1 - 1 / parts, *(p / parts for p in r[int(i < ones)])] for i in range(people - 1)]
        laws = [histogram([[0.0, *r[v]], *others]) for v in (0, 1)]
        for one, other in itertools.permutations(laws):
            found = max(found, sum(max(p - math.exp(told) * other[x], 0) for x, p in one.items()))
            exceeded = max(exceeded, sum(max(p - math.exp(all_people) * other[x], 0) for x, p in one.items()))
    assert found <= delta < exceeded
