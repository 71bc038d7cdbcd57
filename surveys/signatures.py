"""Signatures of surveys: the file `signatures.jsonl` beside the survey files.

Each line is one signature, as JSON. The last line is the latest signature:

    {"statement": "…", "signature": "…base64 of 64 bytes…", "toml": "…the text of the survey's file…"}

The signature is Ed25519 (RFC 8032) over `statement` in UTF-8. `statement` is a `Statement` as JSON in the canonical form of RFC
8785. `previous` is the SHA-256 of the previous line's statement: to change, remove or insert an earlier statement takes new
signatures of all later lines.

A statement of another format is refused.
"""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
import rfc8785
from msgspec import Meta

from ldpstream.surveys.errors import UserError
from ldpstream.surveys.survey import HEX, Survey

FILE = "signatures.jsonl"
FORMAT = "ldpstream survey signature 1"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
SHA256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class SignatureError(UserError, ValueError):
    """A survey is not signed, or a signature or a key cannot be used."""


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The text that the owner of a key signs.

    Attributes:
        format: `FORMAT`.
        survey, fingerprint: name and fingerprint of the survey.
        canonical_sha256, toml_sha256: the SHA-256 of the canonical text and of the file's text, in UTF-8.
        previous: the SHA-256 of the previous statement in the file; None for the first.
        signed: the time of the signature, by the signer's clock.
    """

    format: Literal["ldpstream survey signature 1"]
    survey: str
    fingerprint: Annotated[str, Meta(pattern=HEX)]
    canonical_sha256: SHA256
    toml_sha256: SHA256
    previous: SHA256 | None
    signed: Annotated[datetime, Meta(tz=True)]


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A statement as text, and its signature in base64, as gateways serve them."""

    statement: str
    signature: str

    def read(self) -> Statement:
        """Returns the parsed statement. Raises SignatureError if it has another form or format."""
        try:
            stated = msgspec.json.decode(self.statement, type=Statement)
            stated.signed.astimezone(UTC)
            return stated
        except (msgspec.DecodeError, RecursionError, OverflowError):
            raise SignatureError(f"a signed statement must have the format {FORMAT!r}, got {self.statement[:60]!r}") from None


class SignedLine(Signature, frozen=True, kw_only=True):
    """A line of the file: the signature, and the text of the file that was signed."""

    toml: str


AnySignature = TypeVar("AnySignature", bound=Signature)


def sha256(text: str) -> str:
    """The SHA-256 of a text in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def statement(survey: Survey, toml: str, previous: str | None, signed: datetime) -> str:
    """Returns the text to sign. `previous` is the text of the previous statement in the file, if there is one."""
    stated = Statement(
        format="ldpstream survey signature 1", survey=survey.name, fingerprint=survey.fingerprint.hex(),
        canonical_sha256=sha256(survey.canonical), toml_sha256=sha256(toml),
        previous=None if previous is None else sha256(previous), signed=signed,
    )  # fmt: skip
    return rfc8785.dumps(msgspec.to_builtins(stated)).decode()


def read_lines(text: str, kind: type[AnySignature]) -> list[AnySignature]:
    """Returns the signatures of a text, one in each line that is not empty.

    Raises:
        SignatureError: if a line is not a signature.
    """
    found = []
    for number, line in enumerate(text.split("\n"), 1):  # `splitlines` would also split at separators within a JSON text
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise SignatureError(f"line {number} of the signatures is not a signature") from None
    return found


def public_keys(signed_by: str | Sequence[str]) -> list[bytes]:
    """Returns the 32 bytes of one public key or of several.

    Raises:
        ValueError: if there is none, or a text is not 44 characters of base64.
    """
    texts = [signed_by] if isinstance(signed_by, str) else list(signed_by)
    keys = []
    for text in texts:
        key = _base64(text, KEY_BYTES)
        if key is None:
            raise ValueError(f"a public key must have 44 characters of base64, as `sign` prints it, got {text[:60]!r}")
        keys.append(key)
    if not keys:
        raise ValueError("signed_by must name at least one public key, got none")
    return keys


def require_cryptography() -> None:
    """Raises ModuleNotFoundError if the package cryptography is not installed."""
    if find_spec("cryptography") is None:
        raise ModuleNotFoundError("signatures need the package cryptography: in your checkout, pip install '.[signed]'")


def is_signed_by(signature: Signature, key: bytes) -> bool:
    """True if the owner of the key has signed the statement.

    Raises:
        ModuleNotFoundError: if the package cryptography is not installed.
    """
    require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    raw = _base64(signature.signature, SIGNATURE_BYTES)
    if raw is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(raw, signature.statement.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def require_signature(survey: Survey, signatures: str | None, keys: Sequence[bytes]) -> None:
    """Requires a signature of the survey by one of the keys.

    Args:
        survey: the survey.
        signatures: signatures as JSON, one in each line; other surveys' signatures may be among them.
        keys: public keys.

    Raises:
        SignatureError: if there is no such signature, or a line cannot be read.
        ModuleNotFoundError: as for `is_signed_by`.
    """
    canonical = sha256(survey.canonical)
    found = [one for one in read_lines(signatures or "", Signature) if one.read().canonical_sha256 == canonical]
    if not any(is_signed_by(one, key) for one in found for key in keys):
        why = "its signature is not by the expected key" if found else "it has no signature"
        raise SignatureError(f"survey {survey.name} with the fingerprint {survey.fingerprint.hex()} is not signed: {why}")


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


def _base64(text: str, length: int) -> bytes | None:
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if len(raw) == length and base64.b64encode(raw).decode() == text else None
