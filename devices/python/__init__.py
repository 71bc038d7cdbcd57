"""Names for an application that embeds a device: device, wallet for several surveys, sender to the gateway, errors."""

from ldpstream.device.activity import Activity
from ldpstream.device.device import Device, Silence, Spent, Waiting
from ldpstream.device.errors import (
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
from ldpstream.device.files.wallet_file import Budget, SurveySpent
from ldpstream.device.routes import Relay
from ldpstream.device.sender import Attempt, Sender
from ldpstream.device.wallet import Wallet, WalletSpent

__all__ = [
    "Activity", "Attempt", "Budget", "ClockWentBack", "CostlySurvey", "Device", "DeviceError", "NotSigned", "Relay",
    "RelayRequired", "Sender", "Silence", "Spent", "StepForgotten", "StoreCleared", "StoreFull", "StoreHeld", "SurveySpent",
    "UnknownSurvey", "Waiting", "Wallet", "WalletFull", "WalletSpent", "WrongSurvey",
]  # fmt: skip
