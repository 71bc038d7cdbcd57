"""The estimators of the accuracy benchmark, by name.

    eb             empirical Bayes, our default estimate
    eb ordered     empirical Bayes that knows the order of the values, our default for ordered values
mi, mi POST    matrix inversion, with each post-processing
ibu, mle       iterative Bayesian update (at most 10 000 iterations) and maximum likelihood, of the support counts
ibu exact, mle exact    the same for the exact likelihood of local hashing; only for at most 10 values, because of their time
"""

from collections.abc import Iterator

from ldpstream.estimators import empirical_bayes, ibu, matrix_inversion, mle, post_process
from ldpstream.estimators.ordered import ordered_empirical_bayes
from ldpstream.estimators.post_processing import METHODS, norm_sub, power
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.terms import SupportTerm

DEFAULT, DEFAULT_ORDERED = "eb", "eb ordered"
MOST_EXACT = 10  # the largest k with estimates from the exact likelihood of local hashing


def estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Yields the name and (k,) frequencies of the literature's fast estimators, from one count table.

    Everyone made `steps` reports.
    """
    raw = matrix_inversion(m, table, steps=steps)
    for method in METHODS:
        yield "mi" if method == "none" else f"mi {method}", post_process(raw.frequencies, method)
    yield "ibu", ibu(m, table, steps=steps, likelihood="support").frequencies
    yield "mle", mle(m, table, steps=steps, likelihood="support").frequencies


def powered_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Like `estimates` for power and power-ns, which are slow for many values."""
    raw = matrix_inversion(m, table, steps=steps)
    powered = power(raw.frequencies, 1.0, raw.standard_errors**2)
    yield "mi power", powered
    yield "mi power-ns", norm_sub(powered, 1.0)


def default_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Like `estimates` for our default estimate, without the order of the values."""
    yield DEFAULT, empirical_bayes(m, table, steps=steps).frequencies


def ordered_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Like `estimates` for our default estimate of ordered values, which is slow for many values."""
    yield DEFAULT_ORDERED, ordered_empirical_bayes(m, table, steps=steps).frequencies


def exact_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Like `estimates` for the true likelihood, where it is not that of the support counts, as for local hashing.

    Yields nothing for more than `MOST_EXACT` values.
    """
    if m.k <= MOST_EXACT and m.pure and not isinstance(m.likelihood(table), SupportTerm):
        yield "ibu exact", ibu(m, table, steps=steps).frequencies
        yield "mle exact", mle(m, table, steps=steps).frequencies
