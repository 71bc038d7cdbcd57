"""Verifies every entry of `docs/evidence/errata.md`: by mathematics."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from lab.datasets import NURSERY_SIZES
from lab.papers.allomfree_printed import GAINS
from lab.papers.allomfree_surveys import mechanisms_of
from ldpstream.mechanisms import LONGITUDINAL
from ldpstream.mechanisms.families.grr import LongitudinalGRR
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing

ROOT = Path(__file__).parents[2]
Matrix = npt.NDArray[np.float64]

# ---- dense references


def diagonal(k: int, p: float, q: float) -> Matrix:
    """(k, k): p on the diagonal, q elsewhere."""
    return np.full((k, k), q) + (p - q) * np.eye(k)


def loss(channel: Matrix) -> float:
    """The largest log-ratio of two rows."""
    return float(np.log(channel.max(axis=0) / channel.min(axis=0)).max())


def repeated(first: Matrix, second: Matrix, t: int) -> Matrix:
    """(k, k^t) channel of t reports of one memo."""
    k = len(second)
    sequences = itertools.product(range(k), repeat=t)
    return np.stack([first @ np.prod([second[:, y] for y in sequence], axis=0) for sequence in sequences], axis=1)


def allomfree(k: int, eps_inf: float, eps_1: float) -> tuple[float, float, float, float]:
    """p₁, q₁, p₂, q₂ of L-GRR as ALLOMFREE prints them, Eq. (13)."""
    a, b = math.exp(eps_inf), math.exp(eps_1)
    p2 = (a * b - 1) / (-k * b + (k - 1) * a + b + a * b - 1)
    return a / (a + k - 1), 1 / (a + k - 1), p2, (1 - p2) / (k - 1)


# ---- ALLOMFREE (Arcolezi, Couchot, Al Bouna and Xiao 2022)


@pytest.mark.parametrize("k", [2, 3, 32])
def test_allomfree_probabilities_of_a_report(k: int) -> None:
    """Before Eq. (12): p₁p₂ + q₁q₂ and p₁q₂ + q₁p₂ omit the memos that are neither the value nor the report."""
    p1, q1, p2, q2 = allomfree(k, 2.0, 1.0)
    p, q = p1 * p2 + q1 * q2, p1 * q2 + q1 * p2
    true = diagonal(k, p1, q1) @ diagonal(k, p2, q2)
    np.testing.assert_allclose(true.sum(axis=1), 1)
    assert true[0, 0] == pytest.approx(p + (k - 2) * q1 * q2)
    assert true[0, 1] == pytest.approx(q + (k - 2) * q1 * q2)
    assert (p + (k - 1) * q == pytest.approx(1)) == (k == 2)


@pytest.mark.parametrize(("k", "true"), [(2, 1.0), (10, 0.6994), (32, 0.3889), (100, 0.1656), (1024, 0.0189)])
def test_allomfree_second_round_of_l_grr(k: int, true: float) -> None:
    """Eqs. (12) and (13): at ε∞ = 2 and ε₁ = 1 a report's loss equals ε₁ only for k = 2."""
    p1, q1, p2, q2 = allomfree(k, 2.0, 1.0)
    assert loss(diagonal(k, p1, q1) @ diagonal(k, p2, q2)) == pytest.approx(true, abs=5e-5)
    m = LongitudinalGRR(k, eps_inf=2.0, eps_1=1.0)
    assert loss(diagonal(k, m.p1, m.q1) @ diagonal(k, m.p2, m.q2)) == pytest.approx(1)


def test_allomfree_loss_of_t_reports() -> None:
    """If ε₁ is the loss of one report, Eq. (16) is below the true loss, even at t = 1. For k > 2, t ε₁ is not a bound."""
    a, b = math.exp(2), math.exp(1)
    p1, q1, p2, q2 = allomfree(2, 2.0, 1.0)
    for t, true in ((1, 1.0), (2, 1.6417), (3, 1.8992)):
        printed = math.log((a * b**t + 1) / (a + b**t))
        enumerated = loss(repeated(diagonal(2, p1, q1), diagonal(2, p2, q2), t))
        assert enumerated == pytest.approx(true, abs=5e-5)
        assert printed < enumerated - 0.2
        own = (p2 / q2) ** t  # for k = 2 the equation is right with the second round's parameter
        assert math.log((a * own + 1) / (a + own)) == pytest.approx(enumerated)
    m = LongitudinalGRR(32, eps_inf=4.0, eps_1=0.5)
    assert loss(repeated(diagonal(32, m.p1, m.q1), diagonal(32, m.p2, m.q2), 2)) == pytest.approx(1.075, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "k", "right"),
    [("L-SUE", 5, True), ("L-GRR", 2, True), ("L-OSUE", 5, False), ("L-OUE", 5, False), ("L-GRR", 5, False)],
)
def test_allomfree_variance_with_a_frequency(name: str, k: int, right: bool) -> None:
    """Eq. (10): the factor of f is p - q only if p + q = 1 in both rounds. Eq. (10) is right at f = 0, the paper's only f."""
    m = LONGITUDINAL[name](k=k, eps_inf=2.0, eps_1=1.0)
    p1, q1, p2, q2 = m.p1, m.q1, m.p2, m.q2
    for f in (0.0, 0.5):
        printed = f * (2 * p1 * p2 - 2 * p1 * q2 + 2 * q2 - 1) + p2 * q1 + q2 * (1 - q1)
        true = f * (p1 * p2 + (1 - p1) * q2) + (1 - f) * (q1 * p2 + (1 - q1) * q2)
        assert (printed == pytest.approx(true)) == (right or f == 0)
        assert m.variance(f, 10_000) == pytest.approx(true * (1 - true) / (10_000 * (p1 - q1) ** 2 * (p2 - q2) ** 2))


@pytest.mark.parametrize("ratio", [0.3, 0.6])
def test_allomfree_gains_are_of_clipped_estimates(ratio: float) -> None:
    """Tables 3 and 4, Nursery, ε∞ = 4: Eq. (9) alone gives a gain above 50 %, for uniform and for very uneven values.

    The printed gains of 41 % and 42 % are means of 100 runs. Their standard deviation is at most about 3 percentage points.
    """
    for power in (0.0, 1.0, 3.0):
        found = {}
        for method in ("ALLOMFREE", "L-SUE"):
            chosen = mechanisms_of(method, NURSERY_SIZES, 4.0, 4.0 * ratio)
            weights = [1 / np.arange(1, m.k + 1) ** power for m in chosen]
            found[method] = sum(
                np.mean([m.variance(f, 12_960 // 9) for f in w / w.sum()]) for m, w in zip(chosen, weights, strict=True)
            )
        assert 100 * (1 - found["ALLOMFREE"] / found["L-SUE"]) > 52
    printed = float(next(row[1] for row in GAINS[ratio] if row[0] == "4.0"))
    assert printed < 43


def test_memos_times_eps_inf_is_no_bound_for_values_that_change() -> None:
    """Memoization does not hide a change of value: the loss between a changing and a constant sequence exceeds 2 ε∞."""
    m = LongitudinalGRR(3, eps_inf=0.3, eps_1=0.15)
    first, second = diagonal(3, m.p1, m.q1), diagonal(3, m.p2, m.q2)
    kept, single = repeated(first, second, 2), first @ second
    worst = 0.0
    for a, b in itertools.product(range(3), repeat=2):  # the changing sequence has a new value at every step
        fresh = np.outer(single[a], single[b]).ravel()
        worst = max(worst, float(np.abs(np.log(kept / fresh)).max())) if a != b else worst
    assert worst == pytest.approx(0.656, abs=5e-4)
    assert worst > 2 * m.eps_inf
    assert loss(kept) < m.eps_inf  # the control: values that never change


# ---- IBU or matrix inversion (Arcolezi, Cerna and Palamidessi 2023)


@pytest.mark.parametrize("g", [2, 4])
def test_ibu_printed_parameters_of_l_lh(g: int) -> None:
    """§3.2: p₂* lacks a term e^{ε₁}. q₁* = 1/g is the server's value; p₁* and this q₁* are not a distribution."""
    a, b = math.exp(2), math.exp(1)
    p1, q1, right, _ = allomfree(g, 2.0, 1.0)
    printed = (a * b - 1) / (-g * b + (g - 1) * a + a * b - 1)
    assert p1 + (g - 1) / g != pytest.approx(1)
    assert p1 + (g - 1) * q1 == pytest.approx(1)
    for p2, claimed in ((right, g == 2), (printed, False)):
        true = diagonal(g, p1, q1) @ diagonal(g, p2, (1 - p2) / (g - 1))
        assert (loss(true) == pytest.approx(1)) == claimed
    m = LongitudinalHashing("L-OLH", k=20, eps_inf=2.0, eps_1=1.0, calibration="paper", g=g)
    assert m.p2 == pytest.approx(right)
    assert m.q == 1 / g
    assert p1 * (1 - right) / (g - 1) + right / g != pytest.approx(1 / g, rel=1e-3)  # q* as printed


# ---- the document


def test_every_erratum_is_shown_and_every_test_is_listed() -> None:
    text = (ROOT / "docs" / "evidence" / "errata.md").read_text()
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", text))
    for file, test in named:
        (path,) = (ROOT / "tests").rglob(file)
        assert f"def {test}(" in path.read_text(), test
    own = set(re.findall(r"(?m)^def (test_\w+)\(", Path(__file__).read_text())) - {
        "test_every_erratum_is_shown_and_every_test_is_listed"
    }
    assert {test for file, test in named if file == Path(__file__).name} == own
