"""Turns count tables into published histograms: estimators, intervals, the schedule and the publishers."""

from estimators.estimate import Estimate
from estimators.likelihood import combined_mle, gibu, ibu, mle
from estimators.matrix_inversion import combined_inversion, matrix_inversion
from estimators.post_processing import post_process

__all__ = ["Estimate", "combined_inversion", "combined_mle", "gibu", "ibu", "matrix_inversion", "mle", "post_process"]
