"""Requests through a relay for the test vectors, with all keys, and the gateway's answers."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from pyhpke import KEMKeyPair

from ldpstream.device import Relay
from ldpstream.device.relay.binary_http import BinaryResponse, encode_response
from ldpstream.device.relay.capsules import SUITES, KeyConfig, encode_configs, load_key, open_request, public_key, seal_request
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import seal_rows

RELAY, KEY = "https://relay.example/to/gateway", "vectors-of-a-relay_1234"
GATEWAYS = ("https://gateway.example", "http://[::1]:8081")
ANSWERS: tuple[tuple[int, tuple[tuple[bytes, bytes], ...], bytes], ...] = (
    (202, ((b"content-type", b"application/json"),), b'{"accepted":1}'),
    (422, ((b"content-type", b"application/problem+json"),), b'{"title":"step too old","status":422}'),
    (
        409,
        ((b"retry-after", b"77"), (b"content-type", b"application/problem+json")),
        b'{"title":"step in the future","status":409}',
    ),
    (503, (), b""),
)


def relay_requests(survey: Survey) -> Iterator[dict[str, Any]]:
    """Four cases, which use the attributes and levels in turn, at steps of different size, with and without a token."""
    places = [(a, level) for a, levels in enumerate(survey.mechanisms) for level in range(len(levels))]
    for number, (step, token) in enumerate([(0, None), (128, None), (70_000, "a-token_of~the.vectors"), (2**40, None)]):
        a, level = places[number % len(places)]
        secret, ephemeral = (sha256(f"{name} {number}".encode()).digest() for name in ("gateway", "device"))
        keys = b64encode(encode_configs([KeyConfig(200 + number, public_key(load_key(secret)))])).decode()
        row = survey.mechanisms[a][level].row_bytes
        envelope = seal_rows(survey, a, level, step, 1, bytes(row), number % survey.n_cohorts)
        gateway = GATEWAYS[number % 2]
        relay = Relay(RELAY, gateway=gateway, keys=keys)
        message = relay.message(survey, envelope, KEY, token)
        own = load_key(ephemeral)
        pair = KEMKeyPair(own, SUITES[1].kem.deserialize_public_key(public_key(own)))
        config = KeyConfig(200 + number, public_key(load_key(secret)))
        capsule, _ = seal_request(config, message, pair=pair)
        status, fields, content = ANSWERS[number]
        answer = encode_response(BinaryResponse(status, fields, content))
        opened = open_request({200 + number: load_key(secret)}, capsule)
        sealed = opened.seal_response(answer + bytes(-len(answer) % 512), sha256(f"nonce {number}".encode()).digest()[:16])
        retry = dict(fields).get(b"retry-after")
        yield {
            "fingerprint": survey.fingerprint.hex(), "gateway": gateway, "keys": keys, "gateway_private": secret.hex(),
            "token": token, "envelope": envelope.hex(), "key": KEY, "ephemeral": ephemeral.hex(), "message": message.hex(),
            "capsule": capsule.hex(), "answer": sealed.hex(), "status": status,
            "retry_after": None if retry is None else int(retry),
        }  # fmt: skip
