from collections.abc import Iterator

from lab.bench.methods import BEST
from ldpstream.estimators import ibu, mle
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.mechanisms.counts.terms import SupportTerm
from ldpstream.publishing.estimates.catalogue import AttributeCounts

DEFAULT_ORDERED = f"{BEST.name} ordered"
MOST_EXACT = 10  # the largest k with estimates from the exact likelihood of local hashing


def ordered_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    yield DEFAULT_ORDERED, BEST.estimate(AttributeCounts([(m, table)], [steps], in_order=True)).frequencies


def exact_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    if m.k <= MOST_EXACT and m.pure and not isinstance(m.reading.likelihood(table), SupportTerm):
        yield "ibu exact", ibu(m, table, steps=steps).frequencies
        yield "mle exact", mle(m, table, steps=steps).frequencies
