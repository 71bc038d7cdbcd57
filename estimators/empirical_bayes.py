"""Empirical Bayes (EB)."""

from collections.abc import Iterable

import numpy.typing as npt

from ldpstream.estimators.bayes.unordered import unordered_posterior
from ldpstream.estimators.estimate import Estimate, Group, Steps, groups_of
from ldpstream.estimators.smooth.numbers import number_posterior
from ldpstream.estimators.smooth.ordered import ordered_posterior
from ldpstream.mechanisms import CountTable, Mechanism


def empirical_bayes(
    m: Mechanism | Iterable[Group],
    table: CountTable | None = None,
    *,
    ordered: bool = False,
    widths: npt.ArrayLike | None = None,
    steps: Steps = 1,
) -> Estimate:
    """Posterior means of the shares, by empirical Bayes.

    At most nine values without order have a fixed prior: see `estimators.bayes.few_values`.

    Args:
        m, table, steps: as in `matrix_inversion`.
        ordered: true for ordered values, such as the bins of a number: see `ordered`, and `numbers` for
            mechanisms that are not pure. With pure mechanisms, the estimate does not use the order of more than 10 000 values.
        widths: (k,) widths of the bins of ordered values, positive; None for equal widths.

    Returns:
        Frequencies at least 0, with sum 1. For ordered values (at most 10 000), `posterior` is `Draws`. `Estimate.of_nothing`
            if the counts carry no information.

    Raises:
        ValueError, TypeError: as in `matrix_inversion`; also if the widths are not k positive finite numbers, or are given for
            values without order; and for ordered values, if a mechanism that is not pure is too large for `Mechanism.channel`.
    """
    groups = groups_of(m, table, steps)
    if ordered:
        numeric = any(counts.n and not own.pure for own, counts in groups)
        return (number_posterior if numeric else ordered_posterior)(groups, widths, steps)
    if widths is not None:
        raise ValueError("widths need ordered=True: the estimate without order ignores them")
    return unordered_posterior(groups, steps)
