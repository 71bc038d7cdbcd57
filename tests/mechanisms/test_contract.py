"""Guarantees of every registered mechanism: its channel, its privacy, its count tables and its reports in an envelope."""

import doctest
import importlib
import math
import pkgutil
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream import mechanisms
from ldpstream.mechanisms import NAMES, ONE_TIME, Longitudinal, Mechanism, OneTime
from ldpstream.mechanisms.registry import registered
from ldpstream.surveys import open_envelope, seal
from tests.ldpstream.rooms import INSTALLED, lists, sources
from tests.small_survey import small_survey

from . import reference
from .reference import build, grid

PAIRS = ((0.02, 0.01), (2.0, 1.0), (20.0, 10.0))
EVERY = grid((2, 3, 8), PAIRS)
SMALL = grid((2, 3), PAIRS)
ONE_OF_EACH = grid((5,))
TAKES_TWO = [m for m in EVERY if isinstance(m, Longitudinal)]

each = pytest.mark.parametrize("m", EVERY, ids=repr)
each_small = pytest.mark.parametrize("m", SMALL, ids=repr)
one_of_each = pytest.mark.parametrize("m", ONE_OF_EACH, ids=repr)


def test_the_grid_contains_every_registered_mechanism() -> None:
    assert {m.name for m in EVERY} == set(NAMES)
    assert {m.name for m in TAKES_TWO} == set(NAMES) - set(ONE_TIME)


@pytest.mark.parametrize("name", [one.name for one in pkgutil.walk_packages(mechanisms.__path__, "ldpstream.mechanisms.")])
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@one_of_each
def test_simulated_reports_are_those_of_the_separate_calls(m: Mechanism) -> None:
    """A longitudinal mechanism draws one memo for each person, then draws all the person's reports from this memo."""
    values, rng = np.arange(100) % m.k, np.random.default_rng(1)
    if isinstance(m, Longitudinal):
        memos = m.memoize(values, rng)
        expected = [m.report(memos, rng) for _ in range(3)]
    else:
        assert isinstance(m, OneTime)
        expected = [m.report(values, rng) for _ in range(3)]
    assert np.array_equal(m.simulate(values, np.random.default_rng(1), steps=3), np.concatenate(expected))


# ---- no second list


def test_no_other_module_lists_the_mechanisms() -> None:
    """Only the registry and the families know the names. Code outside them asks the mechanism."""
    paths = {path for room in INSTALLED for path in sources(room)}
    known = {path for path in paths if path.parent.name == "families" or path.name == "registry.py"}
    found = {path: list(lists(path.read_text(encoding="utf-8"), set(registered()))) for path in paths - known}
    assert len(found) > 200
    assert not {path: lines for path, lines in found.items() if lines}
    assert any(list(lists(path.read_text(encoding="utf-8"), set(registered()))) for path in known)


# ---- exact privacy loss


@each
def test_the_channels_rows_are_distributions(m: Mechanism) -> None:
    channel = m.channel()
    assert channel.min() > 0
    np.testing.assert_allclose(channel.sum(axis=1), 1, rtol=0, atol=1e-12)


@each
def test_the_loss_of_a_report_is_exactly_eps_1(m: Mechanism) -> None:
    assert reference.worst_ratio(m.channel()) == pytest.approx(m.eps_1, rel=1e-9, abs=1e-13)
    assert m.eps_t(1) == pytest.approx(m.eps_1, rel=1e-9, abs=1e-13)


def test_eps_1_equals_the_argument_with_exact_calibration() -> None:
    """With exact calibration, `eps_1` equals the argument. For THE, and with the paper's calibration, `eps_1` is at most the
    argument."""
    for k in (2, 3, 8, 1000):
        for eps_inf, eps_1 in PAIRS:
            assert all(build(name, k, eps_inf, eps_1).eps_1 == eps_1 for name in NAMES if name != "THE")
            papers = [build(name, k, eps_inf, eps_1, calibration="paper") for name in ("L-GRR", "L-BLH", "L-OLH")]
            for m in (build("THE", k, eps_inf, eps_1), *papers):
                assert 0 < m.eps_1 <= eps_1 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in NAMES), *((name, {"calibration": "paper"}) for name in ("L-GRR", "L-BLH", "L-OLH"))],
)
def test_the_stated_losses_never_exceed_the_levels(name: str, options: dict[str, str]) -> None:
    """Without rounding tolerance, from the least levels on. Once, a rounding error raised `eps_1` of THE above ε."""
    rng = np.random.default_rng(7)
    for eps_inf in [2e-9, *np.exp(rng.uniform(math.log(2e-9), math.log(20), 300)).tolist()]:
        asked = eps_inf * 0.5
        m = build(name, 5, eps_inf, asked, **options)
        assert 0 < m.eps_1 <= asked
        assert not isinstance(m, Longitudinal) or m.eps_inf == eps_inf


@each
def test_p_and_q_are_the_probabilities_of_support(m: Mechanism) -> None:
    """A GRR report supports its symbol. Bits support the values whose bit is set. A hashed report supports the values that hash
    to the reported symbol."""
    _, supported = reference.all_reports(m)
    matrix = m.channel() @ supported
    np.testing.assert_allclose(matrix, reference.symbols(m.k, m.p, m.q), rtol=0, atol=1e-12)


@each
def test_the_channel_is_the_product_of_the_rounds(m: Mechanism) -> None:
    composed = reference.sequences(m, 1).reshape(m.k, -1)
    np.testing.assert_allclose(m.channel(), composed, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("m", TAKES_TWO, ids=repr)
def test_the_memo_loses_eps_inf(m: Longitudinal) -> None:
    memo, fresh = reference.written(m).rounds(m)
    np.testing.assert_allclose(memo.sum(axis=(1, 2)), 1, atol=1e-12)
    np.testing.assert_allclose(fresh.sum(axis=1), 1, atol=1e-12)
    assert reference.worst_ratio(memo) == pytest.approx(m.eps_inf, rel=1e-9)


@each_small
@pytest.mark.parametrize("t", [1, 2, 3])
def test_eps_t_is_the_loss_of_all_sequences_of_reports(m: Mechanism, t: int) -> None:
    if isinstance(m, Longitudinal):
        assert m.eps_t(t) == pytest.approx(reference.worst_ratio(reference.sequences(m, t)), rel=1e-8)
        assert m.eps_t(t) < m.eps_inf
    else:
        assert m.eps_t(t) == pytest.approx(t * m.eps_1)


@pytest.mark.parametrize("m", TAKES_TWO, ids=repr)
def test_eps_t_rises_to_eps_inf(m: Longitudinal) -> None:
    losses = [m.eps_t(t) for t in (1, 2, 3, 10, 100, 10**6, 10**12)]
    assert losses == sorted(losses)
    assert losses[-1] == pytest.approx(m.eps_inf, rel=1e-12)


def test_too_large_a_dense_channel_is_rejected() -> None:
    for name in NAMES:
        with pytest.raises(ValueError, match="the dense channel of"):
            build(name, reference.most_values(name, 5000), 2.0, 1.0).channel()
    assert build("OUE", 19, 2.0, 1.0).channel().shape == (19, 2**19)


# ---- the automatic choice of a mechanism


@pytest.mark.parametrize("eps_1", [0.1, 0.5, 1.0, 1.9])
def test_allomfrees_rule_is_exact_with_exact_calibration(eps_1: float) -> None:
    """L-GRR has a smaller variance than L-OSUE exactly if k < 3 e^{ε₁} + 2, for any ε∞."""
    for k, eps_inf in product(range(2, 40), (2.0, 6.0)):
        grr, osue = build("L-GRR", k, eps_inf, eps_1), build("L-OSUE", k, eps_inf, eps_1)
        assert (grr.variance() < osue.variance()) == (k < 3 * math.exp(eps_1) + 2)


# ---- count tables


@one_of_each
def test_every_report_is_counted_for_the_values_it_supports(m: Mechanism) -> None:
    rows, supported = reference.all_reports(m)
    for i in range(len(rows)):
        assert np.array_equal(m.support(m.tabulate(rows[i : i + 1])), supported[i])
    assert np.array_equal(m.support(m.tabulate(rows)), supported.sum(axis=0))


@one_of_each
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 60), max_size=5), seed=st.integers(0, 2**32))
def test_tables_add_up_in_any_order(m: Mechanism, cuts: list[int], seed: int) -> None:
    """The sum of the shards' tables is the table of all reports, also if a shard has no report or one report."""
    rng = np.random.default_rng(seed)
    reports = m.simulate(rng.integers(0, m.k, 60), rng)
    edges = [0, *sorted(cuts), 60]
    shards = [m.tabulate(reports[a:b]) for a, b in pairwise(edges)]
    rng.shuffle(shards)
    total = m.empty_table()
    for shard in shards:
        total = total + shard
    assert total == m.tabulate(reports) == m.tabulate(rng.permutation(reports))
    assert total.n == 60
    assert total + m.empty_table() == total == m.empty_table() + total
    assert np.array_equal(m.support(total), sum(m.support(shard) for shard in shards))
    assert m.table_from_bytes(total.to_bytes()) == total == m.table(total.n, total.counts)


@one_of_each
def test_large_batches_give_the_same_counts_as_small_ones(m: Mechanism) -> None:
    """Large batches use different counting code. The batch has an odd size, and one report is by far the most frequent."""
    rng = np.random.default_rng(3)
    reports = m.simulate(rng.integers(0, m.k, 1000), rng)
    reports = np.concatenate([reports[rng.integers(0, 1000, 70_003)], np.repeat(reports[:1], 60_000, axis=0)])
    total = m.empty_table()
    for start in range(0, len(reports), 10_000):
        total = total + m.tabulate(reports[start : start + 10_000])
    assert m.tabulate(reports) == total


@one_of_each
def test_a_table_does_not_share_its_counts(m: Mechanism) -> None:
    table = m.tabulate(m.simulate(np.arange(m.k), np.random.default_rng(1)))
    again, stored = m.table(table.n, table.counts), m.table_from_bytes(table.to_bytes())
    for copy in (again, stored, table + m.empty_table()):
        copy.counts[...] = 0
    assert table.counts.sum() > 0


def test_tables_of_different_mechanisms_cannot_be_added() -> None:
    different = [
        *grid((5, 6), PAIRS[:2]),
        build("L-GRR", 5, 2.0, 0.9),
        build("L-GRR", 5, 2.1, 1.0),
        build("OLH", 5, 2.0, 1.0, g=9),
    ]
    for a, b in combinations(different, 2):
        with pytest.raises(ValueError, match="cannot be added"):
            a.empty_table() + b.empty_table()
        with pytest.raises(ValueError, match="expected a count table of"):
            a.support(b.empty_table())
    twin = build("L-OLH", 5, 2, 1)  # equal parameters, given as integers
    assert (twin.empty_table() + build("L-OLH", 5, 2.0, 1.0).empty_table()).n == 0


@one_of_each
def test_impossible_counts_are_rejected(m: Mechanism) -> None:
    good = m.tabulate(m.simulate(np.arange(m.k), np.random.default_rng(1)))
    impossible: list[tuple[Any, Any]] = [
        (-1, good.counts),
        (good.n, good.counts.astype(float)),
        (good.n, good.counts[:-1]),
        (good.n, good.counts[None]),
        (good.n, good.counts - 10),
        (int(good.counts.max()) - 1, good.counts),
        (good.n, np.full(good.counts.shape, 2**64 - 1, np.uint64)),
        (True, good.counts),
        (2.5, good.counts),
    ]
    if m.marks is not None:  # each report adds the same number to the sum of the counts
        more, less = good.counts.copy(), good.counts.copy()
        more.flat[good.counts.argmin()] += 1
        less.flat[good.counts.argmax()] -= 1
        impossible += [(good.n, more), (good.n, less)]
    for n, counts in impossible:
        with pytest.raises(ValueError):
            m.table(n, counts)
    blob = good.to_bytes()
    for broken in (b"", blob[:-1], blob[:-8], blob + bytes(8), b"\xff" * len(blob)):
        with pytest.raises(ValueError):
            m.table_from_bytes(broken)


@one_of_each
def test_only_rows_that_a_device_can_send_are_valid(m: Mechanism) -> None:
    """Tries all possible rows: of one byte, or of two bytes for hashing."""
    width = m.report_dtype.itemsize
    every = np.arange(256**width).astype(f"<u{width}").view(np.uint8)
    possible = {row.tobytes() for row in reference.all_reports(m)[0]}
    rows = np.frombuffer(every.tobytes(), m.report_dtype)
    assert m.valid(rows).tolist() == [row.tobytes() in possible for row in rows]


@one_of_each
def test_invalid_rows_are_rejected(m: Mechanism) -> None:
    reports = m.simulate(np.arange(m.k), np.random.default_rng(1))
    raw = np.frombuffer(reports.tobytes(), np.uint8)
    wrong = np.frombuffer(raw.tobytes()[: -m.report_dtype.itemsize] + b"\xff" * m.report_dtype.itemsize, m.report_dtype)
    assert m.valid(reports).all()
    assert list(m.valid(wrong)) == [True] * (m.k - 1) + [False]
    with pytest.raises(ValueError, match=f"1 of {m.k} reports are not reports of .*, the first at position {m.k - 1}"):
        m.tabulate(wrong)
    for other in (reports[None], reports[0], np.zeros(3), np.zeros((3, 9), np.uint8), np.zeros(3, bool), np.zeros(3, "u2")):
        with pytest.raises(ValueError, match="must be rows of"):
            m.tabulate(other)


# ---- the envelope


@pytest.mark.parametrize("k", [2, 3, 8, 9, 257])
@pytest.mark.parametrize("name", NAMES)
def test_reports_survive_the_envelope(name: str, k: int) -> None:
    budgets = {"eps": 1.0} if name in ONE_TIME else {"eps_inf": 2.0, "eps_1": 1.0}
    survey = small_survey({"name": "a", "size": k, "level": [{"name": "l", "mechanism": name, **budgets}]})
    m = survey.mechanisms[0][0]
    reports = m.simulate(np.arange(k), np.random.default_rng(k))
    envelope = open_envelope(survey, seal(survey, 0, 0, 0, reports), survey.opens_ms(0))
    assert envelope.n == k
    assert len(envelope.payload) == k * m.report_dtype.itemsize
    arrived = np.frombuffer(envelope.payload, m.report_dtype)
    assert np.array_equal(arrived, reports)
    assert m.tabulate(arrived) == m.tabulate(reports)
