"""Estimators turn count tables into frequencies with standard errors and intervals.

The modules of this folder are pure mathematics. The folder `publishing/` has the schedule, the publishers, the API and the
page. The schedule publishes a step as complete only if no record of that step can be missing.
"""

from estimators.estimate import Estimate
from estimators.likelihood import combined_mle, gibu, ibu, mle
from estimators.matrix_inversion import combined_inversion, matrix_inversion
from estimators.post_processing import post_process

__all__ = ["Estimate", "combined_inversion", "combined_mle", "gibu", "ibu", "matrix_inversion", "mle", "post_process"]
