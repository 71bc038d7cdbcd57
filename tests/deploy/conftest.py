"""What the checks of deployments share: a missing checker skips the test with the reason, and in CI fails it."""

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.deploy.tools import ToolError

T = TypeVar("T")


def wanted(fetch: Callable[[], T]) -> T:
    """What `fetch` returns; where it cannot be had the test is skipped, or fails where `CI` is set."""
    try:
        return fetch()
    except ToolError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
