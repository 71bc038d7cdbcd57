"""Mechanisms: the code that a device runs, and the meaning of the device's reports.

Python loads the module of a name on the name's first use: the help of the command line needs no NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldpstream.mechanisms.arguments import Reports
    from ldpstream.mechanisms.base import Mechanism
    from ldpstream.mechanisms.channel import ChannelMechanism
    from ldpstream.mechanisms.kinds import Longitudinal, OneTime
    from ldpstream.mechanisms.registry import LONGITUDINAL, NAMES, NUMERIC, ONE_TIME, SETS, choose, mechanism
    from ldpstream.mechanisms.table import CountTable

__all__ = [
    "LONGITUDINAL",
    "NAMES",
    "NUMERIC",
    "ONE_TIME",
    "SETS",
    "ChannelMechanism",
    "CountTable",
    "Longitudinal",
    "Mechanism",
    "OneTime",
    "Reports",
    "choose",
    "mechanism",
]

_HOMES = {
    "ChannelMechanism": "channel", "CountTable": "table", "Longitudinal": "kinds", "Mechanism": "base", "OneTime": "kinds",
    "Reports": "arguments",
}  # fmt: skip

if not TYPE_CHECKING:  # with this function, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'registry')}"), name)
