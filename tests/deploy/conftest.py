"""Fixtures of the tests of deployments. A test without its checker is skipped with the reason; in CI it fails."""

from collections.abc import Callable
from typing import TypeVar

from tests.conftest import give_up
from tests.deploy.tools import ToolError

T = TypeVar("T")


def wanted(fetch: Callable[[], T]) -> T:
    """Returns the result of `fetch`. If `fetch` fails, the test is skipped, or fails if `CI` is set."""
    try:
        return fetch()
    except ToolError as error:
        give_up(str(error))
