"""ElSalamouny and Palamidessi's alternatives (2022) to their iterative update (GIBU), which combines the groups' likelihoods.

    [INV]_R, [IBU]_R, [RAP]_R    the groups' own estimates, averaged by their numbers of reports         `combine_results`
    [INV]_M, [IBU]_M, [RAP]_M    one estimate with the average mechanism, on all reports together        `combine_mechanisms`

INV is matrix inversion, RAP matrix inversion for unary encodings, IBU the iterative Bayesian update. The projections of an
inversion are ``"norm-sub"`` (Euclidean, onto the simplex) and ``"norm-mul"`` (clip and normalise).

Source: the free-will privacy paper, §4 (Eqs. 4 and 5) and §5 (Eqs. 7, 9, 10, 13 and 14).
"""

import math
from typing import Literal

import numpy as np

from lab.papers.location.dense import DenseTerm
from ldpstream.estimators.estimate import Group, groups_of
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.maximum.likelihood import em, ibu
from ldpstream.estimators.post_processing import post_process
from ldpstream.mechanisms import ChannelMechanism, Mechanism
from ldpstream.mechanisms.arguments import MIN_EPS, FloatArray, one_of
from ldpstream.mechanisms.families.grr import GRR
from ldpstream.mechanisms.families.unary import Bits

Estimator = Literal["INV", "IBU", "RAP"]
Projection = Literal["norm-sub", "norm-mul"]
ESTIMATORS = ("INV", "IBU", "RAP")
PROJECTIONS = ("norm-sub", "norm-mul")


def combine_results(groups: list[Group], estimator: Estimator, projection: Projection = "norm-sub") -> FloatArray:
    """[estimator]_R: the mean of the groups' estimates, weighted by their numbers of reports; (k,), NaN without reports.

    Raises:
        ValueError: if an argument is not allowed, or a table belongs to another mechanism.
    """
    k = _check(groups, estimator, projection)
    n = sum(table.n for _, table in groups)
    if not n:
        return np.full(k, np.nan)
    result = np.zeros(k)
    for m, table in groups:
        if table.n:
            own = ibu(m, table) if estimator == "IBU" else matrix_inversion(m, table, post=projection)
            result += table.n / n * own.frequencies
    return result


def combine_mechanisms(groups: list[Group], estimator: Estimator, projection: Projection = "norm-sub") -> FloatArray:
    """[estimator]_M: one estimate from all reports, with the groups' average mechanism, (k,).

    INV and RAP give NaN if the average mechanism carries no information.

    Raises:
        ValueError: if an argument is not allowed, or the groups' reports are not of one kind.
    """
    k = _check(groups, estimator, projection)
    n = sum(table.n for _, table in groups)
    if estimator != "RAP" and not all(_reports_a_value(m) for m, _ in groups):
        kinds = ", ".join(m.signature for m, _ in groups if not _reports_a_value(m))
        raise ValueError(f"groups must report one of the k values for [{estimator}]_M, got {kinds}")
    if not n:
        return np.full(k, np.nan)
    counts = sum((table.counts for _, table in groups), np.zeros(k, np.int64))
    if not any(isinstance(m, ChannelMechanism) for m, _ in groups):  # unary encodings, or mechanisms with GRR's channel
        p = sum(table.n / n * m.p for m, table in groups)
        q = sum(table.n / n * m.q for m, table in groups)
        if p == q:
            return np.full(k, np.nan)
        if estimator != "IBU":
            return post_process((counts / n - q) / (p - q), projection)
        average_grr = GRR(k, max(math.log(p / q), MIN_EPS))
        return ibu(average_grr, average_grr.table(n, counts)).frequencies
    average = sum((table.n / n * m.channel() for m, table in groups), np.zeros((k, k)))
    if estimator == "IBU":
        return em([DenseTerm(average / average.sum(axis=1, keepdims=True), counts)], np.full(k, 1 / k))[0]
    if np.linalg.cond(average) > 1e13:
        return np.full(k, np.nan)
    return post_process(np.linalg.solve(average.T, counts / n), projection)


def _check(groups: list[Group], estimator: str, projection: str) -> int:
    one_of("estimator", estimator, ESTIMATORS)
    one_of("projection", projection, PROJECTIONS)
    if estimator == "RAP" and not all(isinstance(m.device, Bits) and m.fakes == 1 for m, _ in groups):
        raise ValueError(f"groups must be unary encodings for RAP, got {', '.join(m.signature for m, _ in groups)}")
    return groups_of(groups)[0][0].k


def _reports_a_value(m: Mechanism) -> bool:
    of_values = m.device.table_shape == (m.k,) and not m.device.report_dtype.shape
    return isinstance(m, ChannelMechanism) or of_values
