"""Private keys, and the file of signatures of a folder of surveys."""

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ldpstream.runtime.files import write_file
from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.differences import Difference, differences
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.signatures import (
    NOT_INSTALLED,
    SignatureError,
    SignedLine,
    Statement,
    is_signed_by,
    read_lines,
    sha256,
    statement,
)
from ldpstream.surveys.survey_file import toml_document

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class SigningError(UserError):
    """A key or a file of signatures cannot be used, or cryptography is missing."""


class Entry(NamedTuple):
    """One line of the file, as `entries` reads it.

    Attributes:
        survey: the signed survey; None if this version cannot read it.
        earlier: the latest earlier survey that this survey continues, by name or `replaces`; None without one.
    """

    statement: Statement
    line: SignedLine
    survey: Survey | None
    earlier: Survey | None
    changes: list[Difference]


def load_key(path: Path, passphrase: str | None) -> "Ed25519PrivateKey":
    """Reads a private key, Ed25519 in PEM (PKCS #8), encrypted or not.

    Raises:
        SigningError: if the file cannot be read or is no such key, or the passphrase is wrong.
    """
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = read_bytes(path)
    try:
        key = load_pem_private_key(pem, passphrase.encode() if passphrase and is_encrypted(pem) else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningError(f"{path}: not an Ed25519 private key (PEM), or the passphrase is wrong")
    return key


def is_encrypted(pem: bytes) -> bool:
    return b"ENCRYPTED" in pem


def public_text(key: "Ed25519PrivateKey") -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def draft(survey: Survey, toml: str, before: Sequence[SignedLine], now: datetime) -> SignedLine:
    """Returns the line after the lines `before`, without its signature."""
    previous = before[-1].statement if before else None
    text = statement(survey, toml, previous, now.astimezone(UTC).replace(microsecond=0))
    return SignedLine(statement=text, signature="", toml=toml)


def append(path: Path, before: Sequence[SignedLine], line: SignedLine, key: "Ed25519PrivateKey") -> None:
    """Signs a line, and writes it after the lines `before`, which are those of the file.

    Raises:
        SigningError: if the file cannot be written.
    """
    signature = base64.b64encode(key.sign(line.statement.encode())).decode()
    try:
        signed = msgspec.structs.replace(line, signature=signature)
        write_file(path, b"".join(msgspec.json.encode(one) + b"\n" for one in (*before, signed)))
    except OSError as error:
        raise SigningError(f"{path}: cannot be written: {error.strerror}") from None


def read_file(path: Path) -> list[SignedLine]:
    """Returns the lines of a file of signatures; none if there is no file. Checks that each line names the previous line.

    Raises:
        SigningError: if the file cannot be read, or a line is not a signature or does not fit its text or the previous line.
    """
    try:
        if not path.exists():
            return []
    except OSError as error:
        raise SigningError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        lines = read_lines(read_bytes(path).decode(), SignedLine)
        previous = None
        for number, line in enumerate(lines, 1):
            stated = line.read()
            if stated.previous != previous:
                raise SigningError(f"{path}: line {number} does not follow the previous line: lines were changed")
            if stated.toml_sha256 != sha256(line.toml):
                raise SigningError(f"{path}: line {number} is not about the survey's text beside it")
            previous = sha256(line.statement)
    except (SignatureError, UnicodeDecodeError) as error:
        raise SigningError(f"{path}: {error if isinstance(error, SignatureError) else 'is not text in UTF-8'}") from None
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
        yield Entry(line.read(), line, survey, earlier, differences(earlier, survey) if earlier and survey else [])


def signers(lines: Sequence[SignedLine], keys: Sequence[bytes]) -> list[bytes | None]:
    """Returns for each line the key that signed it; None if none of the keys signed it.

    Raises:
        SigningError: if the package cryptography is missing.
    """
    _require_cryptography()
    return [next((key for key in keys if is_signed_by(line, key)), None) for line in lines]


def state_of(survey: Survey, toml: str, lines: Sequence[SignedLine]) -> str:
    """Returns "signed" if the newest line of the survey's name states this survey and text; otherwise what differs.

    Verifies no signature: see `signers`.
    """
    named = [stated for stated in (line.read() for line in lines) if stated.survey == survey.name]
    found = [stated for stated in named if stated.canonical_sha256 == sha256(survey.canonical)]
    if not found:
        return "not signed"
    if found[-1] is not named[-1]:
        return f"signed earlier, but a later survey of this name is signed: {named[-1].fingerprint}"
    if found[-1].toml_sha256 != sha256(toml):
        return "signed for devices, but comments or keys for people changed since"
    return "signed"


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SigningError(f"{path}: cannot be read: {error.strerror}") from None


def _survey(toml: str) -> Survey | None:
    try:
        return parse_survey(toml_document(toml))
    except (ValueError, RecursionError):  # also excessive numbers
        return None


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise SigningError(NOT_INSTALLED)
