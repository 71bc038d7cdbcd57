"""Mechanisms: the code that a device runs, and the meaning of the device's reports.

A mechanism randomizes values, counts reports into additive tables, and computes its channel and its privacy loss exactly.
These modules import no other folder and use no clock, file or socket. The caller passes a source of randomness. `ledger/`
computes losses.
"""

from mechanisms.base import Mechanism, Reports
from mechanisms.kinds import Longitudinal, OneTime
from mechanisms.location import ChannelMechanism
from mechanisms.registry import LOCATION, LONGITUDINAL, NAMES, NUMERIC, ONE_TIME, choose, mechanism
from mechanisms.table import CountTable

__all__ = [
    "LOCATION",
    "LONGITUDINAL",
    "NAMES",
    "NUMERIC",
    "ONE_TIME",
    "ChannelMechanism",
    "CountTable",
    "Longitudinal",
    "Mechanism",
    "OneTime",
    "Reports",
    "choose",
    "mechanism",
]
