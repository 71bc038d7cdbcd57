"""Signatures of surveys for the test vectors: good ones, and ones that a device must refuse. The keys are for tests alone."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ldpstream.surveys import Survey
from ldpstream.surveys.signatures import statement

Json = dict[str, Any]
OWNER, LATER, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([i] * 32)) for i in (1, 2, 3))
SIGNED = datetime(2026, 1, 5, 12, tzinfo=UTC)


def public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def signature(text: str, key: Ed25519PrivateKey = OWNER) -> Json:
    return {"statement": text, "signature": base64.b64encode(key.sign(text.encode())).decode()}


def signatures(survey: Survey, toml: str, other: Survey) -> Iterator[Json]:
    """Each case has a device survey's `canonical` text and `signature`, the keys `signed_by`, and whether a device accepts."""
    text = statement(survey, toml, None, SIGNED)
    good, keys = signature(text), [public(OWNER)]
    letters = "A" if good["signature"][5] != "A" else "B"

    def case(name: str, given: Json | None, signed_by: list[str] = keys, accepted: bool = False) -> Json:
        return {
            "case": name, "canonical": survey.canonical, "fingerprint": survey.fingerprint.hex(), "pin": survey.pin,
            "signature": given, "signed_by": signed_by, "accepted": accepted,
        }  # fmt: skip

    yield case("signed", good, accepted=True)
    yield case("signed by one of two keys", good, [public(LATER), public(OWNER)], accepted=True)
    yield case("a later statement", signature(statement(survey, toml + "# later\n", text, SIGNED)), accepted=True)
    yield case("no signature", None)
    yield case("another key", good, [public(LATER)])
    yield case("signed by a stranger", signature(text, STRANGER))
    yield case("the signature of another survey", signature(statement(other, toml, None, SIGNED)))
    yield case("a changed statement", good | {"statement": text.replace("2026-01-05", "2026-01-06")})
    yield case("a space in the statement", good | {"statement": text + " "})
    changed = good["signature"][:5] + letters + good["signature"][6:]
    yield case("a changed signature", good | {"signature": changed})
    yield case("half a signature", good | {"signature": good["signature"][:44]})
    yield case("a signature without padding", good | {"signature": good["signature"].rstrip("=")})
    yield case("a signature that is no base64", good | {"signature": "ü" * 88})
    yield case("another format", signature(text.replace("signature 1", "signature 2")))
    yield case("a statement that is no object", signature(json.dumps("signed")))
    yield case("a statement that is no JSON", signature("signed"))
