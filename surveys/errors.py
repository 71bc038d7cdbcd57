"""The base class of the errors that a user can cause or must see."""


class UserError(Exception):
    """An error that a user or an operator can correct. The message is one line; the command line shows it and no traceback."""
