"""Attacks on reports without senders reach a large part of the loss that `ledger.shuffled` states, and never more."""

from typing import Any

import numpy as np
import pytest

from lab.bench.shuffled_attack import attack, ratios
from ldpstream.checks.audit.clopper_pearson import lower, upper
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray

from .table_enumeration import delta, table_distribution, with_report


@pytest.mark.parametrize(("m", "n"), [(mechanism("GRR", 4, eps=2.0), 60), (mechanism("OUE", 3, eps=2.0), 40)], ids=str)
def test_an_attack_on_simulated_reports_reaches_half_the_bound_and_never_exceeds_it(m: Mechanism, n: int) -> None:
    """A likelihood-ratio attack on reports that the mechanism draws; all other people have the same value.

    A correct bound is exceeded with probability at most 1e-6 per case.
    """
    rng, trials, delta, alpha = np.random.default_rng(20240601), 40_000, 0.01, 1e-6
    common, a, b = ratios(m.channel())

    def attacked(person: int, linked: bool) -> FloatArray:
        """Log likelihood ratios of the reports of all people, or of the person's report if the attacker knows the sender."""
        u, v, w = (int(np.flatnonzero(np.isclose(m.channel(), row).all(axis=1))[0]) for row in (common, a * common, b * common))
        values = np.full((trials, n), u)
        values[:, 0] = (v, w)[person]
        outputs = output_numbers(m, m.report(values.ravel(), rng)).reshape(trials, n)
        seen = outputs[:, :1] if linked else outputs
        return np.asarray(np.log(a[seen].mean(axis=1) / b[seen].mean(axis=1)))

    def reached(linked: bool) -> float:
        cut = np.quantile(attacked(0, linked), np.linspace(0.5, 0.99, 30))  # chosen before the reports that count
        counts = [[int((scores >= at).sum()) for at in cut] for scores in (attacked(0, linked), attacked(1, linked))]
        share = alpha / len(cut) / 2
        return float(np.log(np.maximum(lower(counts[0], trials, share) - delta, 1e-9) / upper(counts[1], trials, share)).max())

    bound = m.shuffled(1, n, delta).eps(delta)
    assert 0.5 * bound < reached(linked=False) <= bound
    assert reached(linked=True) > bound  # control: an attacker who knows the sender


def output_numbers(m: Mechanism, reports: Any) -> Any:
    """The columns of the channel to which the reports belong."""
    return (reports >> 0)[:, 0] if m.independent_bits else reports


@pytest.mark.parametrize(
    ("m", "n", "steps", "least"),
    [
        (mechanism("GRR", 4, eps=1.0), 1250, 45, 0.98), (mechanism("OLH", 6, eps=1.0), 10_000, 1, 0.97),
        (mechanism("OUE", 6, eps=1.0), 10_000, 1, 0.85),
    ],
)  # fmt: skip
def test_the_bound_is_near_to_what_an_attack_reaches(m: Mechanism, n: int, steps: int, least: float) -> None:
    bound = m.shuffled(steps, n, 1e-6).eps(1e-6)
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
