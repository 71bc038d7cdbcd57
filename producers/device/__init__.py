"""One person's client, for an application to embed: its memo file, its random numbers, its reports."""

from producers.device.device import Device, Spent, StepForgotten, Waiting
from producers.device.memo_file import DeviceError

__all__ = ["Device", "DeviceError", "Spent", "StepForgotten", "Waiting"]
