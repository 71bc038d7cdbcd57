"""Mechanisms: the code that a device runs, and the meaning of the device's reports."""

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
