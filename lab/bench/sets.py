"""Questions with several answers: the error of padding and sampling beside its rivals, and coverage of its intervals.

All mechanisms lose at most ε between any two sets of at most m of n values. The variances are exact, for the share of a value:

    PS-GRR     `mechanisms.families.padded_sampling`
    PrivSet    a report is a subset of ω of the n + m symbols; it is e^ε times as likely if it has t or more members of the
               padded set. Wang et al. 2018 have t = 1
    unary      each value is a bit of its own; two sets differ in up to min(2m, n) bits
    listed     each set is a value of its own, reported by GRR at ε; a value's share is the sum over its sets
    PS, SS     padding and sampling with one dummy; the drawn member by subset selection at ε
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np
from rich.table import Table
from scipy.optimize import minimize_scalar

from ldpstream.estimators.empirical_bayes import empirical_bayes
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.maximum.likelihood import ibu
from ldpstream.estimators.sets import mean_choices
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.families.subset import RandomSubset, best_omega
from ldpstream.mechanisms.sets import MAX_SET_VALUES, n_sets
from ldpstream.mechanisms.wording import plural

SIZES = ((2, 2), (5, 2), (5, 5), (10, 3), (20, 3), (30, 3), (30, 10), (100, 3))
ERRORS = [(n, m, eps) for n, m in SIZES for eps in (1.0, 2.0, 4.0)]
PEOPLE = 10_000
COVERED = [  # n, m, ε, people, memoized, reports of a person
    (2, 2, 1.0, 1000, False, 1), (2, 2, 2.0, 1000, True, 1), (2, 1, 1.0, 100_000, False, 1), (5, 2, 1.0, 1000, False, 1),
    (5, 5, 2.0, 10_000, True, 1), (10, 3, 1.0, 10_000, False, 1), (10, 3, 1.0, 100_000, True, 1),
    (10, 3, 4.0, 10_000, False, 1), (30, 3, 2.0, 100_000, False, 1), (30, 10, 4.0, 100_000, True, 1),
    (5, 3, 4.0, 5000, False, 7), (5, 5, 2.0, 10_000, True, 7), (10, 3, 1.0, 10_000, False, 2), (10, 3, 4.0, 10_000, False, 7),
    (10, 3, 2.0, 10_000, True, 7), (30, 10, 4.0, 20_000, False, 7),
]  # fmt: skip


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Standard errors of a value's share for one setting, with `PEOPLE` people; `omega` and `least` are PrivSet's ω and t."""

    n: int
    m: int
    eps: float
    padded: float
    privset: float
    omega: int
    least: int
    unary: float
    listed: float
    sampled: float


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the 95 % intervals that contain the truth.

    Attributes:
        reports: number of reports of each person, with an unchanged set.
        values, lowest: of the default estimate for all shares of people, and for the share with the lowest coverage.
        inversion, likely: of the matrix inversion and of IBU, for all shares.
        mean: of the mean number of values.
        error, stated: root of the mean squared error of the inversion, measured and as its standard errors say.
    """

    n: int
    m: int
    eps: float
    people: int
    mechanism: str
    reports: int
    runs: int
    values: float
    lowest: float
    inversion: float
    likely: float
    mean: float
    error: float
    stated: float


def errors() -> list[Errors]:
    return [_errors(n, m, eps) for n, m, eps in ERRORS]


def _errors(n: int, m: int, eps: float) -> Errors:
    privset, omega, least = min(
        (found, omega, least)
        for omega in range(1, n + m)
        for least in range(1, min(omega, m) + 1)
        if (found := _privset(n, m, eps, omega, least)) is not None
    )
    one = _privset(n, m, eps, 1, 1)
    assert one is not None
    drawn = RandomSubset(n + 1, best_omega(n + 1, eps), eps)
    inside, outside = drawn.p, drawn.q
    return Errors(
        n=n, m=m, eps=eps, padded=_error(one), privset=_error(privset), omega=omega, least=least,
        unary=_error(_unary(n, m, eps)), listed=_error(_listed(n, m, eps)),
        sampled=_error(_variance((inside + (m - 1) * outside) / m, outside, n, m)),
    )  # fmt: skip


def _error(variance: float) -> float:
    return math.sqrt(variance / PEOPLE)


def _variance(p: float, q: float, n: int, m: int) -> float:
    share = m / 2 / n
    return (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2


def _privset(n: int, m: int, eps: float, omega: int, least: int) -> float | None:
    ways = [math.comb(m, j) * math.comb(n, omega - j) for j in range(min(m, omega) + 1)]
    if not any(ways[:least]) or not any(ways[least:]):
        return None
    weights = [float(way) * (math.exp(eps) if j >= least else 1) for j, way in enumerate(ways)]
    common = sum(j * weight for j, weight in enumerate(weights)) / sum(weights)
    p, q = common / m, (omega - common) / n
    return _variance(p, q, n, m) if p > q else None


def _unary(n: int, m: int, eps: float) -> float:
    others = min(m, n - m)  # bits that a second set may have beside those of a set of m values

    def loss(p: float, q: float) -> float:
        one, zero = math.log(p / q), math.log((1 - q) / (1 - p))
        return max(m * one + others * zero, others * one + m * zero)

    def variance(p: float) -> float:
        low, high = 1e-12, p * (1 - 1e-12)
        for _ in range(100):
            q = (low + high) / 2
            low, high = (q, high) if loss(p, q) > eps else (low, q)
        return _variance(p, high, n, m)

    return float(minimize_scalar(variance, bounds=(1e-3, 1 - 1e-3), method="bounded").fun)


def _listed(n: int, m: int, eps: float) -> float:
    having, q = n_sets(n - 1, m - 1), 1 / (math.exp(eps) + n_sets(n, m) - 1)
    return _variance(q * (math.exp(eps) + having - 1), q * having, n, m)


def coverage(runs: int, seed: int, progress: Callable[[str], None]) -> list[Coverage]:
    found = []
    for number, (n, m, eps, people, _, reports) in enumerate(COVERED):
        progress(f"{m} of {n}, ε = {eps:g}, {people:,} people, {plural(reports, 'report')}")
        found.append(coverage_of(number, runs, seed))
    return found


def coverage_of(number: int, runs: int, seed: int) -> Coverage:
    n, most, eps, people, memoized, reports = COVERED[number]
    rng = np.random.default_rng([seed, number])
    m = _built(n, most, eps, memoized)
    everybody = population(n, most, 1_000_000, rng)
    truth = m.counts_of(everybody) / everybody.size
    mean = float(truth[:n].sum())
    inside, held, likely, means, squares, stated = np.zeros(m.k), 0.0, 0.0, 0, 0.0, 0.0
    for _ in range(runs):
        memos = m.memoize(rng.choice(everybody, people), rng)
        table = sum((m.tabulate(m.report(memos, rng)) for _ in range(reports)), m.empty_table())
        default = empirical_bayes([(m, table)], ordered=False, steps=reports).times(most, 1.0)
        raw = matrix_inversion(m, table, steps=reports).times(most)
        by_ibu = ibu([(m, table)], steps=reports, likelihood="support").times(most, 1.0)
        inside += _inside(default.interval(), truth)
        held += float(_inside(raw.interval(), truth).mean())
        likely += float(_inside(by_ibu.interval(), truth).mean())
        found = mean_choices([(m, table)], [reports])
        assert found is not None
        means += found.low <= mean <= found.high
        squares += float(((raw.frequencies - truth) ** 2).mean())
        stated += float((raw.standard_errors**2).mean())
    return Coverage(
        n=n, m=most, eps=eps, people=people, mechanism=m.name, reports=reports, runs=runs,
        values=float(inside.mean() / runs), lowest=float(inside.min() / runs), inversion=held / runs, likely=likely / runs,
        mean=means / runs, error=math.sqrt(squares / runs), stated=math.sqrt(stated / runs),
    )  # fmt: skip


def _built(n: int, m: int, eps: float, memoized: bool) -> Mechanism:
    if memoized:
        return mechanism("L-PS-GRR", n, eps_inf=2 * eps, eps_1=eps, choices=m)
    return mechanism("PS-GRR", n, eps=eps, choices=m)


def _inside(ends: tuple[FloatArray, FloatArray], truth: FloatArray) -> FloatArray:
    low, high = ends
    return ((low <= truth) & (truth <= high)).astype(np.float64)


def population(n: int, m: int, people: int, rng: np.random.Generator) -> IntArray:
    order = np.argsort(np.log(np.arange(1, n + 1)) - rng.gumbel(size=(people, n)), axis=1)
    chosen = np.arange(n) < rng.integers(0, m + 1, people)[:, None]
    return np.asarray((chosen << order).sum(axis=1))


def error_table(rows: list[Errors]) -> Table:
    table = Table(title=f"Standard error of a value's share from {PEOPLE:,} reports, in percentage points")
    for column in ("values", "at most", "ε", "PS-GRR", "PrivSet", "ω, t", "people", "unary", "listed", "PS, SS"):
        table.add_column(column, justify="right")
    for r in rows:
        known = r.n <= MAX_SET_VALUES
        table.add_row(
            f"{r.n}", f"{r.m}", f"{r.eps:g}", _points(r.padded) if known else "–", _points(r.privset), f"{r.omega}, {r.least}",
            f"× {(r.privset / r.padded) ** 2:.2g}" if known else "–", *map(_points, (r.unary, r.listed, r.sampled)),
        )  # fmt: skip
    return table


def _points(error: float) -> str:
    return f"{100 * error:.2f}" if error < 1 else "> 100"


def coverage_table(rows: list[Coverage]) -> Table:
    table = Table(title=f"95 % intervals that contain the truth, in {rows[0].runs:,} runs")
    heads = (
        "values", "at most", "ε", "people", "mechanism", "reports", "shares", "lowest", "mi", "ibu", "mean", "error", "stated",
    )  # fmt: skip
    for column in heads:
        table.add_column(column, justify="right")
    for r in rows:
        shares = (f"{100 * share:.1f} %" for share in (r.values, r.lowest, r.inversion, r.likely, r.mean))
        table.add_row(
            f"{r.n}", f"{r.m}", f"{r.eps:g}", f"{r.people:,}", r.mechanism, f"{r.reports}", *shares, f"{100 * r.error:.2f}",
            f"{100 * r.stated:.2f}",
        )  # fmt: skip
    return table
