"""Tests that the solver's eps_1 keeps the loss over the horizon within the budget, and that a slightly larger eps_1 does
not."""

from typing import Any

import pytest

from ldpstream.mechanisms import LONGITUDINAL, mechanism
from ldpstream.mechanisms.solvers import largest_eps_1


@pytest.mark.parametrize("name", LONGITUDINAL)
@pytest.mark.parametrize(("horizon", "budget"), [(1, 1.0), (30, 2.0), (10**6, 1.0)])
def test_the_budget_is_met_and_exhausted(name: str, horizon: int, budget: float) -> None:
    best = largest_eps_1(name, 10, eps_inf=4.0, horizon=horizon, budget=budget)
    assert best.eps_t(horizon) == pytest.approx(budget, rel=1e-6)
    assert best.eps_t(horizon) <= budget
    dearer = mechanism(name, 10, eps_inf=4.0, eps_1=best.eps_1 * 1.001)
    assert dearer.eps_t(horizon) > budget


def test_a_large_budget_gives_the_largest_reachable_eps_1() -> None:
    assert largest_eps_1("L-GRR", 10, eps_inf=4.0, horizon=10, budget=4.0).eps_1 == pytest.approx(4.0)
    assert largest_eps_1("L-OUE", 10, eps_inf=2.0, horizon=1, budget=2.0).eps_1 == pytest.approx(1.66001, abs=1e-5)


def test_wrong_arguments_are_rejected() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "GRR"}, "name must be one of L-GRR"),
        ({"horizon": 0}, "horizon"),
        ({"budget": -1.0}, "budget"),
        ({"eps_inf": float("nan")}, "eps_inf"),
        ({"k": 1}, "k must be"),
        ({"budget": 1e-9, "horizon": 10**6}, "budget 1e-09 is too small"),
    ]
    for change, words in cases:
        arguments: dict[str, Any] = {"name": "L-GRR", "k": 10, "eps_inf": 4.0, "horizon": 10, "budget": 1.0} | change
        with pytest.raises(ValueError, match=words):
            largest_eps_1(**arguments)
