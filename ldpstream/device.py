"""Names for an application that embeds a device: device, wallet for several surveys, sender to the gateway, errors."""

from ldpstream.producers.device import (
    Attempt,
    Budget,
    ClockWentBack,
    Device,
    DeviceError,
    Sender,
    Spent,
    StepForgotten,
    StoreCleared,
    StoreFull,
    StoreHeld,
    SurveySpent,
    UnknownSurvey,
    Waiting,
    Wallet,
    WalletFull,
    WalletSpent,
    WrongSurvey,
)

__all__ = [
    "Attempt", "Budget", "ClockWentBack", "Device", "DeviceError", "Sender", "Spent", "StepForgotten", "StoreCleared",
    "StoreFull", "StoreHeld", "SurveySpent", "UnknownSurvey", "Waiting", "Wallet", "WalletFull", "WalletSpent", "WrongSurvey",
]  # fmt: skip
