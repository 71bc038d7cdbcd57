"""Local randomizers that a device runs, their count tables and channels for the server, and the privacy ledger."""

from mechanisms.base import Longitudinal, Mechanism, Reports
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
    "Reports",
    "choose",
    "mechanism",
]
