"""Names for an application that embeds a device: device, wallet for several surveys, sender to the gateway, errors.

Python loads the module of a name on the name's first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {  # every other name is an error
    "Activity": "activity", "Attempt": "sender", "Budget": "files.wallet_file", "Device": "device", "Relay": "routes",
    "Sender": "sender", "Silence": "device", "Spent": "device", "SurveySpent": "files.wallet_file", "Waiting": "device",
    "Wallet": "wallet", "WalletSpent": "wallet",
}  # fmt: skip

if not TYPE_CHECKING:  # with this function, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
