"""The base class of the errors that a user can cause or must see, the error of an absent service, and suggested names."""

from ldpstream.mechanisms.wording import did_you_mean

__all__ = ["Unreachable", "UserError", "did_you_mean"]


class UserError(Exception):
    """An error that a user or an operator can correct."""


class Unreachable(Exception):
    """A service is unreachable or does not answer."""
