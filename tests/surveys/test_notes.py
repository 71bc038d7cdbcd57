"""Tests of the operator's notes beside a survey's file."""

from pathlib import Path

from structlog.testing import capture_logs

from ldpstream.surveys.life.notes import Note, notes_beside


def test_notes_have_a_time_and_a_bad_line_is_named(tmp_path: Path) -> None:
    assert notes_beside(tmp_path / "shop.toml") == []
    written = "# releases\n\n2026-11-17T09:30 2.4 für alle\nyesterday 2.5\n2026-11-16T09:30+02:00 2.3\n"
    for content, times, warnings in ((written.encode(), [1_794_814_200_000, 1_794_907_800_000], 1), (b"\xff\n", [], 1)):
        (tmp_path / "shop.notes").write_bytes(content)
        with capture_logs() as said:
            found = notes_beside(tmp_path / "shop.toml")
        assert found == [Note(at_ms=at_ms, text=text) for at_ms, text in zip(times, ("2.3", "2.4 für alle"), strict=False)]
        assert len(said) == warnings
