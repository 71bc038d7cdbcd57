"""The tables and figures that `python -m lab.papers` reproduces."""

from lab.papers import allomfree, free_will, ibu_mi, ldp3
from lab.papers.reproduction import Target

TARGETS: tuple[Target, ...] = (*ibu_mi.TARGETS, *ldp3.TARGETS, *free_will.TARGETS, *allomfree.TARGETS)

__all__ = ["TARGETS"]
