"""The gateway over a fake log: accepted and refused requests."""

import asyncio
import hashlib
import json
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from ldpstream.agents import Record, tally
from ldpstream.device.relay.capsules import REQUEST_TYPE, seal_request
from ldpstream.engines.gateway_log import MAX_BATCH, MAX_BATCH_BYTES
from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.gateway.http.problems import MAX_ELEMENTS, STATUS
from ldpstream.gateway.http.protocol import SECURITY
from ldpstream.runtime import web
from ldpstream.surveys import REASONS, Reason
from ldpstream.surveys.device_survey import DeviceSurvey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from tests.agents.samples import spoilt

from .gateway_rig import COLLECTS, KEYS, NOW, STEP, SURVEY, TOML, Clock, Rig, chunks, envelopes, title
from .test_gateway_oblivious import CONFIG, message, relay_rig

# ---- accepted and refused reports


@pytest.mark.parametrize("kind", [ENVELOPE, "application/octet-stream", "Application/Octet-Stream; charset=binary"])
async def test_an_envelope_reaches_the_log_unchanged(kind: str) -> None:
    rig, (envelope,) = Rig(), envelopes(1, n=7)
    answer = await rig.post(envelope, kind, **COLLECTS)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 7})
    assert rig.log.appended == [[envelope]]


@pytest.mark.parametrize("reason", REASONS)
async def test_an_uncountable_envelope_is_refused_with_its_reason(reason: Reason) -> None:
    rig, bad = Rig(), spoilt(SURVEY, np.random.default_rng(1), STEP, reason)
    answer = await rig.post(bad)
    assert (title(answer), answer.status_code) == (reason, STATUS[reason])
    assert "elements" not in answer.json()
    if len(bad) <= MAX_BATCH_BYTES:
        good = envelopes(5)
        answer = await rig.post_batch([*good[:3], bad, *good[3:]])
        if reason == "wrong survey":
            assert title(answer) == "several surveys"
        else:
            assert title(answer) == reason
            assert [(e["index"], e["reason"]) for e in answer.json()["elements"]] == [(3, reason)]
    assert rig.log.appended == []


async def test_a_refused_batch_lists_every_bad_envelope() -> None:
    """The list gives the index and reason of the first 100 bad envelopes, without their contents."""
    rig, batch, rng = Rig(), envelopes(300), np.random.default_rng(1)
    bad: dict[int, Reason] = {3: "step in the future", 7: "padding bits set", 251: "unknown version"}
    for index, reason in bad.items():
        batch[index] = spoilt(SURVEY, rng, STEP, reason)
    answer = await rig.post_batch(batch, **COLLECTS)
    assert (title(answer), answer.status_code) == ("padding bits set", 422)  # the status of the first final reason
    document = answer.json()
    assert set(document) == {"type", "title", "status", "detail", "refused", "elements"}
    assert {e["index"]: e["reason"] for e in document["elements"]} == bad
    assert [e["index"] for e in document["elements"] if "retry_after" in e] == [3, 251]
    answer = await rig.post_batch(envelopes(250, step=0), **COLLECTS)
    assert (answer.json()["refused"], len(answer.json()["elements"])) == (250, MAX_ELEMENTS)
    assert rig.log.appended == []


async def test_a_future_step_is_accepted_when_it_opens() -> None:
    now, early = [NOW], envelopes(2, step=STEP + 4)
    rig = Rig(now_ms=lambda: now[0])
    for ask in (rig.post(early[0], idempotency_key=KEYS[0]), rig.post_batch([*envelopes(1), *early], idempotency_key=KEYS[1])):
        answer = await ask
        assert (title(answer), answer.status_code) == ("step in the future", 409)
    wait_s = int(answer.headers["retry-after"])
    assert [e["retry_after"] for e in answer.json()["elements"]] == [wait_s] * 2
    assert SURVEY.too_early(STEP + 4, NOW + 1000 * (wait_s - 2))  # the stated wait is not much longer than needed
    now[0] += 1000 * wait_s
    assert (await rig.post(early[0], idempotency_key=KEYS[0])).status_code == 202
    assert rig.log.appended == [[early[0]]]


async def test_retry_after_is_at_most_a_day() -> None:
    rig = Rig()
    assert SURVEY.n_steps is not None
    for step in (STEP + 10**6, SURVEY.n_steps - 1):
        fields = msgspec.msgpack.decode(envelopes(1)[0])
        fields[4] = step
        answer = await rig.post(msgspec.msgpack.encode(fields))
        assert (title(answer), answer.headers["retry-after"]) == ("step in the future", "86400")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "malformed request"),
        (b"\x90", "undecodable"),
        (msgspec.msgpack.encode([]), "undecodable"),
        (msgspec.msgpack.encode(["text"]), "undecodable"),
        (msgspec.msgpack.encode({"a": b""}), "undecodable"),
        (msgspec.msgpack.encode([b"\xc0"]) + b"\xc0", "undecodable"),
        (b"\x91" * 5000, "undecodable"),
        (msgspec.msgpack.encode([b""] * (MAX_BATCH + 1)), "too large"),
        (bytes(MAX_BATCH_BYTES + 1), "too large"),
    ],
)
async def test_a_malformed_batch_is_refused(body: bytes, reason: str) -> None:
    rig = Rig()
    assert title(await rig.post(body, BATCH, **COLLECTS)) == reason
    assert rig.log.appended == []


@pytest.mark.parametrize(("kind", "more", "status"), [(BATCH, COLLECTS, 422), (BATCH, {}, 403), (ENVELOPE, {}, 422)])
async def test_the_refusal_of_a_body_with_many_elements_is_cheap(kind: str, more: dict[str, str], status: int) -> None:
    """One object for each element took up to a second of the only core, several times a second."""
    rig, body = Rig(), b"\xdd" + (600_000).to_bytes(4, "big") + bytes([0xC0]) * 600_000
    tracemalloc.start()
    try:
        answer = await rig.post(body, kind, **more)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(body)  # an object would take 24 bytes or more
    finally:
        tracemalloc.stop()
    assert answer.status_code == status


async def test_the_largest_batch_is_accepted() -> None:
    rig, batch = Rig(), envelopes(1) * MAX_BATCH
    assert (await rig.post_batch(batch, **COLLECTS)).status_code == 202


def damaged() -> st.SearchStrategy[bytes]:
    """Generates any bytes, valid envelopes, and envelopes with a few bytes changed, cut off or added."""
    pool = envelopes(9) + envelopes(3, step=0) + [spoilt(SURVEY, np.random.default_rng(2), STEP, r) for r in REASONS[:-1]]

    def change(envelope: bytes, position: int, byte: int, length: int) -> bytes:
        return (envelope[:position] + bytes([byte]) + envelope[position + 1 :])[: len(envelope) + length]

    changed = st.builds(change, st.sampled_from(pool), st.integers(0, 60), st.integers(0, 255), st.integers(-3, 0))
    return st.binary(max_size=40) | st.sampled_from(pool) | changed


def countable(batch: list[bytes]) -> bool:
    """True if the tally counts all envelopes. An empty record in the log is a marker, which the tally skips."""
    return all(batch) and not tally(SURVEY, [Record(offset, NOW, value) for offset, value in enumerate(batch)]).rejected


@settings(max_examples=400)
@given(st.lists(damaged(), min_size=1, max_size=4))
def test_the_gateway_accepts_exactly_what_the_tally_counts(batch: list[bytes]) -> None:
    async def ask() -> None:
        rig = Rig()
        answer = await (rig.post_batch(batch, **COLLECTS) if len(batch) > 1 else rig.post(batch[0], **COLLECTS))
        assert (answer.status_code == 202) == countable(batch)
        assert rig.log.appended == ([batch] if answer.status_code == 202 else [])
        if answer.status_code != 202:
            assert (title(answer), answer.status_code) in STATUS.items()

    asyncio.run(ask())


# ---- refused before the body is read


async def test_a_body_is_refused_once_it_exceeds_the_limit() -> None:
    rig, taken = Rig(), list[int]()
    assert title(await rig.post(chunks(10_000, 10_000, taken))) == "too large"
    assert len(taken) == MAX_ENVELOPE_BYTES // 10_000 + 1
    taken.clear()
    assert title(await rig.post(chunks(3, 10, taken), content_length="1000001")) == "too large"
    assert taken == []
    assert title(await rig.post(chunks(3, 10, taken), content_length="9" * 19)) == "too large"
    assert rig.intake._memory.taken_bytes == 0


async def test_a_body_that_arrives_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HEAD_S", 0.05)
    rig = Rig()
    answer = await rig.post(chunks(100, 10, [], pause_s=0.02))
    assert (title(answer), answer.headers["connection"]) == ("too slow", "close")
    assert rig.intake._memory.taken_bytes == 0


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/json", "application/vnd.ldpstream"])
async def test_other_content_types_are_refused(kind: str | None) -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    assert title(await rig.post(envelope, kind)) == "unsupported content type"
    assert title(await rig.post(envelope, content_encoding="gzip")) == "unsupported content type"
    assert rig.log.appended == []


TOKENS = ["first-token-of-two", "second-token-of-two"]


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer first-token-of-tw", "Bearer first-token-of-two2", "Basic first-token-of-two",
              "first-token-of-two", "Bearer second-token-of-two, first-token-of-two"],
)  # fmt: skip
async def test_a_wrong_token_is_refused_before_the_body_is_read(given: str) -> None:
    rig, taken = Rig(tokens=TOKENS), list[int]()
    answer = await rig.post(chunks(3, 10, taken), authorization=given)
    assert (title(answer), answer.headers["www-authenticate"]) == ("unauthorized", "Bearer")
    assert taken == []
    assert title(await rig.ask("GET", "/v1/surveys")) == "unauthorized"
    assert "token-of-two" not in answer.text


async def test_each_token_is_accepted_and_probes_need_none() -> None:
    rig, good = Rig(tokens=TOKENS), envelopes(4)
    for token, scheme, envelope in zip(TOKENS * 2, ["Bearer", "bearer", "BEARER", "Bearer "], good, strict=True):
        assert (await rig.post(envelope, authorization=f"{scheme} {token}")).status_code == 202
    assert [(await rig.ask("GET", path)).status_code for path in ("/health", "/ready", "/openapi.json")] == [200] * 3


async def test_the_rate_limits_each_client_alone(clock: Clock) -> None:
    """Eight requests of ten are a burst; another client has its own limit."""
    rig, (envelope,) = Rig(rate=4.1), envelopes(1)
    answers = [await rig.post(envelope) for _ in range(10)]
    assert [answer.status_code for answer in answers] == [202] * 8 + [429] * 2
    assert title(answers[-1]) == "too many requests"
    assert (await rig.post(envelope, address="192.0.2.2")).status_code == 202
    clock.now_s += 0.25
    assert (await rig.post(envelope)).status_code == 202
    assert len(rig.log.appended) == 10


async def test_the_bytes_of_bodies_count_towards_the_rate(clock: Clock) -> None:
    """A body of 200 kB counts as three requests, also if it is refused."""
    rig = Rig(rate=2.0)
    assert [(await rig.post(bytes(200_000))).status_code for _ in range(3)] == [422, 422, 429]


async def test_a_request_is_never_redirected() -> None:
    """A redirect would make the client send its token and reports elsewhere."""
    rig, (envelope,) = Rig(), envelopes(1)
    for path in ("/v1/reports/", "/v1/surveys/", "//v1/reports"):
        for answer in (await rig.ask("POST", path, content=envelope), await rig.ask("GET", path)):
            assert title(answer) in ("not found", "method not allowed")
            assert "location" not in answer.headers
    assert rig.log.appended == []


# ---- other requests


async def test_the_survey_can_be_fetched_and_verified() -> None:
    found = (await Rig().ask("GET", f"/v1/surveys/{SURVEY.fingerprint.hex()}")).json()
    assert (found["name"], found["toml"]) == (SURVEY.name, TOML)
    assert found["fingerprint"] == SURVEY.fingerprint.hex() == hashlib.sha256(found["canonical"].encode()).hexdigest()[:16]
    assert [a["name"] for a in json.loads(found["canonical"])["attribute"]] == [a.name for a in SURVEY.attributes]
    del found["toml"]
    assert msgspec.convert(found, DeviceSurvey, strict=True) == SURVEY.device_survey


async def test_other_requests_get_a_problem_document() -> None:
    rig = Rig()
    assert title(await rig.ask("GET", "/")) == "not found"
    answer = await rig.ask("GET", "/v1/reports")
    assert (title(answer), answer.headers["allow"]) == ("method not allowed", "POST")
    rig.log.failure = ZeroDivisionError("secret")
    answer = await rig.post(envelopes(1)[0])
    assert title(answer) == "internal error"
    assert "secret" not in answer.text


@pytest.mark.parametrize("path", ["/v1/surveys", "/v1/reports", "/health", "/openapi.json", "/nowhere"])
async def test_every_answer_has_the_security_headers(path: str) -> None:
    headers = (await Rig().ask("GET", path)).headers
    assert {tuple(line.split(": ")) for line in SECURITY.decode().splitlines()} <= set(headers.items())


@pytest.mark.parametrize("tokens", [[], TOKENS], ids=["open", "guarded"])
def test_every_answer_fits_the_openapi_document(tokens: list[str]) -> None:
    bodies = damaged() | st.lists(damaged(), max_size=3).map(msgspec.msgpack.encode)
    for kind in (ENVELOPE, BATCH, "application/octet-stream"):
        schemathesis.openapi.media_type(kind, bodies)
    capsules = damaged().map(lambda body: seal_request(CONFIG, message(body))[0])
    schemathesis.openapi.media_type(REQUEST_TYPE, st.binary(max_size=200) | capsules)
    rig = relay_rig(tokens=tokens)
    headers = {"Authorization": f"Bearer {tokens[1]}"} if tokens else {}
    schema = schemathesis.openapi.from_asgi("/openapi.json", rig.asgi)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) == 9
    for operation in operations:
        examples = 200 if operation.path == "/v1/reports" else 20

        @settings(max_examples=examples, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(), shown=st.booleans())
        def keeps_its_word(case: Any, shown: bool) -> None:
            # a schema cannot describe envelopes, so the gateway may refuse a body that fits the schema
            case.call_and_validate(headers=headers if shown else {}, excluded_checks=[positive_data_acceptance])

        keeps_its_word()
    assert rig.log.appended
