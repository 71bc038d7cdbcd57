"""Fuzzes the gateway behind a relay, with damaged capsules and with damaged messages inside sound capsules."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

from ldpstream.device.relay.binary_http import BinaryRequest, decode_response, encode_request
from ldpstream.device.relay.capsules import KeyConfig, public_key, seal_request
from ldpstream.gateway.http.problems import STATUS
from ldpstream.gateway.relay_keys import RelayKey, RelayKeys
from ldpstream.surveys import check_envelope
from tests.devices.python.test_binary_http import KNOWN
from tests.gateway.gateway_rig import NOW, STEP, SURVEY, Rig, envelopes
from tests.gateway.test_relay_keys import NOW as CREATED

KEYS = RelayKeys([RelayKey(7, CREATED, bytes(range(32)))])
CONFIG = KeyConfig(7, public_key(KEYS.private[7]))
IN_CLEAR = {"unknown key configuration", "malformed request"}


class Wrong(AssertionError):
    """The gateway gave an answer that it must not give. The message contains the input."""


def sound(source: random.Random) -> bytes:
    """Returns a sound message."""
    (body,) = envelopes(1, step=source.choice((STEP, STEP, STEP, 0, STEP + 3)), seed=source.randrange(100))
    kind, key = b"application/vnd.ldpstream.envelope", source.randbytes(12).hex().encode()
    headers = (b"content-type", kind), (b"idempotency-key", key)
    return encode_request(BinaryRequest(b"POST", b"https", b"gateway", b"/v1/reports", headers, body))


def damaged(raw: bytes, source: random.Random) -> bytes:
    """Returns the bytes with one to three of them changed, removed, inserted or cut off."""
    found = bytearray(raw)
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(found) + 1)
        match source.randrange(5):
            case 0:
                found[at : at + 1] = source.randbytes(1)
            case 1:
                del found[at : at + source.randint(1, 9)]
            case 2:
                found[at:at] = source.randbytes(source.randint(1, 9))
            case 3:
                found[at : at + 1] = source.choice((b"\xff" * 8, b"\x7f\xff", b"\0", b"\x40"))
            case _:
                del found[at + len(found) // 2 :]
    return bytes(found)


async def answer_of(rig: Rig, source: random.Random) -> str:
    """Posts one input. Returns its answer: "accepted", or the cause and whether the problem was in clear."""
    message = sound(source)
    inside = source.random() < 0.7
    if inside:
        message = source.choice((message, damaged(message, source), damaged(message, source), damaged(KNOWN, source)))
    capsule, device = seal_request(CONFIG, message)
    given = capsule if inside else damaged(capsule, source)
    rig.log.appended.clear()
    answer = await rig.post_capsule(given)
    appended = rig.log.appended
    if answer.status_code != 200:
        cause = str(answer.json()["title"])
        if given == capsule or cause not in IN_CLEAR or appended:
            raise Wrong(f"{cause}, {len(appended)} appended: {given.hex()}")
        return f"in clear: {cause}"
    response = decode_response(device.open_response(answer.content))
    told: dict[str, Any] = json.loads(response.content)
    if given != capsule or (response.status == 202) != bool(appended):
        raise Wrong(f"{response}, {len(appended)} appended: {message.hex()}")
    if response.status == 202:
        check_envelope(SURVEY, appended[0][0], NOW)
        return "accepted"
    cause = told["title"]
    if response.status != STATUS[cause] or cause == "internal error":
        raise Wrong(f"{response}: {message.hex()}")
    return f"inside: {cause}"


def share(seed: int, inputs: int) -> Counter[str]:
    """Makes this number of inputs from the seed, and returns how often each answer occurred.

    Raises:
        Wrong: if an answer must not occur.
    """
    source, rig = random.Random(seed), Rig()
    rig.intake.relay_keys = KEYS

    async def run() -> Counter[str]:
        return Counter([await answer_of(rig, source) for _ in range(inputs)])

    return asyncio.run(run())
