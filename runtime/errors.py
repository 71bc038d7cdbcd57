"""Errors that several folders of the project raise and catch."""

from ldpstream.surveys.errors import UserError


class LogUnavailable(UserError):
    """The broker is unreachable, does not answer in time, or refuses a request. A retry may succeed."""
