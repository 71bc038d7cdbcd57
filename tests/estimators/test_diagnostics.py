"""The signs of bent counts: their false alarms, that they see a forger, and that honest change shows as drift."""

import numpy as np
import pytest
from scipy.stats import binom, kstest

from estimators import matrix_inversion
from estimators.diagnostics import drift, fit, mass_below_zero
from mechanisms import LONGITUDINAL, NAMES, CountTable, Longitudinal, Mechanism, mechanism
from mechanisms.arguments import FloatArray

K, N, RUNS = 12, 3000, 400
FREQUENCIES = np.array([0.4, 0.3, 0.2, 0.1] + [0.0] * 8)  # most values never occur, which is where the least count is tested


def build(name: str) -> Mechanism:
    return mechanism(name, k=K, eps_inf=2.0, eps_1=1.0) if name in LONGITUDINAL else mechanism(name, k=K, eps=1.0)


def observe(m: Mechanism, rng: np.random.Generator, steps: int = 1, f: FloatArray = FREQUENCIES) -> CountTable:
    values = rng.choice(K, N, p=f)
    given = m.memoize(values, rng) if isinstance(m, Longitudinal) else values
    table = m.empty_table()
    for _ in range(steps):
        table += m.tabulate(m.report(given, rng))
    return table


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_honest_counts_raise_no_alarm(name: str, steps: int) -> None:
    """How often |z| > 2.58 in 400 runs: at most as often as a standard normal would, but for chance of 1e-6; those that are
    standard normal by themselves (ones, functions) are compared with it wholly, false alarm 1e-6."""
    m, rng = build(name), np.random.default_rng([NAMES.index(name), steps])
    scores = np.array([fit(m, observe(m, rng, steps), steps) for _ in range(RUNS)])
    assert (np.abs(scores) > 2.58).sum() <= binom.ppf(1 - 1e-6, RUNS, 0.0099 if m.table_shape == (K,) else 0.02)
    if name.endswith("UE") or name == "THE":
        assert kstest(scores, "norm").pvalue > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_forger_is_seen(name: str) -> None:
    """One report in ten is made up to push value 11: all ones, the same function and symbol, or the value itself (GRR, SS: with
    everything else empty of it, the others fall below what chance allows)."""
    m, rng = build(name), np.random.default_rng(NAMES.index(name))
    table = observe(m, rng)
    forged, counts = N // 2 if name in ("GRR", "L-GRR", "SS") else N // 10, np.zeros(m.table_shape, np.int64)
    if name == "SS":
        counts[-m.omega :] = forged  # type: ignore[attr-defined]
    elif len(m.table_shape) == 2:
        counts[-1, -1] = forged
    elif name in ("GRR", "L-GRR"):
        counts[-1] = forged
    else:
        counts[:] = forged
    assert abs(fit(m, table)) < 4
    assert abs(fit(m, table + m.table(forged, counts))) > 6


def test_nothing_can_be_said_without_reports() -> None:
    for name in NAMES:
        m = build(name)
        assert np.isnan(fit(m, m.empty_table()))
        assert drift(matrix_inversion(m, m.empty_table()), matrix_inversion(m, observe(m, np.random.default_rng(1)))) is None


def test_the_wrong_table_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a count table"):
        fit(build("GRR"), build("OUE").empty_table())


@pytest.mark.parametrize("name", ["GRR", "L-OSUE", "L-OLH"])
def test_drift_tells_change_from_noise(name: str) -> None:
    """No change: above 5 with probability 12 · 6e-7 a run, so in 200 runs never but for 1.4e-3; a quarter of the people moving:
    mostly above 4, and it is one of the two values that moved."""
    m, rng = build(name), np.random.default_rng(NAMES.index(name))
    moved = FREQUENCIES.copy()
    moved[[0, 11]] += [-0.25, 0.25]
    honest, changed = [], []
    for _ in range(200):
        before, same, other = (matrix_inversion(m, observe(m, rng, f=f)) for f in (FREQUENCIES, FREQUENCIES, moved))
        still, gone = drift(before, same), drift(before, other)
        assert still is not None
        assert gone is not None
        honest.append(still.sigma)
        changed.append((gone.sigma, gone.value))
    assert max(honest) < 5
    assert np.median([sigma for sigma, _ in changed]) > 4
    assert np.mean([value in (0, 11) for _, value in changed]) > 0.9


def test_the_mass_below_zero_is_that_of_the_raw_estimate() -> None:
    m = build("GRR")
    estimate = matrix_inversion(m, observe(m, np.random.default_rng(5)))
    assert mass_below_zero(estimate) == pytest.approx(-estimate.frequencies[estimate.frequencies < 0].sum())
