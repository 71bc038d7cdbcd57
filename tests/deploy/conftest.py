"""Shared by the tests of deployments: without its checker a test is skipped with the reason, and fails in CI."""

from collections.abc import Callable
from typing import TypeVar

from tests.conftest import give_up
from tests.deploy.tools import ToolError

T = TypeVar("T")


def wanted(fetch: Callable[[], T]) -> T:
    """Returns the result of `fetch`. If that fails, the test is skipped, or fails if `CI` is set."""
    try:
        return fetch()
    except ToolError as error:
        give_up(str(error))
