"""The estimators that the adviser simulates and the accuracy benchmark measures, by name.

NAME                    every published estimator (`publishing.catalogue`), without the order of the values
mi POST                 matrix inversion with each post-processing
eb ordered              empirical Bayes that knows the order of the values, the default for ordered values
ibu exact, mle exact    IBU and maximum likelihood of the exact likelihood of local hashing; only for at most 10 values,
                        because of their time
"""

from collections.abc import Iterator

from ldpstream.estimators import ibu, matrix_inversion, mle, post_process
from ldpstream.estimators.post_processing import METHODS, norm_sub, power
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.terms import SupportTerm
from ldpstream.publishing.catalogue import ESTIMATORS, INVERSION, AttributeCounts, estimators

BEST = next(row for row in ESTIMATORS if row.default)  # of the mechanisms of categories
DEFAULT, DEFAULT_ORDERED = BEST.name, f"{BEST.name} ordered"
POSTS = [method for method in METHODS if method != "none"]
MOST_EXACT = 10  # the largest k with estimates from the exact likelihood of local hashing


def estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Yields the name and (k,) frequencies of the published estimators and of fast post-processings, from one count table.

    Everyone made `steps` reports.
    """
    counts = AttributeCounts([(m, table)], [steps])
    for row in estimators([m]):
        frequencies = row.estimate(counts).frequencies
        yield row.name, frequencies
        if row.name == INVERSION:
            for method in POSTS:
                yield f"{row.name} {method}", post_process(frequencies, method)


def powered_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Like `estimates` for power and power-ns, which are slow for many values."""
    raw = matrix_inversion(m, table, steps=steps)
    powered = power(raw.frequencies, 1.0, raw.standard_errors**2)
    yield f"{INVERSION} power", powered
    yield f"{INVERSION} power-ns", norm_sub(powered, 1.0)


def ordered_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Like `estimates` for the default estimate of ordered values, which is slow for many values."""
    yield DEFAULT_ORDERED, BEST.estimate(AttributeCounts([(m, table)], [steps], in_order=True)).frequencies


def exact_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Like `estimates` for the true likelihood, where it is not that of the support counts, as for local hashing.

    Yields nothing for more than `MOST_EXACT` values.
    """
    if m.k <= MOST_EXACT and m.pure and not isinstance(m.likelihood(table), SupportTerm):
        yield "ibu exact", ibu(m, table, steps=steps).frequencies
        yield "mle exact", mle(m, table, steps=steps).frequencies
