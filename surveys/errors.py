"""The base class of the errors that a user can cause or must see, and the suggestion for a misspelt name."""

from ldpstream.mechanisms.wording import did_you_mean

__all__ = ["UserError", "did_you_mean"]


class UserError(Exception):
    """An error that a user or an operator can correct."""
