"""Compares score covariances with an enumeration of a person's possible reports. Compares standard errors with each other."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.linalg import helmert

from lab.papers.location import LOCATION
from ldpstream.estimators import mle
from ldpstream.estimators.estimate import Group
from ldpstream.estimators.maximum.standard_errors import standard_errors
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.families.local_hashing import LocalHashing, LongitudinalHashing

F, RNG = np.array([0.4, 0.3, 0.2, 0.07, 0.03]), np.random.default_rng(5)


def hashing(name: str, g: int) -> LocalHashing | LongitudinalHashing:
    if name == "OLH":
        return LocalHashing(name, k=F.size, eps=1.5, g=g)
    return LongitudinalHashing(name, k=F.size, eps_inf=2.0, eps_1=1.0, g=g)


def score(m: Mechanism, given: FloatArray, hit: FloatArray, exact: bool) -> FloatArray:
    """Returns the score of a report, (k,), from its probability under each value (`given`) and its supported values (`hit`)."""
    return given / (given @ F) if exact else hit * (m.p - m.q) / (m.q + (m.p - m.q) * F)


def enumerated(m: LocalHashing | LongitudinalHashing, steps: int, exact: bool, d: int = 1) -> tuple[FloatArray, FloatArray]:
    """Returns the matrices of `score_moments`, computed over every value, function, memo and report sequence of one person.

    One person in d encodes the true value, the others a uniform value, the same at all steps.
    """
    k, g, size = m.k, m.g, m.pool.size
    table = np.array([m.pool.hash(np.full(k, a), np.arange(k)) for a in range(size)])
    reports = [(a, y, (table[a] == y).astype(float)) for a in range(size) for y in range(g)]
    given = {(a, y): (m.other_symbol + (m.p - m.other_symbol) * hit) / size for a, y, hit in reports}
    sent_by = given  # under the encoded value
    given = {key: (chances + (d - 1) * chances.mean()) / d for key, chances in sent_by.items()}
    mixed = m.with_fake_data(d)
    scores = {(a, y): score(mixed, given[a, y], hit, exact) for a, y, hit in reports}
    hessian = np.zeros((k, k))
    for a, y, hit in reports:
        seen = given[a, y] @ F
        if exact:
            hessian += seen * np.outer(given[a, y] / seen, given[a, y] / seen)
        else:
            slope = (mixed.p - mixed.q) / (mixed.q + (mixed.p - mixed.q) * F)
            hessian += seen * np.diag(hit * slope**2)
    mean, second = np.zeros(k), np.zeros((k, k))
    for chance, sends in people(m, table, sent_by, (F + (d - 1) / k) / d):
        for sent in itertools.product(sends, repeat=steps):
            total = sum(scores[key] for key, _ in sent)
            weight = chance * np.prod([p for _, p in sent])
            mean += weight * total
            second += weight * np.outer(total, total)
    return hessian, second - np.outer(mean, mean)


def people(
    m: LocalHashing | LongitudinalHashing, table: FloatArray, given: dict[tuple[int, int], FloatArray], encoded: FloatArray
) -> Iterator[tuple[float, list[tuple[tuple[int, int], float]]]]:
    """Yields (probability, [(report, report's probability)]) for every state that a person may keep over all reports."""
    for v in range(m.k):
        if isinstance(m, LocalHashing):
            yield encoded[v], [(key, chances[v]) for key, chances in given.items()]
            continue
        for a, memo in itertools.product(range(m.pool.size), range(m.g)):
            chance = encoded[v] / m.pool.size * (m.p1 if memo == table[a, v] else m.q1)
            yield chance, [((a, y), m.p2 if y == memo else m.q2) for y in range(m.g)]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("name", "g", "steps", "d"),
    [
        ("OLH", 3, 1, 1), ("OLH", 4, 1, 1), ("OLH", 5, 1, 1), ("OLH", 2, 2, 1), ("OLH", 3, 2, 3), ("L-OLH", 3, 1, 1),
        ("L-OLH", 3, 2, 1), ("L-OLH", 4, 3, 1), ("L-OLH", 2, 3, 2),
    ],
)  # fmt: skip
def test_score_moments_of_hashing_equal_enumeration(name: str, g: int, steps: int, d: int, exact: bool) -> None:
    """Compares only changes that keep the frequencies' sum. Estimators use no other change."""
    m, along = hashing(name, g), helmert(F.size) if exact or d > 1 else np.eye(F.size)
    stated = m.with_fake_data(d).reading.score_moments(F, steps, exact)
    for found, expected in zip(stated, enumerated(m, steps, exact, d), strict=True):
        np.testing.assert_allclose(along @ found @ along.T, along @ expected @ along.T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_formulas_errors_equal_those_of_a_dense_channel(steps: int) -> None:
    """GRR's support score is its true score, so both computations must give the same errors."""
    k = F.size
    m = mechanism("GRR", k=k, eps=1.0)
    n = 3000
    table = m.table(n, np.array([900, 800, 600, 400, 300]))
    formula = standard_errors([(m, table)], F, steps)
    given = m.channel()
    likely = F @ given
    vectors = given.T / likely[:, None]
    once = vectors.T @ (likely[:, None] * vectors) - 1
    kept = (given @ vectors).T @ (F[:, None] * (given @ vectors)) - 1
    hessian, score_covariance = n * (once + 1), n / steps * (steps * (once - kept) + steps**2 * kept)
    inverse = np.linalg.inv(hessian)
    total = inverse.sum(axis=1)
    projected = inverse - np.outer(total, total) / total.sum()
    np.testing.assert_allclose(formula, np.sqrt(np.diag(projected @ score_covariance @ projected)), rtol=1e-10)


def test_location_mechanisms_have_errors_and_mix_with_others() -> None:
    line, hashed = LOCATION["truncated-geometric"](k=5, eps=1.0), hashing("OLH", 3)
    rng = np.random.default_rng(3)
    values = rng.choice(5, 4000, p=F)
    groups: list[Group] = [
        (line, line.tabulate(line.report(values, rng))),
        (hashed, hashed.tabulate(hashed.report(values, rng))),
    ]
    alone = [standard_errors([group], F, 1, exact=True) for group in groups]
    together = standard_errors(groups, F, 1, exact=True)
    assert all((together < errors).all() for errors in alone)
    assert np.isfinite(mle(*groups[0]).standard_errors).all()
    assert np.isnan(standard_errors([(line, line.empty_table())], F, 1)).all()


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("name", "growth"), [("OLH", 1.0), ("L-OLH", 1.0), ("truncated-geometric", 1.5)])
def test_errors_grow_as_stated_as_the_budget_goes_to_zero(name: str, growth: float, exact: bool) -> None:
    """Errors grow like 1/eps. They grow like 1/eps^1.5 if the outputs of neighbouring values become alike, which makes the
    Hessian almost singular."""

    def errors(eps: float) -> FloatArray:
        m: Mechanism
        if name == "L-OLH":
            m = LongitudinalHashing(name, k=F.size, eps_inf=2 * eps, eps_1=eps, g=3)
        else:
            m = LocalHashing(name, k=F.size, eps=eps, g=3) if name == "OLH" else LOCATION[name](k=F.size, eps=eps)
        table = m.tabulate(m.simulate(np.zeros(50, int), RNG))
        return np.asarray(standard_errors([(m, table)], F, 1, exact) * eps**growth)

    reference = errors(1e-4)
    for eps in (1e-6, 1e-8, 1e-9):
        np.testing.assert_allclose(errors(eps), reference, rtol=1e-3)


def test_errors_are_nan_if_reports_do_not_distinguish_values() -> None:
    alike = LOCATION["Shokri"](prior=np.full(4, 0.25), distance=np.ones((4, 4)) - np.eye(4), max_loss=0.75)
    f = np.full(4, 0.25)
    assert np.isnan(standard_errors([(alike, alike.tabulate(alike.report(np.zeros(20, int), RNG)))], f, 1, exact=True)).all()
