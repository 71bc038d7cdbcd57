"""Fixtures for the tests of the deployment files.

If a checker is missing, its tests are skipped with the reason; in CI they fail.
"""

from collections.abc import Callable
from typing import TypeVar

from tests.conftest import give_up
from tests.deploy.tools import ToolError

T = TypeVar("T")


def wanted(fetch: Callable[[], T]) -> T:
    """Returns the result of `fetch`. If `fetch` fails, skips the test; if also `CI` is set, fails the test."""
    try:
        return fetch()
    except ToolError as error:
        give_up(str(error))
