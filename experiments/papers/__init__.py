"""Every table and figure that `ldpstream reproduce` makes again, one module for each paper."""

from experiments.reproduction import Target

TARGETS: tuple[Target, ...] = ()

__all__ = ["TARGETS"]
