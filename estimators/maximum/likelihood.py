"""Likelihood estimates from the counts of one or several mechanisms: the iterative Bayesian update (IBU) and the maximum."""

from collections.abc import Iterable

import numpy as np

from ldpstream.estimators.bayes.value_likelihood import kinds
from ldpstream.estimators.estimate import Estimate, Group, Steps, groups_of
from ldpstream.estimators.maximum.optimum import duality_gap, evaluate, projected_maximum, separable_maximum
from ldpstream.estimators.maximum.standard_errors import standard_errors
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray, integer, one_of, real
from ldpstream.mechanisms.counts.terms import SupportTerm, Term

LIKELIHOODS = ("exact", "support")
PROVEN_GAP = 1e-9  # nats per report; `mle` stops at this gap
MAX_EVALUATIONS = 10_000  # largest number of evaluations of a likelihood by `mle`


def ibu(
    m: Mechanism | Iterable[Group],
    table: CountTable | None = None,
    *,
    max_iter: int = 10_000,
    tol: float = 1e-12,
    steps: Steps = 1,
    delta: float = 0.0,
    likelihood: str = "exact",
) -> Estimate:
    """Iterative Bayesian update (IBU, for several levels GIBU): EM from the uniform distribution, as in the literature.

    For support counts c of one mechanism an iteration is

        r = c / (q + (p-q) f),   f ← f (q Σr + (p-q) r), normalised

    For several levels, one EM maximises the sum of the levels' log-likelihoods.

    Args:
        m, table, steps: as in `matrix_inversion`. If the counts carry no information, the result is `Estimate.of_nothing`.
        max_iter: largest number of iterations, at least 1.
        tol: stop when no frequency changes by more than `tol`, in [0, 1].
        delta: stop when the log-likelihood per report changes by less than `delta`, in nats, at least 0 (δ in GIBU); 0 disables
            this test.
        likelihood: ``"exact"`` uses the true likelihood if the table determines it, otherwise the likelihood of the support
            counts. ``"support"`` uses the likelihood of the support counts. Mechanisms that are not pure always use the true
            likelihood.

    Raises:
        ValueError, TypeError: as in `matrix_inversion`.

    Source: Agrawal and Aggarwal 2001; defaults of Arcolezi, Cerna and Palamidessi 2023. Several levels: ElSalamouny and
    Palamidessi 2022 (free-will privacy), Algorithm 1 (GIBU).
    """
    groups = groups_of(m, table, steps)
    k = groups[0][0].k
    integer("max_iter", max_iter, 1, 10**9)
    real("tol", tol, 0.0, 1.0)
    real("delta", delta, 0.0, 1e300)
    terms = likelihood_terms(groups, likelihood)
    if not _tells(terms):
        return Estimate.of_nothing(k, sum(counts.n for _, counts in groups))
    f, iterations, converged = em(terms, np.full(k, 1 / k), max_iter, tol, delta * sum(term.n for term in terms))
    return _estimate(groups, terms, f / f.sum(), steps, iterations, converged)


def mle(
    m: Mechanism | Iterable[Group], table: CountTable | None = None, *, steps: Steps = 1, likelihood: str = "exact"
) -> Estimate:
    """Maximum-likelihood estimate (MLE), the limit of EM.

    For the support counts of one mechanism the maximum is

        f = max(0, c/λ - q/(p-q)),  λ such that Σ f = 1

    If a likelihood is not that of support counts, `mle` iterates until the result is provably within 1e-9 nats a report of the
    maximum, or for 10 000 evaluations. `converged` is true if it is.

    The docstring of `ibu` describes the arguments, and the result if the counts carry no information.
    """
    groups = groups_of(m, table, steps)
    k = groups[0][0].k
    terms = likelihood_terms(groups, likelihood)
    if not _tells(terms):
        return Estimate.of_nothing(k, sum(counts.n for _, counts in groups))
    supports = [term for term in terms if isinstance(term, SupportTerm)]
    if len(supports) == len(terms):
        f, iterations = separable_maximum(supports)
    else:
        start = np.full(k, 1 / k)
        f, iterations = projected_maximum(terms, start, PROVEN_GAP * sum(term.n for term in terms), MAX_EVALUATIONS)
    return _estimate(groups, terms, f, steps, iterations)


def likelihood_terms(groups: list[Group], likelihood: str) -> list[Term]:
    """Log-likelihoods of the groups that have reports and p different from q."""
    exact = one_of("likelihood", likelihood, LIKELIHOODS) == "exact"
    return [m.reading.likelihood(table, exact) for m, table in groups if table.n and m.p != m.q]


def _tells(terms: list[Term]) -> bool:
    return any(not isinstance(term, SupportTerm) or (term.slope and term.support.any()) for term in terms)


def em(
    terms: list[Term], f: FloatArray, max_iter: int = 10_000, tol: float = 1e-12, delta: float = 0.0
) -> tuple[FloatArray, int, bool]:
    """Runs EM from f; returns the frequencies, the number of iterations, and true if EM met a tolerance."""
    supports = [term for term in terms if isinstance(term, SupportTerm)]
    if len(supports) == len(terms) and not delta:
        from ldpstream.estimators.maximum.em_kernels import support_em

        first, kind, times = kinds([*(term.support for term in supports), f])
        counts, q = np.array([term.support[first] for term in supports]), np.array([term.q for term in supports])
        slope, frequency = np.array([term.slope for term in supports]), f[first]
        iterations, converged = support_em(counts, times, q, slope, frequency, max_iter, tol)
        return frequency[kind], int(iterations), bool(converged)
    before = -np.inf
    for iteration in range(max_iter):
        value, gradient = evaluate(terms, f)
        if abs(value - before) < delta:
            return f, iteration, True
        after = f * gradient
        after /= after.sum()
        change = np.abs(after - f).max()
        f, before = after, value
        if change <= tol:
            return f, iteration + 1, True
    return f, max_iter, False


def _estimate(
    groups: list[Group], terms: list[Term], f: FloatArray, steps: Steps, iterations: int, converged: bool | None = None
) -> Estimate:
    n = sum(table.n for _, table in groups)
    value, gradient = evaluate(terms, f)
    gap = duality_gap(f, gradient) / n
    met = gap <= PROVEN_GAP if converged is None else converged
    exact = any(not isinstance(term, SupportTerm) for term in terms)
    return Estimate(f, standard_errors(groups, f, steps, exact), n, iterations, met, value, gap)
