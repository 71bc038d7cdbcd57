"""Compares `outweighs` with a search for the best attack, for every registered mechanism.

The search is the same for every mechanism. It tries all rows of bytes, and adds each valid row to a table of honest reports.
"""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from ldpstream.mechanisms import LONGITUDINAL, ONE_TIME, SETS, Mechanism, choose, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.registry import AUTO_CANDIDATES, LIKE_VARIANCE, lightest, registered

from .reference import written

HONEST = 50
SINGLE = [name for name in registered() if name not in SETS]  # test_padded_sampling.py has the mechanisms of sets


def built(name: str, k: int, eps: float) -> Mechanism:
    losses: dict[str, Any] = {"eps_inf": 2 * eps, "eps_1": eps} if name in LONGITUDINAL else {"eps": eps}
    return mechanism(name, k, **losses)


EVERY = [built(name, k, eps) for name in SINGLE for k in (2, 3, 7) for eps in (0.2, 1.0, 3.0)]
FAKE = [built(name, 4, 1.0).with_fake_data(3) for name in SINGLE]
ODD = [mechanism("SS", 5, eps=1.0, omega=4), mechanism("OLH", 7, eps=2.0, g=2), mechanism("SW", 6, eps=1.0, width=6)]


def contributions(m: Mechanism) -> FloatArray:
    """(reports, k) what each valid report adds to the number of honest people with each value, by the inversion."""
    dtype = m.device.report_dtype
    assert dtype.itemsize <= 2
    rows = np.frombuffer(np.arange(256**dtype.itemsize, dtype=f"<u{dtype.itemsize}").tobytes(), dtype.base)
    rows = rows.reshape(-1, *dtype.shape)
    rows = rows[m.valid(rows)]
    honest = m.simulate(np.arange(HONEST) % m.k, np.random.default_rng(1))
    table = m.tabulate(honest)
    before = HONEST * m.reading.inversion(table)
    return np.array(
        [(HONEST + 1) * m.reading.inversion(table + m.tabulate(rows[i : i + 1])) - before for i in range(len(rows))]
    )


def best_attack(added: FloatArray, r: int) -> float:
    """The largest change of the people in any set of r values, up or down, by any report."""
    return max(float(np.abs(added[:, list(chosen)].sum(axis=1)).max()) for chosen in combinations(range(added.shape[1]), r))


@pytest.mark.parametrize("m", [*EVERY, *FAKE, *ODD], ids=repr)
def test_no_report_outweighs_more_honest_people(m: Mechanism) -> None:
    added = contributions(m)
    for r in range(1, m.k + 1):
        found = best_attack(added, r)
        if r > 1 and written(m).loose:
            assert found <= m.outweighs(r) * (1 + 1e-6)
        else:
            assert m.outweighs(r) == pytest.approx(found, rel=1e-6, abs=1e-7)


def test_an_honest_report_counts_for_one_person() -> None:
    """The unit of `outweighs`. The reports of 40 000 people with value 1 give the truth to within 6 standard errors.

    One of the 60 shares is further away with probability 1e-7.
    """
    for name in SINGLE:
        m = built(name, 4, 1.0)
        table = m.tabulate(m.simulate(np.full(40_000, 1), np.random.default_rng(7)))
        truth = np.eye(4)[1]
        errors = np.sqrt(m.reading.inversion_variances(truth, 40_000))
        assert (np.abs(m.reading.inversion(table) - truth) < 6 * errors).all()


def test_equal_p_and_q_have_no_finite_weight() -> None:
    m = mechanism("L-GRR", 10**6, eps_inf=1e-8, eps_1=5e-9, calibration="paper")
    assert (m.outweighs() == math.inf) == (m.p == m.q)


@pytest.mark.parametrize("values", [0, 5, 1.5, True])
def test_a_set_has_one_to_k_values(values: Any) -> None:
    with pytest.raises(ValueError, match="values must be"):
        built("GRR", 4, 1.0).outweighs(values)


# ---- the automatic choice


@pytest.mark.parametrize("eps", [0.1, 0.5, 1.0, 2.0, 3.0])
def test_auto_takes_the_smaller_weight_if_variances_are_alike(eps: float) -> None:
    for k in (*range(2, 80), 500):
        chosen, _ = choose(k, eps_inf=2 * eps, eps_1=eps)
        options = [built(name, k, eps) for name in AUTO_CANDIDATES]
        smallest = min(m.variance() for m in options)
        near = [m for m in options if m.variance() <= LIKE_VARIANCE * smallest]
        assert chosen.name in {m.name for m in near}
        assert chosen.outweighs() <= 1.25 * min(m.outweighs() for m in near)


def test_the_lightest_of_like_variances_wins_and_a_small_variance_wins_over_weight() -> None:
    grr, oue, olh = built("GRR", 10, 1.0), built("OUE", 10, 1.0), built("OLH", 10, 1.0)
    assert lightest([(grr, 1.0), (olh, 1.008), (oue, 1.008)]) is olh
    assert lightest([(grr, 1.0), (olh, 1.01), (oue, 1.01)]) is grr
    assert len(ONE_TIME) + len(LONGITUDINAL) < len(registered())
