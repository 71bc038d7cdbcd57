"""The reference device's way through a relay, written from docs/write_a_device.md, RFC 9180, RFC 9292 and RFC 9458 alone."""

import hmac
from base64 import b64decode
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.devices.reference_check import Json
from tests.devices.reference_rows import seal

KEM_SUITE, SUITE = b"KEM\0\x20", b"HPKE\0\x20\0\x01\0\x01"


def sized(part: bytes) -> bytes:
    """The part, preceded by its length as a variable-length integer."""
    n = len(part)
    return (bytes([n]) if n < 64 else (n | 0x4000).to_bytes(2) if n < 2**14 else (n | 0x80000000).to_bytes(4)) + part


def message(gateway: str, envelope: bytes, key: str, token: str | None, largest: int) -> bytes:
    """The padded inner request; `largest` is the size of the survey's largest envelope of one report."""
    url = urlsplit(gateway)
    fields = [("content-type", "application/vnd.ldpstream.envelope"), ("idempotency-key", key)]
    fields += [] if token is None else [("authorization", f"Bearer {token}")]
    lines = b"".join(sized(part.encode()) for field in fields for part in field)
    head = b"\0" + b"".join(sized(part.encode()) for part in ("POST", url.scheme, url.netloc, "/v1/reports")) + sized(lines)
    whole = head + sized(envelope) + b"\0"
    return whole + bytes(len(head + sized(bytes(largest)) + b"\0") - len(whole))


def largest(survey: Json, canonical: Json) -> int:
    """The size of the largest envelope of one report."""
    cohort = len(canonical["cohort"]["values"]) - 1 if "cohort" in canonical else None
    return max(
        len(seal(survey["fingerprint"], a, i, 2**64 - 1, 1, bytes(p["row_bytes"]), cohort))
        for a, levels in enumerate(survey["mechanisms"])
        for i, p in enumerate(levels)
    )


def extract(salt: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), secret, "sha256")


def expand(prk: bytes, info: bytes, size: int) -> bytes:
    assert size <= 32
    return hmac.digest(prk, info + b"\1", "sha256")[:size]


def labelled_extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return extract(salt, b"HPKE-v1" + suite + label + secret)


def labelled_expand(suite: bytes, prk: bytes, label: bytes, info: bytes, size: int) -> bytes:
    return expand(prk, size.to_bytes(2) + b"HPKE-v1" + suite + label + info, size)


class ReferenceExchange:
    """A request that the device seals with its ephemeral private key."""

    def __init__(self, keys: str, ephemeral: bytes) -> None:
        config = b64decode(keys)
        assert (config[:2], config[3:5]) == ((len(config) - 2).to_bytes(2), b"\0\x20")
        self.head, public, own = (
            config[2:3] + b"\0\x20\0\x01\0\x01",
            config[5:37],
            X25519PrivateKey.from_private_bytes(ephemeral),
        )
        self.enc = own.public_key().public_bytes_raw()
        prk = labelled_extract(KEM_SUITE, b"", b"eae_prk", own.exchange(X25519PublicKey.from_public_bytes(public)))
        shared = labelled_expand(KEM_SUITE, prk, b"shared_secret", self.enc + public, 32)
        info = b"message/bhttp request\0" + self.head
        context = b"\0" + labelled_extract(SUITE, b"", b"psk_id_hash", b"") + labelled_extract(SUITE, b"", b"info_hash", info)
        secret = labelled_extract(SUITE, shared, b"secret", b"")
        self.key, self.nonce = (
            labelled_expand(SUITE, secret, label, context, size) for label, size in ((b"key", 16), (b"base_nonce", 12))
        )
        exporter = labelled_expand(SUITE, secret, b"exp", context, 32)
        self.exported = labelled_expand(SUITE, exporter, b"sec", b"message/bhttp response", 16)

    def capsule(self, inside: bytes) -> bytes:
        return self.head + self.enc + AESGCM(self.key).encrypt(self.nonce, inside, b"")

    def answer(self, sealed: bytes) -> tuple[int, dict[bytes, bytes]]:
        """Status and fields of a short answer. Raises InvalidTag for the answer to another request."""
        prk = extract(self.enc + sealed[:16], self.exported)
        opened = AESGCM(expand(prk, b"key", 16)).decrypt(expand(prk, b"nonce", 12), sealed[16:], b"")
        parts, at = list[bytes](), 3

        def part() -> bytes:
            nonlocal at
            size = opened[at] if opened[at] < 64 else int.from_bytes(opened[at : at + 2]) & 0x3FFF
            first, at = at + 1 + (opened[at] >= 64), at + 1 + (opened[at] >= 64) + size
            return opened[first:at]

        fields = part()
        end, at = at, at - len(fields)
        while at < end:
            parts.append(part())
        return int.from_bytes(opened[1:3]) & 0x3FFF, dict(zip(parts[::2], parts[1::2], strict=True))
