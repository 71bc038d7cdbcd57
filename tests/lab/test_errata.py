"""Verifies every entry of `docs/evidence/errata.md`: by mathematics, or by comparing a library with the right computation."""

import itertools
import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lab.datasets import NURSERY_SIZES
from lab.papers.allomfree_printed import GAINS
from lab.papers.allomfree_surveys import mechanisms_of
from lab.peers.environment import existing_environment
from ldpstream.mechanisms import LONGITUDINAL, mechanism
from ldpstream.mechanisms.families.grr import LongitudinalGRR
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing
from tests.conftest import give_up

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


# ---- libraries


@pytest.fixture(scope="module")
def libraries() -> dict[str, dict[str, Any]]:
    """Output of `peer_errata.py`, run in the other libraries' environment."""
    python = existing_environment()
    if python is None:
        give_up("needs the other libraries' environment: run `make peers`")
    script = Path(__file__).with_name("peer_errata.py")
    done = subprocess.run([python, "-I", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def multi_freq(libraries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """multi-freq-ldpy 0.2.5."""
    return libraries["multi-freq-ldpy"]


@pytest.fixture
def pure(libraries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """pure-ldp 1.2.0."""
    return libraries["pure-ldp"]


def test_multi_freq_memoizes_nothing(multi_freq: dict[str, Any]) -> None:
    """5000 reports of one value, ε∞ = 0.5, ε₁ = 0.4: the value's share is 0.60. One memo would give 0.90 or 0.10."""
    p1, q1, p2, q2 = allomfree(2, 0.5, 0.4)
    chance = 6 * math.sqrt(0.25 / 5000)  # one false alarm in 10^9 runs
    share = multi_freq["same value"]
    assert abs(share - (p1 * p2 + q1 * q2)) < chance
    assert min(abs(share - p2), abs(share - q2)) > chance
    assert multi_freq["seeds"] == 50  # a new hash function at every call


def test_multi_freq_l_grr_is_more_private_than_stated(multi_freq: dict[str, Any]) -> None:
    """k = 100, ε∞ = 2, ε₁ = 1: 20 000 reports keep the value as often as for ε₁ = 0.166, and less than half as often as for
    ε₁ = 1."""
    chance = 6 * math.sqrt(0.03 / 20_000)
    paper, exact = (mechanism("L-GRR", 100, eps_inf=2.0, eps_1=1.0, calibration=c) for c in ("paper", "exact"))
    assert paper.eps_1 == pytest.approx(0.166, abs=5e-4)
    assert abs(multi_freq["l-grr kept"] - paper.p) < chance
    assert paper.p + chance < exact.p
    assert paper.p < exact.p / 2
    assert 85 < paper.variance() / exact.variance() < 95


def test_multi_freq_ibu_channels_of_memoized_mechanisms(multi_freq: dict[str, Any]) -> None:
    """A row of L-GRR's channel at k = 100 sums to 0.115. L-LH's channel has q = 0.575, but L-LH's reports have q = 0.5."""
    assert np.sum(multi_freq["l-grr channel"], axis=1) == pytest.approx(np.full(100, 0.115), abs=5e-4)
    assert multi_freq["l-lh channel"][0][1] == pytest.approx(0.575, abs=5e-4)
    assert mechanism("L-BLH", 10, eps_inf=2.0, eps_1=1.0).q == 0.5


def test_multi_freq_variance_can_be_negative(multi_freq: dict[str, Any]) -> None:
    at_zero, at_half = multi_freq["variances"]
    m = mechanism("L-GRR", 100, eps_inf=2.0, eps_1=1.0, calibration="paper")
    assert at_zero == pytest.approx(m.variance(0.0, 10_000), rel=1e-3)
    assert at_half < 0 < m.variance(0.5, 10_000)


def test_multi_freq_matrix_inversion_is_clipped_and_normalised(multi_freq: dict[str, Any]) -> None:
    """OUE, ε = 1, k = 1000, n = 100 000: the estimate is a third of the true share, 0.179. Without clipping, the estimate is
    within 4 standard errors of the true share."""
    n, q = 100_000, 1 / (math.e + 1)
    unclipped = (multi_freq["mi counts"][0] / n - q) / (0.5 - q)
    assert abs(unclipped - 0.179) < 4 * math.sqrt(mechanism("OUE", 1000, eps=1.0).variance(0.179, n))
    assert 0.04 < multi_freq["mi"][0] < 0.08
    assert min(multi_freq["mi"]) == 0
    assert sum(multi_freq["mi"]) == pytest.approx(1)


def test_multi_freq_accepts_invalid_values_and_reports(multi_freq: dict[str, Any]) -> None:
    assert multi_freq["accepted"] == {"client 1.7": "", "client nan": "", "report -1": ""}


def test_multi_freq_overflows(multi_freq: dict[str, Any]) -> None:
    """For ε above 709, e^ε overflows a double."""
    assert multi_freq["ε = 800"] == "ValueError"


def test_multi_freq_ibu_of_l_adp(multi_freq: dict[str, Any]) -> None:
    """L-ADP's IBU calls an aggregator that the module does not import; L-ADP's matrix inversion works."""
    assert (multi_freq["l-adp ibu"], multi_freq["l-adp mi"]) == ("NameError", "")


def test_pure_ldp_fast_local_hashing_sides_disagree(pure: dict[str, Any]) -> None:
    """At ε = 2 and with default options, the client hashes to 2 symbols and the server counts 8 symbols."""
    assert pure["g"] == [2, 8]


def test_pure_ldp_fast_local_hashing_stays_biased(pure: dict[str, Any]) -> None:
    """With 50 hash functions and the same value for all people, the estimates of other values do not tend to 0 as n grows."""
    small, large = pure["flh bias"]
    assert small == pytest.approx(large)
    assert large[0] == pytest.approx(1)
    assert max(np.abs(large[1:])) > 0.1
    m = mechanism("OLH", 30, eps=1.0, g=3)  # in the linear pool any two values collide under exactly a third of the functions
    table = np.round(m.channel()[0].reshape(m.table_shape) * 1e12).astype(np.int64)
    support = m.support(m.table(int(table.sum()), table)) / table.sum()
    np.testing.assert_allclose((support - m.q) / (m.p - m.q), np.eye(30)[0], atol=1e-9)


def test_pure_ldp_reset_keeps_counts(pure: dict[str, Any]) -> None:
    """After the reset the number of reports is 0, but the counts are unchanged."""
    before, after, n = pure["flh after reset"]
    assert (after, n) == (before, 0)
    kept, n = pure["rappor after reset"]
    assert (kept > 0, n) == (True, 0)


def test_pure_ldp_rappor_ignores_the_number_of_hashes(pure: dict[str, Any]) -> None:
    """One function of the library gives an f for ε = 2. For this f (rounded) and two hashes, another function gives ε = 4."""
    assert pure["two hashes"] == pytest.approx(4, abs=0.05)


def test_pure_ldp_rappor_never_clears_a_bit(pure: dict[str, Any]) -> None:
    """f = 0.5: a quarter of the reports must send a set bit as 0. The library never sends a set bit as 0: a 0 excludes
    values."""
    assert pure["set bits kept"] == 1.0
    assert pure["clear bits set"] == pytest.approx(0.25, abs=6 * math.sqrt(0.25 * 0.75 / 7000))


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
