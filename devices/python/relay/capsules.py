"""Encapsulated requests and responses of Oblivious HTTP (RFC 9458), which only the device and the gateway can read.

    request    key id (1 byte) | KEM, KDF, AEAD (2 bytes each) | the device's fresh public key (32) | encrypted message
    response   nonce (of the length of the AEAD's key) | encrypted message

The messages are binary HTTP (`device.relay.binary_http`). The encryption is HPKE (RFC 9180) with X25519, HKDF-SHA256, and
AES-128-GCM or ChaCha20-Poly1305. Every request has a fresh key of the device, so two requests have only their size, the
gateway's key id and the suite in common.
"""

import secrets
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyhpke import (
    AEADId,
    AEADKeyInterface,
    CipherSuite,
    ContextInterface,
    KDFId,
    KEMId,
    KEMKeyInterface,
    KEMKeyPair,
    PyHPKEError,
)

REQUEST_TYPE, RESPONSE_TYPE, KEYS_TYPE = "message/ohttp-req", "message/ohttp-res", "application/ohttp-keys"
REQUEST_LABEL, RESPONSE_LABEL = b"message/bhttp request", b"message/bhttp response"
KEM, KDF = KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256
AEADS: Final = (AEADId.AES128_GCM, AEADId.CHACHA20_POLY1305)  # in the gateway's order of preference
SUITES: Final = {aead.value: CipherSuite.new(KEM, KDF, aead) for aead in AEADS}
KEY_BYTES, TAG_BYTES = 32, 16
HEAD = struct.Struct(">BHHH")
OVERHEAD_BYTES: Final = HEAD.size + KEY_BYTES + TAG_BYTES  # bytes that an encapsulated request adds


class CapsuleError(ValueError):
    """A capsule or a document of key configurations cannot be read."""


class UnknownKeyError(CapsuleError):
    """None of the gateway's keys opens the capsule."""


class KeyConfig(NamedTuple):
    """A key configuration of a gateway."""

    key_id: int
    public: bytes


def encode_configs(configs: list[KeyConfig]) -> bytes:
    """Returns the document of type `KEYS_TYPE`, with the AEADs in the gateway's order of preference."""
    suites = b"".join(struct.pack(">HH", KDF.value, aead.value) for aead in AEADS)
    found = b""
    for config in configs:
        whole = struct.pack(">BH", config.key_id, KEM.value) + config.public + struct.pack(">H", len(suites)) + suites
        found += struct.pack(">H", len(whole)) + whole
    return found


def decode_configs(document: bytes) -> list[KeyConfig]:
    """Returns the configurations of a document of type `KEYS_TYPE` that have `KEM`, `KDF` and the first of `AEADS`.

    Raises:
        CapsuleError: if the document has another form.
    """
    found, at = list[KeyConfig](), 0
    ours = struct.pack(">HH", KDF.value, AEADS[0].value)
    while at < len(document):
        size = int.from_bytes(document[at : at + 2])
        whole, at = document[at + 2 : at + 2 + size], at + 2 + size
        if at > len(document) or len(whole) < 3:
            raise CapsuleError("the document of key configurations ends too early")
        if int.from_bytes(whole[1:3]) != KEM.value:
            continue
        public, suites = whole[3 : 3 + KEY_BYTES], whole[5 + KEY_BYTES :]
        if len(suites) != int.from_bytes(whole[3 + KEY_BYTES : 5 + KEY_BYTES]) or not suites or len(suites) % 4:
            raise CapsuleError("a key configuration has a wrong length")
        if ours in (suites[first : first + 4] for first in range(0, len(suites), 4)):
            found.append(KeyConfig(whole[0], public))
    return found


def public_key(private: KEMKeyInterface) -> bytes:
    return bytes(private.raw.public_key().public_bytes_raw())


def new_private_key() -> bytes:
    """Returns 32 random bytes: a private key of X25519."""
    return secrets.token_bytes(KEY_BYTES)


def load_key(private: bytes) -> KEMKeyInterface:
    return SUITES[AEADS[0].value].kem.deserialize_private_key(private)


class Exchange:
    """A request that was sealed or opened, and the keys of its response."""

    def __init__(self, context: ContextInterface, aead: int, enc: bytes, message: bytes) -> None:
        self.message = message
        self._suite, self._enc = SUITES[aead], enc
        self._nonce_bytes = max(self._suite.aead.key_size, self._suite.aead.nonce_size)
        self._secret = context.export(RESPONSE_LABEL, self._nonce_bytes)

    def seal_response(self, message: bytes, nonce: bytes | None = None) -> bytes:
        """Returns the encapsulated response. Only test vectors give `nonce`, because a nonce must never repeat."""
        nonce = secrets.token_bytes(self._nonce_bytes) if nonce is None else nonce
        key, key_nonce = self._response_key(nonce)
        return nonce + key.seal(message, key_nonce)

    def open_response(self, capsule: bytes) -> bytes:
        """Returns the message of an encapsulated response.

        Raises:
            CapsuleError: if the response does not answer this request.
        """
        nonce, sealed = capsule[: self._nonce_bytes], capsule[self._nonce_bytes :]
        key, key_nonce = self._response_key(nonce)
        try:
            return key.open(sealed, key_nonce)
        except Exception:
            raise CapsuleError("the response cannot be decrypted") from None

    def _response_key(self, nonce: bytes) -> tuple[AEADKeyInterface, bytes]:
        kdf, aead = self._suite.kdf, self._suite.aead
        prk = kdf.extract(self._enc + nonce, self._secret)
        return aead.import_key(kdf.expand(prk, b"key", aead.key_size)), kdf.expand(prk, b"nonce", aead.nonce_size)


def seal_request(
    config: KeyConfig, message: bytes, aead: AEADId = AEADS[0], pair: KEMKeyPair | None = None
) -> tuple[bytes, Exchange]:
    """Returns the encapsulated request, and the `Exchange` that opens its response.

    Args:
        pair: a fresh pair of keys; only test vectors give it.
    """
    suite, head = SUITES[aead.value], HEAD.pack(config.key_id, KEM.value, KDF.value, aead.value)
    public = suite.kem.deserialize_public_key(config.public)
    enc, context = suite.create_sender_context(public, REQUEST_LABEL + b"\0" + head, eks=pair)
    return head + enc + context.seal(message), Exchange(context, aead.value, enc, message)


def open_request(keys: Mapping[int, KEMKeyInterface], capsule: bytes) -> Exchange:
    """Returns the opened request.

    Raises:
        UnknownKeyError: if no key of the gateway opens the capsule.
        CapsuleError: if the bytes are too few for a capsule.
    """
    if len(capsule) < OVERHEAD_BYTES:
        raise CapsuleError(f"an encapsulated request has at least {OVERHEAD_BYTES} bytes, got {len(capsule)}")
    key_id, kem, kdf, aead = HEAD.unpack_from(capsule)
    if key_id not in keys or (kem, kdf) != (KEM.value, KDF.value) or aead not in SUITES:
        raise UnknownKeyError("this gateway has no such key configuration")
    enc, sealed = capsule[HEAD.size : HEAD.size + KEY_BYTES], capsule[HEAD.size + KEY_BYTES :]
    try:
        context = SUITES[aead].create_recipient_context(enc, keys[key_id], REQUEST_LABEL + b"\0" + capsule[: HEAD.size])
        return Exchange(context, aead, enc, context.open(sealed))
    except (PyHPKEError, ValueError):  # a ValueError for a public key of low order
        raise UnknownKeyError("this gateway's key does not open the request") from None
