"""Runs the examples in the docstrings of all modules except the mechanisms, whose contract tests run theirs."""

import doctest
from importlib import import_module

import pytest

from .rooms import INSTALLED, module_of, sources

FILES = [(path, room) for room in INSTALLED if room != "mechanisms" for path in sources(room)]
EXAMPLES = sorted(module_of(*found) for found in FILES if ">>> " in found[0].read_text())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 5


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    found = doctest.testmod(import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
