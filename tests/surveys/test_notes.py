"""Tests of the operator's notes beside a survey's file."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ldpstream.surveys.life.notes import Note, notes_beside


@pytest.mark.parametrize(
    ("content", "texts", "warnings"),
    [
        (b"", [], 0),
        ("# releases\n\n2026-11-17T09:30 2.4 für alle\n2026-11-16T09:30+02:00 2.3\n".encode(), ["2.3", "2.4 für alle"], 0),
        (b"yesterday 2.4\n2026-11-17 2.5\n", ["2.5"], 1),
        (b"\xff\n", [], 1),
    ],
)
def test_notes_have_a_time_and_a_bad_line_is_named(tmp_path: Path, content: bytes, texts: list[str], warnings: int) -> None:
    (tmp_path / "shop.notes").write_bytes(content)
    with capture_logs() as said:
        found = notes_beside(tmp_path / "shop.toml")
    assert ([note.text for note in found], len(said)) == (texts, warnings)
    assert notes_beside(tmp_path / "other.toml") == []
    assert not texts or Note(at_ms=1_794_907_800_000, text="2.4 für alle") in found or found[0].text == "2.5"
