"""Names for an application that embeds a device: device, wallet for several surveys, consent, sender to the gateway, errors.

Python loads the module of a name on the name's first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldpstream.device.activity import Activity
    from ldpstream.device.async_sender import AsyncSender
    from ldpstream.device.consent.consent import Consent, ConsentMode, switched_off
    from ldpstream.device.consent.journal import read_journal
    from ldpstream.device.consent.preview import Preview
    from ldpstream.device.device import Device
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
    from ldpstream.device.files.memo_file import Left
    from ldpstream.device.files.wallet_file import Budget, SurveySpent
    from ldpstream.device.reports import Silence, Spent, Waiting
    from ldpstream.device.routes import LOCAL, Relay
    from ldpstream.device.sender import Attempt, Sender
    from ldpstream.device.wallet import Wallet, WalletSpent

__all__ = [
    "LOCAL", "Activity", "AsyncSender", "Attempt", "Budget", "ClockWentBack", "Consent", "ConsentMode", "CostlySurvey",
    "Device", "DeviceError", "Left", "NotSigned", "Preview", "Relay", "RelayRequired", "Sender", "Silence", "Spent",
    "StepForgotten", "StoreCleared", "StoreFull", "StoreHeld", "SurveySpent", "UnknownSurvey", "Waiting", "Wallet",
    "WalletFull", "WalletSpent", "WrongSurvey", "read_journal", "switched_off",
]  # fmt: skip

_HOMES = {  # every other name is an error
    "LOCAL": "routes", "Activity": "activity", "AsyncSender": "async_sender", "Attempt": "sender",
    "Budget": "files.wallet_file", "Consent": "consent.consent", "ConsentMode": "consent.consent", "Device": "device",
    "Left": "files.memo_file", "Preview": "consent.preview", "Relay": "routes", "Sender": "sender", "Silence": "reports",
    "Spent": "reports", "SurveySpent": "files.wallet_file", "Waiting": "reports", "Wallet": "wallet", "WalletSpent": "wallet",
    "read_journal": "consent.journal", "switched_off": "consent.consent",
}  # fmt: skip

if not TYPE_CHECKING:  # with this function, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
