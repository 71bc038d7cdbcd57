"""Mechanisms: the code that a device runs, and the meaning of the device's reports.

A mechanism randomizes values, counts reports into additive tables, and computes its channel and its privacy losses. The caller
passes a source of randomness. `ledger/` computes losses.
"""

from ldpstream.mechanisms.arguments import Reports
from ldpstream.mechanisms.base import Mechanism
from ldpstream.mechanisms.kinds import Longitudinal, OneTime
from ldpstream.mechanisms.location import ChannelMechanism
from ldpstream.mechanisms.registry import LOCATION, LONGITUDINAL, NAMES, NUMERIC, ONE_TIME, SETS, choose, mechanism
from ldpstream.mechanisms.table import CountTable

__all__ = [
    "LOCATION",
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
