"""Compares our numbers with published numbers, to every printed digit.

ALLOMFREE is Arcolezi, Couchot, Al Bouna and Xiao, "Improving the Utility of Locally Differentially Private Protocols for
Longitudinal and Multidimensional Frequency Estimates". All numbers are for n = 10 000 and f = 0. A printed number is reproduced
if our number, rounded to the printed decimals, equals the printed number. The paper rounds in two other ways. It truncates
whole numbers: 26706.64 to 26706, and 6.57 to 6. It rounds 2.1277251 to six decimals before it prints 2.12772.

All 188 numbers of ALLOMFREE's Tables 1 and 2 are reproduced. Two rows of Table 1 have misprinted labels. Under the heading
ε₁ = 0.3 ε∞, the last two labels are (ε∞ = 1.0, ε₁ = 0.60) and (ε∞ = 2.0, ε₁ = 1.20). The numbers of these rows belong to
(2.0, 0.60) and (4.0, 1.20).
"""

import math
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal

import pytest

from lab.papers.allomfree_printed import COLUMNS_1, MISPRINTED, TABLE_1
from ldpstream.mechanisms import mechanism

from .reference import build


def reproduces(printed: str, ours: float, rounding: str = ROUND_HALF_EVEN) -> bool:
    """True if our number, rounded to the printed decimals, equals the printed number."""
    unit = Decimal(printed)
    return Decimal(repr(ours)).quantize(unit, rounding) == unit


def in_table_1(printed: str, ours: float) -> bool:
    """Like `reproduces`, with the paper's rounding: our number is first rounded to six decimals, and whole numbers are
    truncated."""
    if "." not in printed:
        return reproduces(printed, ours, ROUND_DOWN)
    return reproduces(printed, float(Decimal(ours).quantize(Decimal("0.000001"), ROUND_HALF_EVEN)))


def test_two_labels_of_allomfree_table_1_are_misprinted() -> None:
    """With the printed labels, four numbers would differ: those of L-GRR for k = 32 and 1024, and those of two unary
    encodings."""
    for label, row in ((MISPRINTED[row[0]], row) for row in TABLE_1 if row[0] in MISPRINTED):
        as_labelled = [build(name, k, *label, calibration="paper").variance(n=10_000) for name, k in COLUMNS_1]
        same = [in_table_1(printed, ours) for printed, ours in zip(row[2:], as_labelled)]
        assert same == [True, False, False, True, True, False, False]


# ---- formulas in closed form


@pytest.mark.parametrize("k", [2, 32, 1024])
@pytest.mark.parametrize("eps_1", [0.05, 0.5, 1.0, 2.4])
@pytest.mark.parametrize("ratio", [1.05, 1.7, 2.0, 10.0])
def test_the_first_report_is_as_good_as_the_one_time_mechanism(k: int, eps_1: float, ratio: float) -> None:
    """With exact calibration, memoization does not reduce the accuracy of the first step."""
    for chain, single in (("L-GRR", "GRR"), ("L-SUE", "SUE"), ("L-OSUE", "OUE"), ("L-BLH", "BLH"), ("L-OLH", "OLH")):
        longitudinal, one_time = build(chain, k, ratio * eps_1, eps_1), build(single, k, ratio * eps_1, eps_1)
        assert (longitudinal.p, longitudinal.q) == pytest.approx((one_time.p, one_time.q), rel=1e-12)
        assert longitudinal.variance(0.3, 100) == pytest.approx(one_time.variance(0.3, 100), rel=1e-9)


@pytest.mark.parametrize("eps", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_variances_of_wang_blocki_li_and_jha(eps: float) -> None:
    """Compares with n Var* of Table 1 (2017): GRR (direct encoding), SUE, OUE, BLH and OLH. The formula for OLH uses a real
    g = e^ε + 1. Our variance, for the best prime power, is less than 2 % above this formula."""
    e = math.exp(eps)
    assert mechanism("GRR", 50, eps=eps).variance(n=1) == pytest.approx((50 - 2 + e) / (e - 1) ** 2)
    assert mechanism("SUE", 50, eps=eps).variance(n=1) == pytest.approx(math.exp(eps / 2) / (math.exp(eps / 2) - 1) ** 2)
    optimal = 4 * e / (e - 1) ** 2
    assert mechanism("OUE", 50, eps=eps).variance(n=1) == pytest.approx(optimal)
    assert 1 <= mechanism("OLH", 50, eps=eps).variance(n=1) / optimal < 1.02
    assert mechanism("BLH", 50, eps=eps).variance(n=1) == pytest.approx((e + 1) ** 2 / (e - 1) ** 2)
