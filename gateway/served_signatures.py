"""The signatures of the surveys of a gateway, from the file `signatures.jsonl` beside each survey file.

The gateway does not verify the signatures. It serves the signatures that state the hash of the survey's canonical text.
"""

from collections.abc import Iterable
from pathlib import Path

import structlog

from ldpstream.gateway.credentials import stamp
from ldpstream.surveys.life.folder import Stamp, SurveyText
from ldpstream.surveys.signatures import FILE, Signature, SignatureError, read_lines, sha256

log = structlog.get_logger("ldpstream.gateway")


class ServedSignatures:
    """The signatures, found by the hash of a survey's canonical text."""

    def __init__(self) -> None:
        self._seen: dict[Path, Stamp | None] = {}
        self._found: dict[Path, dict[str, list[Signature]]] = {}
        self._refused: dict[Path, str] = {}

    def look(self, texts: Iterable[SurveyText]) -> bool:
        seen = {path: stamp(path) for path in {text.path.parent / FILE for text in texts}}
        changed = [path for path, stamp in seen.items() if stamp != self._seen.get(path) or path in self._refused]
        self._seen = seen
        read = [self._read(path) for path in changed]
        return any(read)

    def of(self, text: SurveyText) -> list[Signature]:
        return self._found.get(text.path.parent / FILE, {}).get(sha256(text.survey.canonical), [])

    def _read(self, path: Path) -> bool:
        try:
            lines = read_lines(path.read_text(encoding="utf-8"), Signature) if path.exists() else []
            found: dict[str, list[Signature]] = {}
            for line in lines:
                found.setdefault(line.read().canonical_sha256, []).append(line)
            self._found[path] = found
            self._refused.pop(path, None)
            return True
        except (SignatureError, OSError, UnicodeDecodeError) as error:
            if self._refused.get(path) != str(error):
                log.error("signatures cannot be read", file=str(path), error=str(error))
            self._refused[path] = str(error)
            return False
