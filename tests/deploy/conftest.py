"""What the checks of deployments share: a missing checker skips the test with the reason, and in CI fails it."""

from collections.abc import Callable
from typing import TypeVar

from tests.conftest import give_up
from tests.deploy.tools import ToolError

T = TypeVar("T")


def wanted(fetch: Callable[[], T]) -> T:
    """What `fetch` returns; where it cannot be had the test is skipped, or fails where `CI` is set."""
    try:
        return fetch()
    except ToolError as error:
        give_up(str(error))
