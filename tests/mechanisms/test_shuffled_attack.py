"""Attacks on reports without senders reach a large part of the loss that `ledger.shuffled` states, and never more."""

import numpy as np
import pytest

from lab.bench.shuffled_attack import attack, ratios
from ldpstream.mechanisms import Mechanism, mechanism

from .table_enumeration import delta, table_distribution, with_report


@pytest.mark.parametrize(
    ("m", "n", "steps", "least"),
    [
        (mechanism("GRR", 4, eps=1.0), 1250, 45, 0.98), (mechanism("OLH", 6, eps=1.0), 10_000, 1, 0.97),
        (mechanism("OUE", 6, eps=1.0), 10_000, 1, 0.85),
    ],
)  # fmt: skip
def test_the_bound_is_near_to_what_an_attack_reaches(m: Mechanism, n: int, steps: int, least: float) -> None:
    bound = m.claims.shuffled(steps, n, 1e-6).eps(1e-6)
    found = attack(m, n, steps, 1e-6, bound, 5000, np.random.default_rng(20240601))
    assert least * bound < found.low < found.eps <= bound + 4 * found.error


def test_the_attack_agrees_with_the_exact_loss_of_a_table() -> None:
    """Sampling with and without importance weights, beside all tables of 6 reports of people with these values."""
    m, n, delta_ = mechanism("GRR", 3, eps=2.0), 6, 0.02
    common, a, b = ratios(m.channel())
    crowd = table_distribution([common] * (n - 1))
    p, q = (with_report(crowd, row * common) for row in (a, b))
    for near in (0.0, 0.5):
        found = attack(m, n, 1, delta_, near, 200_000, np.random.default_rng(20240601))
        assert abs(delta(p, q, found.eps) - delta_) < 1e-3
        assert found.error < 0.02
