"""Tests that all published numbers are finite and in range for count tables that no honest population makes."""

from typing import Any

import numpy as np
import pytest

from ldpstream.estimators.smooth import smooth_prior
from ldpstream.mechanisms import NAMES, NUMERIC, mechanism

from .odd_tables import DOMAINS, KINDS, SIZES, OddTable, _counts, check

SURVEYS = 60
ONCE_WRONG = (1, 22, 35, 41, 51, 66, 105, 1015, 1056)  # seeds of tables that once made NaN or an error


@pytest.mark.parametrize("part", range(6))
def test_odd_tables_have_finite_estimates(part: int) -> None:
    """About 300 tables of 60 surveys, always the same. `make fuzz` tries more."""
    assert sum(check(seed) for seed in range(part, SURVEYS, 6)) > 30


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_tables_that_once_had_no_finite_estimate_have_one(seed: int) -> None:
    check(seed)


def test_every_mechanism_accepts_every_kind_of_table() -> None:
    import random

    source, rng = random.Random(1), np.random.default_rng(1)
    for name in (*NAMES, *NUMERIC):
        loss: dict[str, Any] = {"eps_1": 1.0, "eps_inf": 2.0} if name.startswith("L-") else {"eps": 1.0}
        m = mechanism(name, k=max(DOMAINS), **loss)
        for _ in range(5 * len(KINDS)):
            n = source.choice(SIZES)
            m.table(n, _counts(m, n, source, rng))


@pytest.mark.parametrize("what", ["not a number", "beyond all limits", "an error"])
def test_a_fault_in_an_estimator_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the check must find a fault that makes numbers that are not finite, or an error."""
    draws = smooth_prior._draws

    def faulty(*arguments: object) -> object:
        if what == "an error":
            raise ValueError("cannot convert float NaN to integer")
        made = draws(*arguments)  # type: ignore[arg-type]  # passes on what it gets
        made[:, 0] = np.nan if what == "not a number" else np.inf
        return made

    monkeypatch.setattr(smooth_prior, "_draws", faulty)
    with pytest.raises(OddTable):
        for seed in range(10):
            check(seed)
