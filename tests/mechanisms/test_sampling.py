"""Tests that random reports follow the stated distributions, and that the tests detect wrong distributions.

Seeds are fixed. Every p-value is compared with `LIMIT`. There are about 4000 p-values, most of them for single bits. With new
seeds, a correct mechanism would fail with probability 4e-6. Each test with p-values or scores has a control that must fail: a
wrong mechanism or parameter.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from ldpstream.mechanisms import LONGITUDINAL, NAMES, Longitudinal, Mechanism
from ldpstream.mechanisms.arguments import IntArray, Reports
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing
from ldpstream.mechanisms.kernels.bits import bernoulli_rows, padding_mask
from ldpstream.mechanisms.kernels.random_kernels import _uniform, settle

from . import reference
from .reference import Floats, build

LIMIT = 1e-9
N = 60_000
LOW_BITS = 12_345
BITWISE = tuple(name for name in NAMES if build(name, 5, 2.0, 1.0).report_dtype.shape)


def p_value(counts: IntArray, expected: Floats) -> float:
    """p-value of a chi-squared test of counts against a distribution. Outcomes with an expected count below 10 are merged."""
    expected = expected.ravel() * counts.sum()
    rare = expected < 10
    observed = np.append(counts.ravel()[~rare], counts.ravel()[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    seen = expected > 0
    assert not observed[~seen].any()
    return float(stats.chisquare(observed[seen], expected[seen], sum_check=False).pvalue)


def bits_of(m: Mechanism, rows: Reports) -> npt.NDArray[np.int64]:
    return np.unpackbits(rows, axis=1, count=m.k, bitorder="little").astype(np.int64)


# ---- one and two reports of a person, jointly


def two_reports(m: Mechanism, values: IntArray, rng: np.random.Generator, keep: bool = True) -> tuple[Reports, Reports]:
    """Two reports of each value, from the same memo. With `keep` false, the two reports wrongly come from two memos."""
    if not isinstance(m, Longitudinal):
        return m.simulate(values, rng), m.simulate(values, rng)
    enrolment = m.enroll(len(values), rng)
    memo = m.memoize(values, rng, enrolment)
    return m.report(memo, rng), m.report(memo if keep else m.memoize(values, rng, enrolment), rng)


def joint_counts(m: Mechanism, first: Reports, second: Reports) -> IntArray:
    """Number of occurrences of each pair of reports, in the order of `reference.sequences`."""
    a, b = reference.column_of(m, first), reference.column_of(m, second)
    blocks, states = reference.sequences(m, 1).shape[1:]
    assert np.array_equal(a // states % blocks, b // states % blocks)  # a device keeps its hash function
    cells = (a // states % blocks) * states**2 + (a % states) * states + b % states
    return np.bincount(cells, minlength=blocks * states**2)


@pytest.mark.parametrize("name", NAMES)
def test_two_reports_of_a_person_follow_the_rounds(name: str) -> None:
    m = build(name, 3, 2.0, 1.0)
    rng = np.random.default_rng(20240601)
    for value in (0, 2):
        counts = joint_counts(m, *two_reports(m, np.full(N, value), rng))
        assert p_value(counts, reference.sequences(m, 2)[value]) > LIMIT
        for wrong in (0.9, 1.1):
            other = build(name, 3, 2.0, wrong)
            assert p_value(counts, reference.sequences(other, 2)[value]) < LIMIT
        assert p_value(counts, reference.sequences(m, 2)[1]) < LIMIT
        if isinstance(m, Longitudinal):
            redrawn = joint_counts(m, *two_reports(m, np.full(N, value), rng, keep=False))
            assert p_value(redrawn, reference.sequences(m, 2)[value]) < LIMIT


@pytest.mark.parametrize("name", ["GRR", "L-GRR", "OLH", "L-OLH"])
@pytest.mark.parametrize("k", [2, 257])
def test_symbols_of_one_and_two_bytes_follow_the_channel(name: str, k: int) -> None:
    """Tests all symbols (pairs of function and symbol for hashing) with widths of one and two bytes."""
    m = build(name, k, 6.0, 3.0, **({"g": 2 if k == 2 else 5} if name.endswith("LH") else {}))
    rng = np.random.default_rng(20240603)
    counts = m.tabulate(two_reports(m, np.full(N, k - 1), rng)[0]).counts
    assert p_value(counts, m.channel()[k - 1]) > LIMIT
    assert p_value(counts, m.channel()[0]) < LIMIT


# ---- bits, one by one


def bit_p_values(m: Mechanism, rows: Reports, value: int) -> list[float]:
    """Exact binomial test of every bit."""
    ones = bits_of(m, rows).sum(axis=0)
    return [stats.binomtest(int(c), len(rows), m.p if v == value else m.q).pvalue for v, c in enumerate(ones)]


class LastBitInClear:
    """Reproduces a fault of another library: the last bit is never randomized."""

    def __init__(self, m: Mechanism) -> None:
        self.m = m

    def report(self, values: IntArray, rng: np.random.Generator) -> Reports:
        rows = self.m.simulate(values, rng)
        last = bits_of(self.m, rows)
        last[:, -1] = values == self.m.k - 1
        return np.packbits(last, axis=1, bitorder="little")


@pytest.mark.parametrize("name", BITWISE)
@pytest.mark.parametrize("k", [13, 129])
def test_every_bit_is_randomized(name: str, k: int) -> None:
    m, n = build(name, k, 2.0, 1.0), 1500
    rng = np.random.default_rng(20240604)
    for value in (0, k - 1):
        rows, _ = two_reports(m, np.full(n, value), rng)
        assert min(bit_p_values(m, rows, value)) > LIMIT
        assert bit_p_values(m, rows, (value + 1) % k)[value] < LIMIT
        broken = bit_p_values(m, LastBitInClear(m).report(np.full(n, value), rng), value)
        assert np.flatnonzero(np.array(broken) < LIMIT).tolist() == [k - 1]


# ---- independence of bits, neighbouring reports, people and calls


def largest_correlation(x: Floats, y: Floats) -> float:
    """Largest standard score of the correlations between columns of x and of y, except between a column and itself."""
    scores = (x.T @ y) / np.sqrt(len(x))
    if x is y:
        np.fill_diagonal(scores, 0)
    return float(np.abs(scores).max())


def independence(m: Mechanism, rows: Reports, value: int) -> dict[str, float]:
    """Largest correlation scores between bits of one report, and between bits of two adjacent reports. Each score is the
    largest of k² pairs."""
    mean = np.where(np.arange(m.k) == value, m.p, m.q)
    z = (bits_of(m, rows) - mean) / np.sqrt(mean * (1 - mean))
    return {"within": largest_correlation(z, z), "next row": largest_correlation(z[:-1], z[1:])}


@pytest.mark.parametrize("name", tuple(name for name in BITWISE if name != "SS"))
def test_bits_and_rows_are_independent(name: str) -> None:
    """Pr[|score| > 7.8] is 6e-15, so one of the 25 285 pairs of bits exceeds 7.8 with probability 2e-10."""
    m = build(name, 130, 2.0, 1.0)
    rows, _ = two_reports(m, np.full(10_000, 77), np.random.default_rng(20240605))
    assert max(independence(m, rows, 77).values()) < 7.8
    copied = bits_of(m, rows)
    copied[:, 65] = copied[:, 3]
    assert independence(m, np.packbits(copied, axis=1, bitorder="little"), 77)["within"] > 7.8
    repeated = rows.copy()
    repeated[1::2, 5] = repeated[::2, 5]
    assert independence(m, repeated, 77)["next row"] > 7.8


def drawn_subsets(k: int, omega: int, values: IntArray, with_value: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The bits of subsets with or without these values, (n, k)."""
    alone = np.packbits(np.arange(k) == values[:, None], axis=1, bitorder="little")
    rng = np.random.default_rng([k, omega])
    rows = bernoulli_rows(omega / k, len(values), k, rng)
    settle(rows, alone, with_value.astype(np.int64), omega, k, rng.integers(0, 2**64, 4, np.uint64))
    assert not (rows[:, -1] & ~np.uint8(padding_mask(k))).any()
    return np.unpackbits(rows, axis=1, count=k, bitorder="little").astype(np.int64)


@pytest.mark.parametrize("omega", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("value", [0, 4, 5])
def test_all_subsets_are_drawn_equally_often(omega: int, value: int) -> None:
    """Tests all sets with the value, and all sets without it. Control: twice the chance for one of the sets."""
    for own in (True, False):
        bits = drawn_subsets(6, omega, np.full(N, value), np.full(N, own))
        assert (bits.sum(axis=1) == omega).all()
        assert (bits[:, value] == own).all()
        others = np.delete(bits, value, axis=1) @ (1 << np.arange(5))
        possible = [number for number in range(32) if number.bit_count() == omega - own]
        counts = np.bincount(others, minlength=32)[possible]
        assert counts.sum() == N
        if len(possible) > 1:
            assert p_value(counts, np.full(len(possible), 1 / len(possible))) > LIMIT
            wrong = np.r_[2.0, np.ones(len(possible) - 1)]
            assert p_value(counts, wrong / wrong.sum()) < LIMIT


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 100, 2**31 + 1, 2**32 - 1])
def test_equally_many_words_give_each_integer(limit: int) -> None:
    """Consecutive words give the same integer. Where there is one word more than for other integers, the first is rejected."""
    shortest = 2**32 // limit

    def words(integer: int) -> range:
        return range(*(-(-i * 2**32 // limit) for i in (integer, integer + 1)))

    for integer in {*range(min(limit, 50)), *range(max(0, limit - 50), limit)}:
        mine, next_one = words(integer), (integer + 1) % limit
        rejected = len(mine) - shortest
        for i in {0, rejected, len(mine) - 1}:
            state = sfc64_state(mine[i] << 32 | LOW_BITS, words(next_one)[-1] << 32)
            found, low_bits, *_, drawn = _uniform(limit, *state)
            assert (found, low_bits) == ((next_one, 0) if i < rejected else (integer, LOW_BITS))
            assert drawn == (2 if i < rejected else 1)  # number of words


def sfc64_state(first: int, second: int) -> npt.NDArray[np.uint64]:
    """Returns a state from which SFC64 draws these two words: a + b + n, then (c + 8 c) + n."""
    return np.array([first, 0, (second - 1) * pow(9, -1, 2**64) % 2**64, 0], np.uint64)


def test_people_and_calls_draw_separate_noise() -> None:
    """Two reports of a person and two calls in a row draw new noise. The same seed draws the same noise."""
    for name in NAMES:
        m = build(name, 50, 2.0, 1.0)
        values = np.full(2000, 7)

        def run(seed: int, m: Mechanism = m, values: Any = values) -> list[bytes]:
            rng = np.random.default_rng(seed)
            return [r.tobytes() for pair in (two_reports(m, values, rng), two_reports(m, values, rng)) for r in pair]

        assert len(set(run(1) + run(2))) == 8
        assert run(1) == run(1)


def test_enrolment_is_uniform_and_memo_keys_are_the_hashes() -> None:
    """Devices' functions are uniform. A memo contains its device's function, and its key is the hashed symbol."""
    m = LongitudinalHashing("L-OLH", 20, 2.0, 1.0, g=3)
    rng = np.random.default_rng(20240607)
    enrolment = m.enroll(N, rng)
    assert p_value(np.bincount(enrolment, minlength=27), np.full(27, 1 / 27)) > LIMIT
    assert p_value(np.bincount(rng.integers(0, 26, N), minlength=27), np.full(27, 1 / 27)) < LIMIT  # control: one is missing
    values = rng.integers(0, 20, N)
    keys = m.memo_keys(values, enrolment)
    assert np.array_equal(keys, reference.hashes(3, 20)[enrolment, values])
    assert keys.max() < m.max_memos == 3
    memo = m.memoize(values, rng, enrolment)
    assert np.array_equal(memo["function"], enrolment)
    assert np.mean(memo["symbol"] == keys) == pytest.approx(m.p1, abs=0.01)
    few = LongitudinalHashing("L-OLH", 2, 2.0, 1.0)
    assert (few.n_keys, few.max_memos) == (4, 2)
    for name in ("L-GRR", "L-OSUE"):
        other = LONGITUDINAL[name](k=20, eps_inf=2.0, eps_1=1.0)
        assert not other.enroll(5, rng).any()
        assert np.array_equal(other.memo_keys(values[:5], other.enroll(5, rng)), values[:5])
        assert other.max_memos == 20
