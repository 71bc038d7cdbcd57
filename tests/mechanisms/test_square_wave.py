"""Compares Square Wave with the paper's formulas, its loss with enumeration, its reports with its channel, and its inversion
with dense algebra.

Seeds are fixed. Each of the 6 p-values of the true channel is compared with 1e-9, so with new seeds a correct mechanism would
fail with probability 6e-9. The test of samples has controls that must fail.
"""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from lab.papers.location.dense import DenseReading
from ldpstream.mechanisms import NAMES, NUMERIC, mechanism
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.families.square_wave import SquareWave, best_width, half_width

from .reference import worst_ratio
from .test_sampling import LIMIT, p_value

GRID = [SquareWave(k, eps) for k, eps in product((2, 3, 10, 101), (1e-9, 0.5, 1.0, 2.0, 6.0))]
GRID += [SquareWave(6, 1.0, width) for width in (1, 2, 6)]
each = pytest.mark.parametrize("m", GRID, ids=repr)


def test_the_registry_separates_numeric_and_pure_mechanisms() -> None:
    assert set(NUMERIC) == {"SW"}
    assert not set(NUMERIC) & set(NAMES)
    assert mechanism("SW", 7, eps=1.5, width=3).signature == "SW(k=7, eps=1.5, width=3)"
    assert mechanism("SW", 7, eps=1.5).signature == f"SW(k=7, eps=1.5, width={best_width(7, 1.5)})"


# ---- the channel


@each
def test_the_channel_is_the_papers_with_cells(m: SquareWave) -> None:
    """p is e^ε q, for the L cells from the value on; the L p and (m-L) q sum to 1."""
    q = 1 / (m.width * math.exp(m.eps_1) + m.k - 1)
    expected = np.full((m.k, m.k - 1 + m.width), q)
    for x in range(m.k):
        expected[x, x : x + m.width] = math.exp(m.eps_1) * q
    np.testing.assert_allclose(m.channel(), expected, rtol=1e-13)
    np.testing.assert_allclose(m.channel().sum(axis=1), 1, rtol=1e-14)
    assert m.keep == pytest.approx(m.width * expected.max(), rel=1e-13)


@each
def test_the_loss_and_the_guess_are_those_of_the_channel(m: SquareWave) -> None:
    assert worst_ratio(m.channel()) == pytest.approx(m.eps_1, rel=1e-9, abs=1e-13)
    assert m.eps_t(3) == pytest.approx(3 * m.eps_1)
    assert m.spaced(5, 4).eps_lifetime == pytest.approx(4 * m.eps_1)
    assert m.guess() == pytest.approx(m.channel().max(axis=0).sum() / m.k, rel=1e-12)
    assert 1 / m.k < m.guess() <= guessing.bound(m.eps_1, m.k) * (1 + 1e-12)


@pytest.mark.parametrize("eps", [1e-9, 1e-6, 0.99e-5, 1.01e-5, 1e-3, 0.1, 1.0, 4.0, 30.0, 700.0])
def test_the_half_width_is_the_papers(eps: float) -> None:
    """Compares with the power series of numerator and denominator for small ε, and with the paper's formula otherwise."""
    if eps < 0.5:
        numerator = sum(eps**i * (i - 1) / math.factorial(i) for i in range(2, 30))  # ε e^ε - e^ε + 1
        denominator = 2 * math.exp(eps) * sum(eps**i / math.factorial(i) for i in range(2, 30))
    else:
        e = math.exp(min(eps, 300.0))
        numerator, denominator = eps * e - e + 1, 2 * e * (e - 1 - eps)
    expected = numerator / denominator if eps < 300 else 0.0
    assert half_width(eps) == pytest.approx(expected, rel=1e-9, abs=1e-100)


def test_the_default_width_has_the_largest_bound_of_the_information() -> None:
    """The bound is ln m - H, H the entropy of a report given its value. Rounding loses less than 1 % of the best bound; as a
    control, half the width loses more than 1 %."""
    for k, eps in product((30, 100, 1000), (0.5, 1.0, 2.0)):
        bounds = {}
        for width in range(1, k):
            row = SquareWave(k, eps, width).channel()[0] if k < 1000 else _row(k, eps, width)
            bounds[width] = math.log(row.size) + float(row @ np.log(row))
        best = max(bounds.values())
        assert bounds[best_width(k, eps)] >= 0.99 * best
        assert bounds[max(1, best_width(k, eps) // 2)] < 0.99 * best


def _row(k: int, eps: float, width: int) -> Any:
    row = np.full(k - 1 + width, 1.0)
    row[:width] = math.exp(eps)
    return row / row.sum()


# ---- reports


@pytest.mark.parametrize("k", [4, 300])
def test_reports_follow_the_channel(k: int) -> None:
    m, rng = SquareWave(k, 1.0), np.random.default_rng(20261122)
    for value in (0, k // 2, k - 1):
        counts = m.tabulate(m.report(np.full(200_000, value), rng)).counts
        assert p_value(counts, m.channel()[value]) > LIMIT
        assert p_value(counts, m.channel()[(value + 1) % k]) < LIMIT
        assert p_value(counts, SquareWave(k, 1.1, m.width).channel()[value]) < LIMIT
        assert p_value(counts, SquareWave(k, 0.9, m.width).channel()[value]) < LIMIT


def test_rows_and_tables_are_checked() -> None:
    """k = 200 with L = 102 has 301 cells, hence rows of two bytes."""
    m = SquareWave(200, 1.0)
    assert (m.cells, m.report_dtype, m.table_shape) == (301, np.dtype("<u2"), (301,))
    rows = np.arange(65_536).astype("<u2")
    assert m.valid(rows).tolist() == [cell < 301 for cell in range(65_536)]
    with pytest.raises(ValueError, match="1 of 2 reports are not reports of SW"):
        m.tabulate(rows[300:302])
    table = m.tabulate(rows[:301])
    assert table.counts.tolist() == [1] * 301
    assert m.table_from_bytes(table.to_bytes()) == table
    with pytest.raises(ValueError, match="must sum to 301"):
        m.table(301, np.zeros(301, np.int64))


# ---- the inversion


@each
@pytest.mark.parametrize("fakes", [1, 3])
def test_the_inversion_is_unbiased_with_exact_variances(m: SquareWave, fakes: int) -> None:
    mixed = m.with_fake_data(fakes) if fakes > 1 else m
    assert isinstance(mixed, SquareWave)
    if m.eps_1 > 1e-3:  # for smaller ε, the rows of the dense channel agree to many digits
        np.testing.assert_allclose(mixed.channel() @ mixed.reading.inverse(), np.eye(m.k), atol=1e-9)
        np.testing.assert_allclose(mixed.reading.inverse().sum(axis=1), 1, atol=1e-9)
    f = np.arange(1, m.k + 1) / (m.k * (m.k + 1) / 2)
    dense = DenseReading(m)
    dense.own_inverse = m.reading.inverse()
    general = fakes**2 * dense._inversion_variances(mixed.reading.encoded(f), 7, 3)
    np.testing.assert_allclose(mixed.reading.inversion_variances(f, 7, 3), general, rtol=1e-6)


def test_the_inversion_is_least_squares_on_the_hyperplane() -> None:
    """Of all vectors with sum 1, the inversion predicts shares of the cells that are nearest to the observed shares."""
    m, rng = SquareWave(6, 1.0), np.random.default_rng(3)
    counts = rng.multinomial(1000, np.full(m.cells, 1 / m.cells))
    shares = counts / 1000
    waves = m.channel() > m.far * 1.01
    fitted = m.reading.inversion(m.table(1000, counts))
    residual = (shares - m.far) / (m.near - m.far) - fitted @ waves
    pull = waves @ residual  # the gradient is the same for all values: no change with sum 0 comes nearer
    np.testing.assert_allclose(pull, pull.mean(), atol=1e-9)
    assert fitted.sum() == pytest.approx(1)


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 1025}, r"k must be an integer in \[2, 1024\], got 1025"),
        ({"k": 1}, r"k must be an integer in \[2, 1024\], got 1"),
        ({"eps": 0}, r"eps must be a number in \[1e-09, 700\], got 0"),
        ({"width": 0}, r"width must be an integer in \[1, 5\], got 0"),
        ({"width": 6}, r"width must be an integer in \[1, 5\], got 6"),
    ],
)
def test_bad_arguments_are_rejected_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SquareWave(**{"k": 5, "eps": 1.0} | arguments)
    refused: tuple[dict[str, Any], ...] = ({"g": 3}, {"omega": 2}, {"eps_inf": 2.0}, {"calibration": "exact"})
    for other in refused:
        with pytest.raises(ValueError, match="SW does not take"):
            mechanism("SW", 5, **{"eps": 1.0, **other})
    with pytest.raises(ValueError, match="GRR does not take width"):
        mechanism("GRR", 5, eps=1.0, width=2)
