"""The estimators that the benchmarks measure, by name.

NAME        every estimator that is published for a step with the mechanism, for values without order
            (`publishing.estimates.catalogue`)
mi POST     matrix inversion with each post-processing
"""

from collections.abc import Iterator

from ldpstream.estimators import matrix_inversion, post_process
from ldpstream.estimators.post_processing import METHODS, norm_sub, power
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.estimates.catalogue import ESTIMATORS, INVERSION, AttributeCounts, estimators

BEST = ESTIMATORS[0]  # the default estimator
DEFAULT = BEST.name
POSTS = [method for method in METHODS if method != "none"]


def estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    """Yields the name and (k,) frequencies of each estimate, from one count table.

    Everyone made `steps` reports. For a mechanism of sets, the frequencies are shares of people.
    """
    counts = AttributeCounts([(m, table)], [steps])
    for row in estimators([m]):
        estimate = row.estimate(counts)
        yield row.name, row.of_people(estimate, m.choices).frequencies
        if row.name == INVERSION:
            for method in POSTS:
                yield f"{row.name} {method}", (m.choices or 1) * post_process(estimate.frequencies, method)


def powered_estimates(m: Mechanism, table: CountTable, steps: int = 1) -> Iterator[tuple[str, FloatArray]]:
    raw = matrix_inversion(m, table, steps=steps)
    powered = power(raw.frequencies, raw.standard_errors**2)
    yield f"{INVERSION} power", (m.choices or 1) * powered
    yield f"{INVERSION} power-ns", (m.choices or 1) * norm_sub(powered)
