"""The gateway behind a relay: the answers inside are those of a plain request, and no fault outside reaches the log."""

import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import structlog
from prometheus_client import REGISTRY

from ldpstream.device.relay.binary_http import BinaryRequest, BinaryResponse, decode_response, encode_request
from ldpstream.device.relay.capsules import KEYS_TYPE, RESPONSE_TYPE, KeyConfig, decode_configs, public_key, seal_request
from ldpstream.gateway.credentials import read_relay_keys
from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.gateway.oblivious import MAX_CAPSULE_BYTES, PADDED_BYTES, WELL_KNOWN
from ldpstream.gateway.relay_keys import RelayKey, RelayKeys, rotate
from ldpstream.runtime.clock import ClockJumped
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES, seal_rows
from tests.gateway.test_relay_keys import NOW as CREATED
from tests.producers.relay_rig import relay_survey

from .gateway_rig import KEYS, STEP, TOKEN, Rig, envelopes, title

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
RELAY_KEYS = RelayKeys([RelayKey(7, CREATED, SECRET)])
CONFIG = KeyConfig(7, public_key(RELAY_KEYS.private[7]))
(GOOD,), (LATE,), (EARLY,) = envelopes(1), envelopes(1, step=0), envelopes(1, step=STEP + 3)
HEADERS = {"content-type": ENVELOPE, "idempotency-key": KEYS[0]}


def counted(outcome: str) -> float:
    return REGISTRY.get_sample_value("ldpstream_gateway_requests_total", {"outcome": outcome}) or 0.0


def relay_rig(**options: Any) -> Rig:
    rig = Rig(**options)
    rig.intake.relay_keys = RELAY_KEYS
    return rig


def message(
    body: bytes = GOOD,
    headers: dict[str, str] = HEADERS,
    method: bytes = b"POST",
    path: bytes = b"/v1/reports",
    authority: bytes = b"gateway",
) -> bytes:
    pairs = tuple((name.encode(), value.encode()) for name, value in headers.items())
    return encode_request(BinaryRequest(method, b"https", authority, path, pairs, body))


async def ask(rig: Rig, inside: bytes, path: str = "/ohttp") -> BinaryResponse:
    """Sends a message through a relay, and returns the response inside."""
    capsule, device = seal_request(CONFIG, inside)
    answer = await rig.post_capsule(capsule, path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, RESPONSE_TYPE)
    assert answer.headers["cache-control"] == "no-store"
    opened = device.open_response(answer.content)
    assert len(opened) % PADDED_BYTES == 0
    return decode_response(opened)


def title_inside(response: BinaryResponse) -> str:
    document = json.loads(response.content)
    assert document["status"] == response.status
    return str(document["title"])


@pytest.mark.parametrize("path", ["/ohttp", WELL_KNOWN])
async def test_a_report_through_a_relay_reaches_the_log(path: str) -> None:
    rig = relay_rig()
    answer = await rig.ask("GET", WELL_KNOWN)
    assert (answer.status_code, answer.headers["content-type"]) == (200, KEYS_TYPE)
    assert decode_configs(answer.content) == [CONFIG]
    told = await ask(rig, message(), path)
    assert (told.status, told.content) == (202, b'{"accepted":1}')
    assert rig.log.appended == [[GOOD]]


BODIES = {
    "accepted": (GOOD, {}), "too old": (LATE, {}), "early": (EARLY, {}), "no envelope": (b"\xc1", {}), "empty": (b"", {}),
    "wrong token": (GOOD, {"authorization": "Bearer wrong"}), "no token": (GOOD, {"authorization": ""}),
    "wrong kind": (GOOD, {"content-type": "text/plain"}), "compressed": (GOOD, {"content-encoding": "gzip"}),
    "malformed key": (GOOD, {"idempotency-key": "short"}), "too large": (bytes(MAX_ENVELOPE_BYTES + 1), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
async def test_the_answer_inside_is_that_of_a_plain_request(name: str) -> None:
    body, more = BODIES[name]
    headers = HEADERS | {"authorization": f"Bearer {TOKEN}"} | more
    rig, plain = relay_rig(tokens=[TOKEN]), Rig(tokens=[TOKEN])
    told = await ask(rig, message(body, headers))
    expected = await plain.ask("POST", "/v1/reports", content=body, headers=headers)
    assert (told.status, told.content) == (expected.status_code, expected.content)
    for header in ("content-type", "retry-after", "www-authenticate"):
        given = [value.decode() for name, value in told.headers if name == header.encode()]
        assert given == expected.headers.get_list(header)
    assert rig.log.appended == plain.log.appended
    assert [keyed and keyed.hashed for keyed in rig.log.keyed] == [keyed and keyed.hashed for keyed in plain.log.keyed]


@pytest.mark.parametrize(
    ("inside", "cause"),
    [
        (message(path=b"/v1/surveys"), "not found"),
        (message(path=b"/v1/reports?x"), "not found"),
        (message(path=b"/ohttp"), "not found"),
        (message(method=b"GET"), "not found"),
        (message(authority=b"other.example"), "not found"),
        (message(authority=b""), "not found"),
        (message(headers=HEADERS | {"host": "other.example"}, authority=b""), "not found"),
        (message(headers={"content-type": ENVELOPE}), "malformed idempotency key"),
        (message(msgspec.msgpack.encode([GOOD]), HEADERS | {"content-type": BATCH}), "unsupported content type"),
        (message()[:-5], "malformed request"),
        (message() + b"\1", "malformed request"),
        (b"", "malformed request"),
        (b"POST /v1/reports HTTP/1.1\r\n\r\n", "malformed request"),
        (message(headers=HEADERS | {"Content-Type": ENVELOPE}), "malformed request"),
    ],
)
async def test_another_request_inside_is_refused_inside(inside: bytes, cause: str) -> None:
    rig = relay_rig()
    before = counted(cause)
    assert title_inside(await ask(rig, inside)) == cause
    assert counted(cause) == before + 1
    assert rig.log.appended == []


@pytest.mark.parametrize("batch", [False, True])
async def test_a_plain_request_for_a_survey_that_requires_a_relay_is_refused(batch: bool) -> None:
    """The same report passes through a relay: the refusal is not final. A report that never counts gets its own reason."""
    survey = relay_survey()
    rig = relay_rig(survey=survey, now_ms=lambda: survey.opens_ms(STEP))
    good, late = (envelopes_of(survey, step) for step in (STEP, STEP - 4))
    before = counted("relay required")
    sent = rig.post_batch([good], idempotency_key=KEYS[0]) if batch else rig.post(good, idempotency_key=KEYS[0])
    answer = await sent
    assert (answer.status_code, title(answer)) == (403, "relay required")
    assert "only through a relay" in answer.json()["detail"]
    assert counted("relay required") == before + 1
    assert title(await rig.post(late, idempotency_key=KEYS[0])) == "step too old"
    assert rig.log.appended == []
    assert (await ask(rig, message(good))).status == 202
    assert rig.log.appended == [[good]]


def envelopes_of(survey: Survey, step: int) -> bytes:
    """An envelope with one report of a survey's only attribute."""
    return seal_rows(survey, 0, 0, step, 1, b"\7", 0)


async def refused(rig: Rig, capsule: bytes, cause: str, **headers: str) -> httpx2.Response:
    """Checks that a capsule is refused in clear with this cause, and that nothing reaches the log."""
    given = {"content-type": "message/ohttp-req"} | {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await rig.ask("POST", "/ohttp", content=capsule, headers=given)
    assert title(answer) == cause
    assert rig.log.appended == []
    return answer


async def test_what_no_key_opens_is_refused_in_clear() -> None:
    rig, (capsule, _) = relay_rig(), seal_request(CONFIG, message())
    stale, _ = seal_request(KeyConfig(6, CONFIG.public), message())
    wrong, _ = seal_request(KeyConfig(7, public_key(RelayKeys([RelayKey(7, CREATED, OTHER)]).private[7])), message())
    for bad in (stale, wrong, capsule[:-1], capsule[:-1] + b"\0", capsule + b"\0", b"\7" + bytes(200)):
        answer = await refused(rig, bad, "unknown key configuration")
        assert answer.status_code == 400
        assert answer.json()["type"] == "https://iana.org/assignments/http-problem-types#ohttp-key"
    for bad in (b"", b"\7", capsule[:54]):
        await refused(rig, bad, "malformed request")
    await refused(rig, bytes(MAX_CAPSULE_BYTES + 1), "too large")
    await refused(rig, capsule, "unsupported content type", content_type=ENVELOPE)
    assert (await rig.post_capsule(capsule)).status_code == 200


async def test_a_gateway_without_keys_takes_nothing_through_a_relay() -> None:
    rig, (capsule, _) = Rig(), seal_request(CONFIG, message())
    assert title(await rig.ask("GET", WELL_KNOWN)) == "not found"
    await refused(rig, capsule, "not found")
    assert (await relay_rig().ask("GET", "/ohttp")).status_code == 405


async def test_a_clock_that_has_jumped_refuses_only_for_the_moment() -> None:
    def jumped() -> int:
        raise ClockJumped

    rig = relay_rig(now_ms=jumped)
    assert title(await rig.ask("GET", WELL_KNOWN)) == "log unavailable"
    assert (await ask(rig, message())).status == 503


async def test_the_requests_of_a_relay_share_limits() -> None:
    """Requests that no key opens count too, because the gateway applies the limit before the decryption."""
    rig = relay_rig(rate=2.1)
    capsule, _ = seal_request(CONFIG, message())
    for bad in (b"", capsule, b"\7" + bytes(200), b""):
        await rig.post_capsule(bad, address="192.0.2.9")
    for answer in (await rig.post_capsule(capsule, address="192.0.2.9"), await rig.ask("GET", WELL_KNOWN, "192.0.2.9")):
        assert title(answer) == "too many requests"
    assert (await rig.post_capsule(capsule, address="192.0.2.10")).status_code == 200


async def test_the_file_of_relay_keys_has_the_former_key_too(tmp_path: Path) -> None:
    path, rig = tmp_path / "keys", Rig()
    rotate(path, CREATED)

    async def published() -> list[KeyConfig]:
        rig.intake.relay_keys = read_relay_keys(Settings(gateway_relay_keys_file=path))
        return decode_configs((await rig.ask("GET", WELL_KNOWN)).content)

    (before,) = await published()
    rotate(path, CREATED)
    assert [before.key_id, *(config.key_id for config in await published())] == [1, 1]  # in the hour after the rotation
    sealed, _ = seal_request(before, message())
    assert (await rig.post_capsule(sealed)).status_code == 200
    for broken in ("broken", path.read_text().replace('="', '"')):
        path.write_text(broken)
        with pytest.raises(SettingsError, match="is not a file of relay keys") as error:
            read_relay_keys(Settings(gateway_relay_keys_file=path))
        assert not any(part in str(error.value) for part in broken.split('"') if len(part) > 40)
    with pytest.raises(SettingsError, match=r"LDPSTREAM_GATEWAY_RELAY_KEYS_FILE: .*none: cannot be read"):
        read_relay_keys(Settings(gateway_relay_keys_file=tmp_path / "none"))


async def test_no_log_tells_of_a_request_through_a_relay() -> None:
    with structlog.testing.capture_logs() as logged:
        rig = relay_rig()
        await ask(rig, message())
        await ask(rig, b"")
        await rig.post_capsule(b"\7" + bytes(200))
    assert logged == []
