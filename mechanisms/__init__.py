"""Mechanisms: what a device runs, and what its reports mean.

A mechanism randomizes values, counts reports into additive tables, and knows its channel and its privacy loss exactly. It
imports no other room, and uses no clock, file or socket: randomness comes in as an argument. `ledger/` computes losses.
"""

from mechanisms.base import Longitudinal, Mechanism, OneTime, Reports
from mechanisms.location import ChannelMechanism
from mechanisms.registry import LOCATION, LONGITUDINAL, NAMES, ONE_TIME, choose, mechanism
from mechanisms.table import CountTable

__all__ = [
    "LOCATION",
    "LONGITUDINAL",
    "NAMES",
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
