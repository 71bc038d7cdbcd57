"""Estimators turn count tables into frequencies with standard errors and intervals.

The modules of this folder are pure mathematics. The folder `publishing/` has the schedule, the publishers, the API and the
page. The schedule publishes a step as complete only if no record of that step can be missing.
"""

from ldpstream.estimators.empirical_bayes import combined_empirical_bayes, empirical_bayes
from ldpstream.estimators.ems import combined_ems, ems
from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.likelihood import combined_mle, gibu, ibu, mle
from ldpstream.estimators.matrix_inversion import combined_inversion, matrix_inversion
from ldpstream.estimators.ordered import combined_ordered_empirical_bayes, ordered_empirical_bayes
from ldpstream.estimators.post_processing import post_process
from ldpstream.estimators.quantiles import Number, mean, quantiles

__all__ = [
    "Estimate",
    "Number",
    "combined_empirical_bayes",
    "combined_ems",
    "combined_inversion",
    "combined_mle",
    "combined_ordered_empirical_bayes",
    "empirical_bayes",
    "ems",
    "gibu",
    "ibu",
    "matrix_inversion",
    "mean",
    "mle",
    "ordered_empirical_bayes",
    "post_process",
    "quantiles",
]
