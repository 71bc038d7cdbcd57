"""Estimates of shares, means and quantiles from count tables."""

from ldpstream.estimators.empirical_bayes import empirical_bayes
from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.maximum.ems import ems
from ldpstream.estimators.maximum.likelihood import ibu, mle
from ldpstream.estimators.post_processing import post_process
from ldpstream.estimators.quantiles import Number, mean, quantiles

__all__ = [
    "Estimate",
    "Number",
    "empirical_bayes",
    "ems",
    "ibu",
    "matrix_inversion",
    "mean",
    "mle",
    "post_process",
    "quantiles",
]
