"""Names for an application that embeds a device: device, wallet for several surveys, sender to the gateway, errors."""

from ldpstream.producers.device.device import Device, Silence, Spent, Waiting
from ldpstream.producers.device.errors import (
    ClockWentBack,
    CostlySurvey,
    DeviceError,
    NotSigned,
    RelayRequired,
    StepForgotten,
    StoreCleared,
    StoreFull,
    StoreHeld,
    UnknownSurvey,
    WalletFull,
    WrongSurvey,
)
from ldpstream.producers.device.routes import Relay
from ldpstream.producers.device.sender import Attempt, Sender
from ldpstream.producers.device.wallet import Wallet, WalletSpent
from ldpstream.producers.device.wallet_file import Budget, SurveySpent

__all__ = [
    "Attempt", "Budget", "ClockWentBack", "CostlySurvey", "Device", "DeviceError", "NotSigned", "Relay", "RelayRequired",
    "Sender", "Silence", "Spent", "StepForgotten", "StoreCleared", "StoreFull", "StoreHeld", "SurveySpent", "UnknownSurvey",
    "Waiting", "Wallet", "WalletFull", "WalletSpent", "WrongSurvey",
]  # fmt: skip
