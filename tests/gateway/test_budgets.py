"""Compares the budgets of clients with exact sums, and shows that the comparison finds wrong ones."""

from collections import Counter

import numpy as np

from ldpstream.gateway.budgets import KEPT, KEYS, LEAST_KEYS, PARTS, Amounts, Budgets, Place
from ldpstream.promises.false_reports import LEAST_REPORTS
from ldpstream.surveys.report_key import MAX_KEYS
from tests.agents.samples import make_survey

SURVEY = make_survey()
PLACE, NEXT = (0, 5), (0, 6)


def crowd(rng: np.random.Generator, people: int, hostile: int) -> list[str]:
    """Returns the clients of the reports in random order: a hostile one, a school, and others with one to three each."""
    others = [f"home {number}" for number in range(people) for _ in range(int(rng.integers(1, 4)))]
    clients = others + ["hostile"] * hostile + ["school"] * (LEAST_REPORTS // 2)
    return [clients[i] for i in rng.permutation(len(clients))]


def compare(people: int = 4000, hostile: int = 5000) -> None:
    """Asserts the promises of `budgets` for a crowd, of whose reports some were not appended and are sent again."""
    rng = np.random.default_rng(20261128)
    allowed, true, amounts, total = Budgets(SURVEY), Counter[str](), Amounts(), 0
    for client in crowd(rng, people, hostile):
        attempts = 2 if rng.random() < 0.1 else 1
        for attempt in range(attempts):
            if not allowed.charge(client, {PLACE: 1}):
                assert client == "hostile"  # a client that needs at most half of its budget is never refused
                break
            amounts.add(client, 1)
            total += 1
            if attempt + 1 < attempts:
                allowed.take_back(client, {PLACE: 1})
                amounts.take_back(client, 1)
            else:
                true[client] += 1
        assert true[client] <= amounts.most(client) <= true[client] + total / (KEPT + 1)
        assert len(amounts._kept) <= 2 * KEPT
        assert true[client] <= max(LEAST_REPORTS, true.total() / PARTS)
    assert true["school"] == LEAST_REPORTS // 2
    assert true["hostile"] > 0.9 * LEAST_REPORTS
    assert true["hostile"] <= amounts.largest <= true["hostile"] + total / (KEPT + 1)
    assert amounts.total == true.total()


def test_no_client_exceeds_its_budget_and_half_of_it_is_always_allowed() -> None:
    compare()


def allows(charged: Budgets, client: object, amounts: dict[Place, int]) -> bool:
    if not charged.charge(client, amounts):
        return False
    charged.take_back(client, amounts)
    return True


def test_the_budget_grows_with_the_reports_of_the_step_and_of_the_step_before() -> None:
    charged = Budgets(SURVEY)
    assert allows(charged, "a", {PLACE: LEAST_REPORTS})
    assert not allows(charged, "a", {PLACE: LEAST_REPORTS + 1})
    charged = Budgets(SURVEY)
    assert charged.charge(None, {PLACE: 250_000})  # of collectors and relays
    for place, most in ((PLACE, 2500), (NEXT, 2500), ((1, 5), 1000), ((0, 7), 1000)):
        assert not allows(charged, "a", {place: most + 1})
        assert not allows(charged, "a", {PLACE: 1, place: most + 1})  # each histogram has a budget of its own
        assert allows(charged, "a", {place: most})
    charged = Budgets(SURVEY)
    charged.charge(None, {PLACE: 250_000})
    assert charged.largest_share() == 0
    charged.charge("a", {PLACE: 2500})
    assert charged.largest_share() == 2500 / 252_500
    charged.charge("a", {(0, 7): 30})
    assert charged.largest_share() == 0.03  # of 1000 reports, while there are fewer
    charged.forget(SURVEY.closes_ms(6) - 1)
    assert set(charged._amounts) == {PLACE, (0, 7)}  # a closed step still sets the budget of the next
    charged.forget(SURVEY.closes_ms(6))
    assert set(charged._amounts) == {(0, 7)}


def test_64_clients_are_needed_to_fill_the_memory_of_keys() -> None:
    charged = Budgets(SURVEY)
    for number in range(64):
        assert not charged.charge(number, {(KEYS, 5): LEAST_KEYS + 1})
        assert charged.charge(number, {(KEYS, 5): LEAST_KEYS})
        assert not charged.charge(number, {(KEYS, 5): 1})
    assert 64 * LEAST_KEYS == MAX_KEYS
