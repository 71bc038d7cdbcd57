"""Runs the examples in the docstrings of all modules except the mechanisms, whose contract tests run theirs."""

import doctest
from importlib import import_module

import pytest

from .rooms import INSTALLED, ROOT, sources

FILES = [path for room in INSTALLED if room != "mechanisms" for path in sources(room)]
EXAMPLES = sorted(path.relative_to(ROOT).with_suffix("") for path in FILES if ">>> " in path.read_text())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 5


@pytest.mark.parametrize("place", EXAMPLES, ids=str)
def test_the_examples_in_the_docstrings_run(place: object) -> None:
    name = str(place).replace("/", ".").removesuffix(".__init__")
    found = doctest.testmod(import_module(name if name.startswith("ldpstream") else f"ldpstream.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
