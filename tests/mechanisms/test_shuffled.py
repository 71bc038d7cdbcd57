"""The loss for an observer of reports without senders: its bounds against every possible table of a few reports, for all values
of all people, and the sizes for many reports."""

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable
from functools import reduce

import numpy as np
import pytest

from lab.audit.events import events
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.claims.evidence import Evidence, loss_of
from ldpstream.mechanisms.families.local_hashing import LongitudinalHashing
from ldpstream.mechanisms.families.memoized_subset import LongitudinalSubset
from ldpstream.mechanisms.families.square_wave import SquareWave
from ldpstream.mechanisms.ledger.loss_distribution import joined_loss
from ldpstream.mechanisms.ledger.shuffled import Blanket, shuffled_loss, table_delta

from .reference import all_reports, grid, written
from .table_enumeration import LOSSES, Distribution, delta, exact, table_distribution

MOST = 3000  # tables of others' reports, for all their values


def crowd(m: Mechanism) -> int:
    """The number of reports in a table that can be enumerated, at most 6."""
    outputs = len(all_reports(m)[0])
    return max((n for n in range(2, 7) if math.comb(outputs + n - 2, n - 1) * math.comb(m.k + n - 2, n - 1) <= MOST), default=0)


GRID = [m for m in (*grid((2, 3, 4)), *(SquareWave(4, 1.0, width) for width in (1, 2, 3))) if m.claims.blanket is not None]
REPORTS = [(m, crowd(m)) for m in GRID if crowd(m)]


def bounds(blanket: Blanket, n: int) -> list[float]:
    return [table_delta(blanket, n, eps) for eps in LOSSES]


def test_every_mechanism_that_states_a_blanket_is_compared() -> None:
    assert {m.name for m in GRID} == {m.name for m, _ in REPORTS}


def blanket_of(m: Mechanism) -> Blanket:
    assert m.claims.blanket is not None
    return m.claims.blanket


def memo_blanket_of(m: Mechanism) -> Blanket:
    assert m.claims.memo_blanket is not None
    return m.claims.memo_blanket


@pytest.mark.parametrize(("m", "n"), REPORTS, ids=lambda x: str(x))
def test_no_table_of_a_few_reports_exceeds_the_bound(m: Mechanism, n: int) -> None:
    pairs = zip(exact(m.channel(), n), bounds(blanket_of(m), n), strict=True)
    assert all(found <= bound + 1e-15 for found, bound in pairs)
    alone = [math.fsum(np.maximum(m.channel()[0] - math.exp(eps) * m.channel()[-1], 0)) for eps in LOSSES]
    assert bounds(blanket_of(m), 1) == pytest.approx(alone, abs=1e-12)  # the loss of a single report, without other people


def variation_ratio(n: int, k: int, eps_1: float, eps: float) -> float:
    """δ of the published pair for GRR with three outcomes: v, v' and the rest. Each other report is v or v' with probability q
    each."""
    q = 1 / (math.exp(eps_1) + k - 1)
    p = math.exp(eps_1) * q
    others, rest = np.array([q, q, 1 - 2 * q]), 1 - p - q
    of_v, of_other = ([row, *[others] * (n - 1)] for row in (np.array([p, q, rest]), np.array([q, p, rest])))
    return delta(table_distribution(of_v), table_distribution(of_other), eps)


def test_the_published_pair_is_no_bound() -> None:
    """The control of the test above: the same comparison fails for the pair."""
    m = mechanism("GRR", 4, eps=1.0)
    (found,) = exact(m.channel(), 4, [0.5])
    pair = variation_ratio(4, 4, 1.0, 0.5)
    assert (round(found, 4), round(pair, 4)) == (0.0472, 0.04)
    assert pair < found <= table_delta(blanket_of(m), 4, 0.5)


@pytest.mark.parametrize("m", [m for m, _ in REPORTS], ids=str)
def test_the_blanket_is_the_common_part_of_the_reports(m: Mechanism) -> None:
    blanket, channel = blanket_of(m), m.channel()
    if events(m).independent_bits:
        hits = np.arange(channel.shape[1]) >> np.arange(m.k)[:, None] & 1 == 1
    else:
        hits = np.isclose(channel, channel.max())
    common = np.where(hits, channel * math.exp(-blanket.eps), channel)
    np.testing.assert_allclose(common, common[[0] * m.k], rtol=1e-12)
    distribution = common[0] / common[0].sum()
    assert common[0].sum() == pytest.approx(blanket.share)
    assert hits @ distribution == pytest.approx(np.full(m.k, blanket.hit))
    both = np.where(hits, distribution, 0) @ hits.T
    assert both[~np.eye(m.k, dtype=bool)].min() == pytest.approx(blanket.both, abs=1e-15)


def sums(blanket: Blanket, n: int, eps: float) -> float:
    """E[(V₁ + … + V_n)₊] / n, term by term."""
    x, gain, share, terms = math.exp(eps), math.expm1(blanket.eps), blanket.share, []
    one, none = blanket.hit - blanket.both, 1 - 2 * blanket.hit + blanket.both
    for m in range(1, n + 1):
        of_m = math.comb(n, m) * share**m * (1 - share) ** (n - m)
        for a, b in itertools.product(range(m + 1), repeat=2):
            for c in range((m - a - b if blanket.both else 0) + 1 if a + b <= m else 0):
                rest = m - a - b - c
                ways = math.comb(m, a) * math.comb(m - a, b) * math.comb(m - a - b, c)
                value = m * (1 - x) + gain * (a + c - x * (b + c))
                terms.append(of_m * ways * one ** (a + b) * blanket.both**c * none**rest * max(value, 0))
    return math.fsum(terms) / n


@pytest.mark.parametrize(
    ("blanket", "most"),
    [
        (Blanket(1.0, 1 / 4, 0.0), 40), (Blanket(2.0, 0.01, 0.0), 40), (Blanket(1.5, 0.3, 0.09), 15),
        (Blanket(8.0, 0.3, 0.0), 25), (Blanket(4.6, 0.17, 0.03), 12), (Blanket(0.02, 0.005, 0.0), 25),
    ],
    ids=str,
)  # fmt: skip
def test_the_bound_is_the_sum_rounded_up(blanket: Blanket, most: int) -> None:
    for n, share in itertools.product((2, 7, most), (0.0, 0.01, 0.3, 0.9, 0.999)):
        found, term_by_term = table_delta(blanket, n, share * blanket.eps), sums(blanket, n, share * blanket.eps)
        assert term_by_term <= found <= term_by_term * 1.1 + 1e-9


@pytest.mark.parametrize(("k", "eps_1"), [(2, 1.0), (3, 0.5), (3, 2.0)])
@pytest.mark.parametrize("tables", [2, 3])
def test_no_tables_together_exceed_the_bound(k: int, eps_1: float, tables: int) -> None:
    """All values of the others in each table, and a person whose values differ in each table."""
    m, n = mechanism("GRR", k, eps=eps_1), 3
    bound = shuffled_loss(blanket_of(m), n, tables, 1e-6)
    assert bound is not None
    crowds = list(itertools.combinations_with_replacement(range(k), n - 1))
    distributions = {others: [table_distribution(m.channel()[[v, *others]]) for v in (0, 1)] for others in crowds}
    once = shuffled_loss(blanket_of(m), n, 1, 1e-6)
    assert once is not None
    reached, exceeded = [], False
    for chosen in itertools.combinations_with_replacement(crowds, tables):
        p, q = (
            [math.prod(chances) for chances in itertools.product(*(distributions[o][v].values() for o in chosen))]
            for v in (0, 1)
        )
        for eps in (0.0, 0.1, 0.5, 1.0, 2.0):
            found = math.fsum(np.maximum(np.array(p) - math.exp(eps) * np.array(q), 0))
            assert found <= bound.delta(eps)
            reached.append(found / bound.delta(eps))
            exceeded = exceeded or found > once.delta(eps)
    assert max(reached) > 0.8
    assert exceeded  # control: the bound of one table does not hold for several


def two_tables(devices: Iterable[FloatArray]) -> Distribution:
    """Distribution of two tables; a device has a matrix with the probabilities of its pairs of reports, one for each table."""
    matrices, distribution = list(devices), Counter[Hashable]()
    for pairs, chance in table_distribution([matrix.ravel() for matrix in matrices]).items():
        grid = np.reshape(np.array(pairs), matrices[0].shape)
        distribution[tuple(grid.sum(axis=1).tolist()), tuple(grid.sum(axis=0).tolist())] += chance  # type: ignore[assignment]  # a Counter of floats
    return distribution


def largest(one: Iterable[FloatArray], other: Iterable[FloatArray], eps: float) -> float:
    """Returns the δ between the two tables of one set of devices and those of another set: the larger of both directions."""
    p, q = two_tables(one), two_tables(other)
    return max(delta(p, q, eps), delta(q, p, eps))


@pytest.mark.parametrize(
    ("name", "k", "n", "steps"),
    [("L-GRR", 2, 4, 2), ("L-GRR", 3, 3, 2), ("L-GRR", 2, 3, 3), ("L-SUE", 2, 3, 2), ("L-BLH", 2, 3, 2)],
)
def test_linked_reports_of_unchanged_memos_lose_no_more_than_the_memos(name: str, k: int, n: int, steps: int) -> None:
    """Behind a relay, an observer may link the reports of a memo. So the reports of all steps count as one output."""
    m = mechanism(name, k, eps_inf=2.0, eps_1=1.8)
    memos, kernel = written(m).rounds(m)
    first, second = memos.reshape(k, -1), np.kron(np.eye(memos.shape[1]), kernel)
    lives = np.array([reduce(np.multiply.outer, [row] * steps).ravel() for row in second])
    found, bound = exact(first @ lives, n), bounds(memo_blanket_of(m), n)
    assert all(loss <= most + 1e-15 for loss, most in zip(found, bound, strict=True))
    of_one_report = bounds(blanket_of(m), n)  # the control: this bound does not hold
    assert any(loss > once for loss, once in zip(found, of_one_report, strict=True))


@pytest.mark.parametrize(("name", "tables"), [("GRR", 2), ("OUE", 8)])
def test_joined_losses_are_near_those_of_so_many_tables(name: str, tables: int) -> None:
    """Each of the observations is one of two, of which the other reveals less."""
    m = mechanism(name, 4, eps=1.0)
    once, less, many = (m.claims.shuffled(t, n, 1e-9) for t, n in ((1, 1000), (1, 9000), (tables, 1000)))
    joined = joined_loss(((once, less),) * tables)
    for eps in np.linspace(0, many.eps(1e-9), 20).tolist():
        assert many.delta(eps) * 0.97 <= joined.delta(eps) <= many.delta(eps) * 1.03 + 1e-11
    assert joined.guess(4) == pytest.approx(many.guess(4), rel=1e-3)
    assert joined_loss(((once,),)) is once


def test_the_error_of_the_calculation_is_far_below_delta() -> None:
    """All probability beyond the largest loss, at the default δ and below it, is at most a tenth of δ up to 1000 reports."""
    for t, n, delta_ in itertools.product((1, 45, 1000), (100, 100_000), (1e-9, 1e-6)):
        assert mechanism("GRR", 4, eps=1.0).claims.shuffled(t, n, delta_).infinite < delta_ / 10


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tables_of_answers_with_fake_data_lose_no_more_than_true_answers(n: int) -> None:
    """RS+FD with two attributes of two values: the two tables, of persons who differ in both values."""
    m = mechanism("GRR", 2, eps=1.5).with_fake_data(2)
    true, fake, bound = m.device.channel(), np.full(2, 1 / 2), bounds(blanket_of(m.device), n)
    answers = {(v, w): (np.outer(true[v], fake) + np.outer(fake, true[w])) / 2 for v in (0, 1) for w in (0, 1)}
    for others in itertools.combinations_with_replacement(answers.values(), n - 1):
        for eps, found in zip(LOSSES, bound, strict=True):
            assert largest([answers[0, 0], *others], [answers[1, 1], *others], eps) <= found + 1e-15


def test_the_memos_have_the_blanket_of_the_one_time_mechanism() -> None:
    for name, once in (("L-GRR", "GRR"), ("L-SUE", "SUE"), ("L-SOUE", "SUE"), ("L-OSUE", "OUE"), ("L-OUE", "OUE")):
        assert mechanism(name, 7, eps_inf=2.0, eps_1=0.5).claims.memo_blanket == mechanism(once, 7, eps=2.0).claims.blanket
    sets = LongitudinalSubset(7, 2.0, 0.5, memo_size=2, omega=3)
    assert sets.claims.memo_blanket == mechanism("SS", 7, eps=2.0, omega=2).claims.blanket
    m = mechanism("L-OLH", 100, eps_inf=2.0, eps_1=1.0)
    assert isinstance(m, LongitudinalHashing)
    assert m.claims.memo_blanket == mechanism("OLH", 100, eps=2.0, g=m.g).claims.blanket
    assert mechanism("GRR", 7, eps=2.0).claims.memo_blanket is None


@pytest.mark.parametrize("name", ["GRR", "OLH", "OUE", "SS", "SW"])
def test_extreme_arguments_have_a_bound(name: str) -> None:
    for eps, tables, n in itertools.product((1e-9, 1e-4, 20.0, 700.0), (60,), (2, 10**15)):
        m = mechanism(name, 50, eps=eps)
        loss = m.claims.shuffled(tables, n, 1e-6)
        assert loss.eps(1e-6) >= 0
        assert 1 / 50 <= loss.guess(50) <= joined_loss(((loss,), (loss,))).guess(50) + 1e-6 <= 1 + 1e-6
    assert m.claims.shuffled(10**9, n, 1e-6).guess(50) == 1.0


@pytest.mark.parametrize("tables", [1, 20, 300])
def test_tables_of_a_single_report_lose_what_the_reports_lose(tables: int) -> None:
    """The loss of a report of GRR is 1, 0 or -1 nat, so the loss of several has an exact distribution."""
    m = mechanism("GRR", 4, eps=1.0)
    found, distribution = shuffled_loss(blanket_of(m), 1, tables, 1e-6), np.ones(1)
    assert found is not None
    for _ in range(tables):
        distribution = np.convolve(distribution, [m.q, 1 - m.p - m.q, m.p])
    losses = np.arange(-tables, tables + 1)
    for eps in (0.0, 0.5, 0.3 * tables, 0.5 * tables, 0.7 * tables):
        known = float(distribution @ -np.expm1(np.minimum(eps - losses, 0)))
        assert known <= found.delta(eps) <= known * 1.02 + 1e-9


@pytest.mark.parametrize(("largest", "delta"), [(3e-9, 1e-9), (1e-8, 5e-10), (1e-6, 1e-8), (0.5, 1e-10)])
def test_rounding_never_lowers_a_small_loss(largest: float, delta: float) -> None:
    """The exact ε has (1 - e^{ε - largest}) / (1 + e^{-largest}) = δ."""
    exact = largest + math.log1p(-delta * (1 + math.exp(-largest)))
    assert exact <= loss_of(Evidence.of_loss(largest)).eps(delta) <= exact + 3e-14


def test_joined_losses_keep_the_chances_that_everything_is_revealed() -> None:
    one = loss_of(Evidence.of_loss(1.0)).or_certain(0.05)
    joined = joined_loss(((one,), (one, loss_of(Evidence.of_loss(0.5)))))
    assert joined.delta(60.0) == pytest.approx(1 - 0.95**2)
