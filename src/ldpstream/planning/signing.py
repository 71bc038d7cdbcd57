"""Private keys, and the file of signatures of a folder of surveys."""

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.differences import Difference, differences
from ldpstream.surveys.signatures import (
    SignatureError,
    SignedLine,
    Statement,
    is_signed_by,
    read_lines,
    require_cryptography,
    sha256,
    statement,
)
from ldpstream.surveys.survey_file import toml_document

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Entry(NamedTuple):
    """One line of the file, as `entries` reads it.

    Attributes:
        survey: the signed survey; None if this version cannot read it.
        earlier: the latest earlier survey that this survey continues, by name or `replaces`; None without one.
    """

    statement: Statement
    survey: Survey | None
    earlier: Survey | None
    changes: list[Difference]


def load_key(path: Path, passphrase: Callable[[], str]) -> "Ed25519PrivateKey":
    """Reads a private key, Ed25519 in PEM (PKCS #8).

    Args:
        passphrase: returns the passphrase of an encrypted key.

    Raises:
        SignatureError: if the file is no such key, or the passphrase is wrong.
        OSError: if the file cannot be read.
        ModuleNotFoundError: if the package cryptography is not installed.
    """
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem, key = path.read_bytes(), None
    secret = passphrase().encode() if b"ENCRYPTED" in pem else None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load_pem_private_key(pem, secret)
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"{path}: not an Ed25519 private key (PEM), or the passphrase is wrong")
    return key


def public_text(key: "Ed25519PrivateKey") -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def sign(survey: Survey, toml: str, before: Sequence[SignedLine], now: datetime, key: "Ed25519PrivateKey") -> SignedLine:
    """Returns the line after the lines `before`."""
    previous = before[-1].statement if before else None
    text = statement(survey, toml, previous, now.astimezone(UTC).replace(microsecond=0))
    return SignedLine(statement=text, signature=base64.b64encode(key.sign(text.encode())).decode(), toml=toml)


def read_file(path: Path) -> list[SignedLine]:
    """Returns the lines of a file of signatures; none if there is no file. Checks that each line names the previous line.

    Raises:
        SignatureError: if a line is not a signature, or does not fit its text or the previous line.
        OSError: if the file cannot be read.
    """
    try:
        lines, previous = read_lines(path.read_text(encoding="utf-8") if path.exists() else "", SignedLine), None
        for number, line in enumerate(lines, 1):
            stated = line.read()
            if stated.previous != previous:
                raise SignatureError(f"line {number} does not follow the previous line: lines were changed")
            if stated.toml_sha256 != sha256(line.toml):
                raise SignatureError(f"line {number} is not about the survey's text beside it")
            previous = sha256(line.statement)
    except ValueError as error:  # also a text that is not UTF-8
        raise SignatureError(f"{path}: {error}") from None
    return lines


def entries(lines: Sequence[SignedLine]) -> Iterator[Entry]:
    """Yields the lines of a file of signatures with the changes since the survey that each continues."""
    known: list[Survey] = []
    for line in lines:
        survey, earlier = _survey(line.toml), None
        if survey is not None:
            named = [one for one in known if one.name == survey.name or one.fingerprint.hex() == survey.replaces]
            earlier = named[-1] if named else None
            known.append(survey)
        yield Entry(line.read(), survey, earlier, differences(earlier, survey) if earlier and survey else [])


def signers(lines: Sequence[SignedLine], keys: Sequence[bytes]) -> list[bytes | None]:
    """Returns for each line the key that signed it; None if none of the keys signed it."""
    return [next((key for key in keys if is_signed_by(line, key)), None) for line in lines]


def state_of(survey: Survey, toml: str, lines: Sequence[SignedLine]) -> str:
    """Returns "signed" if the newest line of the survey's name states this survey and text; otherwise what differs.

    Verifies no signature: see `signers`.
    """
    named = [stated for stated in (line.read() for line in lines) if stated.survey == survey.name]
    if not named or named[-1].canonical_sha256 != sha256(survey.canonical):
        if any(stated.canonical_sha256 == sha256(survey.canonical) for stated in named):
            return f"signed earlier, but a later survey of this name is signed: {named[-1].fingerprint}"
        return "not signed as it is now" if named else "not signed"
    if named[-1].toml_sha256 != sha256(toml):
        return "signed for devices, but comments or keys for people changed since"
    return "signed"


def _survey(toml: str) -> Survey | None:
    try:
        return parse_survey(toml_document(toml))
    except (ValueError, RecursionError):  # also excessive numbers
        return None
