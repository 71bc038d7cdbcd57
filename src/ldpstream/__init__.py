"""Streaming longitudinal aggregation under local differential privacy.

This module has the names that a notebook imports; `ldpstream.device` has those of an application.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldpstream.estimators import (
        empirical_bayes,
        ems,
        ibu,
        matrix_inversion,
        mean,
        mle,
        post_process,
        quantiles,
    )
    from ldpstream.mechanisms import ledger, mechanism
    from ldpstream.publishing.api.frame import read
    from ldpstream.surveys import load_survey

__version__ = "0.1.0"

__all__ = [
    "empirical_bayes", "ems", "ibu", "ledger", "load_survey", "matrix_inversion", "mean", "mechanism", "mle", "post_process",
    "quantiles", "read",
]  # fmt: skip

_HOMES = {
    "mechanism": "mechanisms",
    "ledger": "mechanisms.ledger",
    "load_survey": "surveys",
    "read": "publishing.api.frame",
}


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ldpstream' has no attribute {name!r}")
    home = import_module(f"ldpstream.{_HOMES.get(name, 'estimators')}")
    return home if name == "ledger" else getattr(home, name)
