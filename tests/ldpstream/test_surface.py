"""Compares the names on which users and other programs rely with `surface.json`."""

import json
from typing import Any

import pytest

from .surface import RECORDED, surface

THEN: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    """The present names. A fixture collects them, because every process of the tests imports this module."""
    return surface()


@pytest.mark.parametrize("kind", sorted(THEN))
def test_names_are_as_recorded(now: dict[str, Any], kind: str) -> None:
    """After an intended change, run `python -m tests.ldpstream.surface` and add a line to CHANGELOG.md."""
    assert now[kind] == THEN[kind]


def test_every_kind_has_names(now: dict[str, Any]) -> None:
    """Control: if the collector found no names, the comparison would always succeed."""
    assert now.keys() == THEN.keys()
    sizes = {kind: len(names) for kind, names in now.items()}
    least = {"python": 5, "commands": 12, "settings": 35, "metrics": 35, "redis keys": 4, "publication": 12}
    assert all(sizes[kind] >= n for kind, n in least.items()), sizes
    assert len(now["estimates over HTTP"]["paths"]) >= 5
    assert len(now["gateway"]["paths"]) >= 3
