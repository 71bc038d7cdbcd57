"""What an application embeds: a device, a wallet for several surveys, a sender to the gateway, and their errors."""

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
