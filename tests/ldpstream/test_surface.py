"""Compares the names on which users and other programs rely with `surface.json`."""

import json
from typing import Any

import pytest

from .surface import RECORDED, surface

NOW = surface()
THEN: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", sorted(NOW | THEN))
def test_names_are_as_recorded(kind: str) -> None:
    """After an intended change, run `python -m tests.ldpstream.surface` and add a line to CHANGELOG.md."""
    assert NOW[kind] == THEN[kind]


def test_every_kind_has_names() -> None:
    """Control: if the collector found no names, the comparison would always succeed."""
    sizes = {kind: len(names) for kind, names in NOW.items()}
    least = {"python": 5, "commands": 12, "settings": 35, "metrics": 35, "redis keys": 4, "publication": 12}
    assert all(sizes[kind] >= n for kind, n in least.items()), sizes
    assert len(NOW["estimates over HTTP"]["paths"]) >= 5
    assert len(NOW["gateway"]["paths"]) >= 3
