"""Compares the chances of a right guess, from an attribute and from the whole device, with brute force.

Also those of the question by which a device asks for consent.
"""

import math
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from ldpstream.device.consent.words import question
from ldpstream.mechanisms.claims.evidence import joined
from ldpstream.mechanisms.devices import Parameters
from ldpstream.promises.device_chance import chance_of_both, device_chance, guesses
from ldpstream.surveys import Survey
from tests.mechanisms.guess_enumeration import changing, device, device_any_values, likelihoods, success, unchanged
from tests.small_survey import small_survey

ONE_TIME, MEMOIZED = ("GRR", "SUE", "OUE"), ("L-GRR", "L-SUE", "L-OSUE")


def survey(collection: str, *attributes: tuple[int, dict[str, Any]], pairs: Sequence[dict[str, Any]] = ()) -> Survey:
    asked = ({"name": f"a{i}", "size": k, "level": [{"name": "l"} | level]} for i, (k, level) in enumerate(attributes))
    return small_survey(*asked, *pairs, step_seconds=86400, collection=collection)


def drawn(seed: int) -> tuple[Survey, int]:
    """A random survey of two attributes with two or three values, and a number of reports that brute force can handle."""
    rng = np.random.default_rng(seed)
    attributes = []
    for _ in range(2):
        eps = float(rng.uniform(0.3, 3))
        level = (
            {"mechanism": str(rng.choice(ONE_TIME)), "eps": eps}
            if rng.random() < 0.5
            else {"mechanism": str(rng.choice(MEMOIZED)), "eps_inf": 2 * eps, "eps_1": eps}
        )
        attributes.append((int(rng.integers(2, 4)), level))
    collection = ("smp", "spl", "rs+fd")[seed % 3]
    return survey(collection, *attributes), 2 if collection != "spl" and seed % 2 else 1


@pytest.mark.parametrize("seed", range(20))
def test_brute_force_never_exceeds_the_chances_of_random_surveys(seed: int) -> None:
    asked, t = drawn(seed)
    for i, ((m,), (other,)) in enumerate(zip(asked.mechanisms, reversed(asked.mechanisms), strict=True)):
        told = guesses(asked, i, m, t)
        m, other = m.device, other.device
        found = {
            "guess": success(unchanged(m, t)),
            "guess_any_values": max(map(success, changing(m, t))),
            "guess_device": device(m, [other], asked.collection, t),
            "guess_any_values_device": device_any_values(m, other, asked.collection, t),
        }
        (line,) = re.findall(rf"of a{i} .*", question(asked, [0, 0]))
        people = [float(right) if right else math.inf for right in re.findall(r"(\d+) of 100|no useful limit", line)]
        assert people[0] < 100 * found["guess_device"] <= people[1 if t == 1 else 2]
        for name, chance in told.items():
            if chance.exact:
                assert found[name] == pytest.approx(chance, rel=1e-9)
            assert found[name] <= chance * (1 + 1e-9)
        assert found["guess"] == pytest.approx(told["guess"], rel=1e-9)


@pytest.mark.parametrize(
    ("collection", "t", "known", "highest", "said"),
    [
        ("smp", 4, False, "67.8", "at most 88.3 %"),
        ("smp", 4, True, "93.9", "at most 100.0 %"),
        ("smp", 2, True, "88.6", "at most 100.0 %"),
        ("spl", 3, False, "74.5", "at most 93.6 %"),
        ("spl", 3, True, "97.6", "at most 100.0 %"),
    ],
)
def test_the_course_of_a_pairs_other_value_reveals_the_value(
    collection: str, t: int, known: bool, highest: str, said: str
) -> None:
    """Enumerates all pairs of courses of b, one for each value of a, and all outputs of the device's own coins.

    `known`: from so many reports of each step that the guesser knows the memos. Then equal memos show the course.
    Controls: courses that do not depend on a, and the bound from all memos without their course, give smaller chances.
    """
    parts = 3 if collection == "spl" else 1
    level = {"mechanism": "L-GRR", "eps_inf": 1.0 * parts, "eps_1": 0.5 * parts}
    pair = {"name": "pair", "pair": ["a0", "a1"], "level": [{"name": "l"} | level]}
    asked = survey(collection, (2, level), (2, level), pairs=[pair])
    coins = [levels[0].parameters() for levels in asked.mechanisms]
    courses = list(product(range(2), repeat=t))

    def law(value: int, course: tuple[int, ...]) -> Any:
        rows = [_of_coins(coins[2], tuple(2 * value + other for other in course), known)]
        if collection == "spl":
            rows += [_of_coins(coins[0], (value,) * t, known), _of_coins(coins[1], course, known)]
        return rows[0] if len(rows) == 1 else np.einsum("i,j,k->ijk", *rows).ravel()

    laws = [[law(value, course) for course in courses] for value in range(2)]
    true = max(success(rows) for rows in product(*laws))
    told = device_chance(asked, 0, asked.mechanisms[0][0], math.inf if known else t)
    assert (f"{100 * true:.1f}", str(told)) == (highest, said)
    assert true <= told
    apart = max(success(rows) for rows in zip(*laws, strict=True))
    assert apart < true
    memos = [levels[0].claims.evidence(math.inf) for levels in asked.mechanisms]
    two_memos = [memos[2]] * 2 + (memos[:2] if collection == "spl" else [])
    assert not known or joined([[memo] for memo in two_memos]).guess(2) < true


def test_a_pair_that_shares_an_attribute_reveals_a_pair_by_its_course() -> None:
    """The values of a and b never change, and c changes only if b is 1. Equal memos of the pair of a and c show b.

    Control: the chance from a value of this pair that never changes is smaller.
    """
    memo = {"name": "l", "mechanism": "L-GRR", "eps_inf": 0.3, "eps_1": 0.29}
    pairs = [{"name": "ab", "pair": ["a0", "a1"], "level": [memo]}, {"name": "ac", "pair": ["a0", "a2"], "level": [memo]}]
    asked = survey("smp", (2, memo), (2, memo), (2, memo), pairs=pairs)
    m, of = asked.mechanisms[4][0], likelihoods(asked.mechanisms[4][0], 3)
    true = success(of[2 * a, 2 * a + b, 2 * a] for a, b in product(range(2), repeat=2))
    assert m.claims.guess_hint(4, 3) < true <= device_chance(asked, 3, asked.mechanisms[3][0], 3)


def test_the_course_of_a_pairs_other_attribute_reveals_the_value_by_its_own_fresh_reports() -> None:
    """Enumerates the courses of b, one for each of four values of a, from two fresh reports of b.

    Control: the bound for a value of b that never changes is smaller.
    """
    level = {"mechanism": "GRR", "eps": 2.0}
    weak = {"name": "pair", "pair": ["a0", "a1"], "level": [{"name": "l", "mechanism": "GRR", "eps": 0.1}]}
    asked = survey("smp", (4, {"mechanism": "GRR", "eps": 0.1}), (2, level), pairs=[weak])
    m, other = asked.mechanisms[0][0], asked.mechanisms[1][0]
    channel = other.channel()
    laws = [np.multiply.outer(channel[first], channel[second]).ravel() for first, second in product(range(2), repeat=2)]
    true = success(laws)
    assert true == pytest.approx(0.7758, abs=1e-4)
    assert other.claims.guess_hint(4, 2) < true <= device_chance(asked, 0, m, 2)


def _of_coins(p: Parameters, values: tuple[int, ...], known: bool) -> Any:
    """The law of a report of each value in turn, or of the memo itself, over all memos that the values can draw."""
    memo, report = (_channel_of_coins(p, name) for name in ("memo", "report"))
    second = np.eye(p.k) if known else report
    drawn = sorted(set(values))
    law = np.zeros(p.k ** len(values))
    for memos in product(range(p.k), repeat=len(drawn)):
        kept = dict(zip(drawn, memos, strict=True))
        joint = np.ones(1)
        for value in values:
            joint = np.multiply.outer(joint, second[kept[value]]).ravel()
        law += math.prod(memo[value, kept[value]] for value in drawn) * joint
    return law


def _channel_of_coins(p: Parameters, name: str) -> Any:
    """With the coin the symbol stays; otherwise each of the others has the same chance."""
    (coin,) = p.coins[name].values()
    smaller = int(coin.digits, 16) / 256 ** (len(coin.digits) // 2)
    keep = 1 - smaller if coin.inverted else smaller
    return np.where(np.eye(p.k) > 0, keep, (1 - keep) / (p.k - 1))


@pytest.mark.parametrize("collection", ["smp", "spl"])
def test_the_reports_of_two_surveys_reveal_more_than_those_of_one(collection: str) -> None:
    """Two reports of the value, two of a hint, and then a memo of the value, in all combinations of the outputs."""
    again = {"mechanism": "GRR", "eps": 1.0, "every_steps": 1, "lifetime_reports": 2}
    hint = again | {"eps": 2.0}
    first = survey(collection, (2, again), (2, hint))
    second = survey("smp", (2, {"mechanism": "L-GRR", "eps_inf": 1.5, "eps_1": 0.7}))
    part = 0.5 if collection == "spl" else 1.0  # each attribute's part of the budget
    of_value, of_hint, of_memo = (_channel(2, eps) for eps in (part, 2 * part, 1.5))
    earlier = [np.einsum("va,vb->vab", one, one).reshape(2, -1) for one in (of_value, of_hint)]
    if collection == "spl":
        earlier = [np.einsum("va,vb->vab", *earlier).reshape(2, -1)]
    exact = max(success(np.einsum("va,vb->vab", one, of_memo).reshape(2, -1)) for one in earlier)
    found = chance_of_both(first, second, "a0")
    assert max(map(success, (*earlier, of_memo))) <= exact <= found < 1.15 * exact
    assert not found.exact
    if collection == "spl":  # the control: the bound of one survey alone
        assert device_chance(first, 0, first.mechanisms[0][0], math.inf) < exact


def _channel(k: int, eps: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The channel of GRR, and of all reports of a memo of L-GRR."""
    chances = np.where(np.eye(k) > 0, math.exp(eps), 1.0)
    return np.asarray(chances / chances.sum(1, keepdims=True), np.float64)
