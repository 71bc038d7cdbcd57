"""One person's client, which an application embeds: memo file, random numbers, reports."""

from producers.device.device import Device, Spent, StepForgotten, Waiting
from producers.device.memo_file import DeviceError

__all__ = ["Device", "DeviceError", "Spent", "StepForgotten", "Waiting"]
