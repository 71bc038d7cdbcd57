"""The signature beside the file of a survey."""

from datetime import datetime
from pathlib import Path

from ldpstream.surveys.signatures import FILE, Signature, read_lines, sha256
from ldpstream.surveys.survey import Survey


def signed_at(survey: Survey, path: Path) -> datetime | None:
    """Returns the time of the latest signature of a survey beside its file, by the signer's clock; nothing verifies it.

    None if there is no such signature, or the file of signatures cannot be read.
    """
    canonical = sha256(survey.canonical)
    try:
        stated = [line.read() for line in read_lines((path.parent / FILE).read_text(encoding="utf-8"), Signature)]
    except (OSError, ValueError):  # also a text that is not UTF-8, or a line of another form
        return None
    return max((one.signed for one in stated if one.canonical_sha256 == canonical), default=None)
