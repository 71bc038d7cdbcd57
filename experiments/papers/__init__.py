"""Every table and figure that `ldpstream reproduce` reproduces, with one module or more for each paper."""

from experiments.papers import allomfree, free_will, ibu_mi, ldp3
from experiments.papers.reproduction import Target

TARGETS: tuple[Target, ...] = (*ibu_mi.TARGETS, *ldp3.TARGETS, *free_will.TARGETS, *allomfree.TARGETS)

__all__ = ["TARGETS"]
