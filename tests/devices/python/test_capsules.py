"""Encapsulated requests against RFC 9458, appendix A, and against two foreign implementations; the library against RFC 9180."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKeyPair

from ldpstream.device.relay.binary_http import BinaryRequest, decode_request
from ldpstream.device.relay.capsules import (
    AEADS,
    OVERHEAD_BYTES,
    CapsuleError,
    KeyConfig,
    UnknownKeyError,
    decode_configs,
    encode_configs,
    load_key,
    open_request,
    public_key,
    seal_request,
)

PRIVATE = load_key(bytes.fromhex("3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a"))
CONFIG = "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003"
FRESH = bytes.fromhex("bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73")
REQUEST = bytes.fromhex("00034745540568747470730b6578616d706c652e636f6d012f")
SEALED = bytes.fromhex(
    "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b4726374e469135906992e1268c594d2a10c695d858c40a026e7"
    "965e7d86b83dd440b2c0185204b4d63525"
)
RESPONSE, NONCE = bytes.fromhex("0140c8"), bytes.fromhex("c789e7151fcba46158ca84b04464910d")
ANSWER = NONCE + bytes.fromhex("86f9013e404feea014e7be4a441f234f857fbd")
KEYS = {1: PRIVATE}
OURS = KeyConfig(1, public_key(PRIVATE))
FOREIGN = json.loads((Path(__file__).parent / "relay_vectors.json").read_text())


def test_appendix_a_of_the_rfc() -> None:
    assert encode_configs([OURS]) == bytes.fromhex("002d" + CONFIG)
    assert decode_configs(bytes.fromhex("002d" + CONFIG) * 2) == [OURS, OURS]
    kem = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM).kem
    pair = KEMKeyPair(load_key(FRESH), kem.deserialize_public_key(public_key(load_key(FRESH))))
    sealed, device = seal_request(OURS, REQUEST, pair=pair)
    opened = open_request(KEYS, SEALED)
    assert (sealed, opened.message) == (SEALED, REQUEST)
    assert opened.seal_response(RESPONSE, NONCE) == ANSWER
    assert device.open_response(ANSWER) == RESPONSE


@pytest.mark.parametrize("vector", FOREIGN["capsules"], ids=lambda v: f"{v['made_by'][:4]} {v['aead']}")
def test_requests_that_foreign_implementations_made(vector: dict[str, Any]) -> None:
    """Clients of a Rust crate and of a Go module made these requests; they read our responses, too."""
    keys, capsule = {FOREIGN["key_id"]: load_key(bytes.fromhex(FOREIGN["private"]))}, bytes.fromhex(vector["capsule"])
    opened = open_request(keys, capsule)
    assert capsule[5:7] == vector["aead"].to_bytes(2)
    headers = (
        (b"content-type", b"application/vnd.ldpstream.envelope"),
        (b"idempotency-key", FOREIGN["idempotency_key"].encode()),
    )
    expected = BinaryRequest(b"POST", b"https", FOREIGN["authority"].encode(), b"/v1/reports", headers, b"a report")
    assert decode_request(opened.message) == expected


@pytest.mark.parametrize("aead", AEADS)
def test_request_and_response_of_both_suites(aead: AEADId) -> None:
    sealed, device = seal_request(OURS, b"question", aead)
    again, other = seal_request(OURS, b"question", aead)
    assert len(sealed) == len(b"question") + OVERHEAD_BYTES
    assert sealed[:7] == again[:7]
    assert not any(sealed[i : i + 4] in again for i in range(7, len(sealed) - 3))  # nothing else repeats
    answer = open_request(KEYS, sealed).seal_response(b"answer")
    assert device.open_response(answer) == b"answer"
    for wrong in (b"", answer[:20], answer[:-1], answer[:-1] + bytes([answer[-1] ^ 1])):
        with pytest.raises(CapsuleError, match="response"):
            device.open_response(wrong)
    with pytest.raises(CapsuleError):
        other.open_response(answer)


def test_a_capsule_that_no_key_opens() -> None:
    other = load_key(FRESH)
    with pytest.raises(UnknownKeyError, match="no such key configuration"):
        open_request({2: PRIVATE}, SEALED)
    with pytest.raises(UnknownKeyError, match="does not open"):
        open_request({1: other}, SEALED)
    for position in range(1, 7):  # another KEM, KDF or AEAD
        with pytest.raises(UnknownKeyError, match="no such key configuration"):
            open_request(KEYS, SEALED[:position] + b"\x7f" + SEALED[position + 1 :])
    low_order = SEALED[:7] + bytes(32) + SEALED[39:]
    with pytest.raises(UnknownKeyError):
        open_request(KEYS, low_order)


def test_a_short_capsule_is_refused() -> None:
    for size in range(OVERHEAD_BYTES):
        with pytest.raises(CapsuleError, match=f"got {size}"):
            open_request(KEYS, SEALED[:size])
    for size in range(OVERHEAD_BYTES, len(SEALED)):
        with pytest.raises(UnknownKeyError):
            open_request(KEYS, SEALED[:size])


def test_a_device_skips_configurations_that_it_does_not_know() -> None:
    unknown = bytes.fromhex("0005" + "07fe000000"), bytes.fromhex("0029" + CONFIG[:70] + "0004" + "00010003")
    assert decode_configs(unknown[0] + bytes.fromhex("002d" + CONFIG) + unknown[1]) == [OURS]
    for wrong in ("00", "002d" + CONFIG[:-2], "0002" + "0100", "002b" + CONFIG[:-4], "0001" + "01"):
        with pytest.raises(CapsuleError):
            decode_configs(bytes.fromhex(wrong))
