"""The operator's notes beside the file of a survey: `shop.notes` beside `shop.toml`, one note a line.

# time, in UTC if it names no zone, then the note
2026-11-17T09:30 2.4 released
"""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

log = structlog.get_logger("ldpstream.surveys")

MOST_NOTES, LONGEST = 1000, 200  # notes, and characters of a note


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """An event, such as a release, and its time in Unix milliseconds."""

    at_ms: int
    text: str


def notes_beside(path: Path) -> list[Note]:
    """Returns the latest notes beside a survey's file, in order. Logs each line that has no time, and leaves it out."""
    file, found = path.with_suffix(".notes"), list[Note]()
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    except (OSError, ValueError) as error:
        log.warning("notes cannot be read", file=str(file), error=str(error))
        return found
    for number, line in enumerate(lines, 1):
        time, _, text = line.strip().partition(" ")
        try:
            at = datetime.fromisoformat(time)
            at_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        except ValueError:
            if line.strip() and not line.startswith("#"):
                log.warning("a note needs a time such as 2026-11-17T09:30", file=str(file), line=number, got=time[:LONGEST])
        else:
            found.append(Note(at_ms=at_ms, text=text.strip()[:LONGEST]))
    return sorted(found, key=lambda note: note.at_ms)[-MOST_NOTES:]
