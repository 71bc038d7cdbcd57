"""The gateway over a fake log: what reaches the log, and what the gateway answers."""

import asyncio

import pytest

from ldpstream.engines.gateway_log import Keyed
from ldpstream.gateway import intake
from ldpstream.gateway.http import protocol
from ldpstream.gateway.http.bodies import ENVELOPE
from ldpstream.gateway.intake import BREATH, MEMORY_BYTES
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from ldpstream.surveys.report_key import request_hash

from .gateway_rig import COLLECTS, KEYS, NOW, STEP, Rig, chunks, envelopes, title


async def test_an_unreachable_log_is_503_and_nothing_is_appended() -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    rig.log.ready = False
    for _ in range(2):
        assert title(await rig.post(envelope, idempotency_key=KEYS[0])) == "log unavailable"
    assert title(await rig.ask("GET", "/ready")) == "log unavailable"
    assert (await rig.ask("GET", "/health")).status_code == 200
    rig.log.ready = True
    assert (await rig.post(envelope, idempotency_key=KEYS[0])).status_code == 202
    assert rig.log.appended == [[envelope]]


async def test_the_log_gets_the_hash_and_the_earliest_step_of_a_request_with_a_key() -> None:
    """The key itself never reaches the log. Two bodies, two keys, or a batch instead of its envelope have different hashes."""
    rig, (one, other) = Rig(), envelopes(2)
    for body in (one, other):
        for key in KEYS:
            assert (await rig.post(body, idempotency_key=key)).status_code == 202
    assert rig.log.keyed == [Keyed(request_hash(body, key.encode()), STEP, NOW) for body in (one, other) for key in KEYS]
    assert (await rig.post_batch([one, *envelopes(1, step=STEP - 1), *envelopes(1, step=STEP + 1)])).status_code == 202
    assert rig.log.keyed.pop() is None
    late = [one, *envelopes(1, step=STEP - 1), *envelopes(1, step=STEP + 1)]
    assert (await rig.post_batch(late, idempotency_key=KEYS[0])).status_code == 202
    assert rig.log.keyed[-1] is not None
    assert rig.log.keyed[-1].step == STEP - 1
    assert (await rig.post_batch([one], idempotency_key=KEYS[0])).status_code == 202
    assert len({keyed.hashed for keyed in rig.log.keyed if keyed}) == 6


async def test_a_late_acknowledgement_is_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "ACKNOWLEDGE_S", 0.05)
    rig, sent = Rig(), envelopes(3)
    rig.log.open = False
    answers = await asyncio.gather(*(rig.post(envelope, idempotency_key=KEYS[0]) for envelope in sent))
    assert [title(answer) for answer in answers] == ["outcome unknown"] * 3
    assert rig.intake._memory.taken_bytes > 0  # the envelopes still wait for the log
    rig.log.release()
    assert rig.log.appended == [[envelope] for envelope in sent]
    assert rig.intake._memory.taken_bytes == 0
    assert (await rig.post(sent[0], idempotency_key=KEYS[0])).status_code == 202


@pytest.mark.parametrize("key", ["", "short", "k" * 15, "k" * 65, "k" * 20 + ".", "käse" * 8, '"' + "k" * 22 + '"'])
async def test_a_malformed_key_is_refused(key: str) -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    answer = await rig.ask(
        "POST", "/v1/reports", content=envelope, headers=[(b"content-type", ENVELOPE.encode()),
        (b"idempotency-key", key.encode("latin-1"))],
    )  # fmt: skip
    assert title(answer) == "malformed idempotency key"
    assert rig.log.appended == []


@pytest.mark.parametrize("key", ["k" * 16, "k" * 64, "AZaz09_-" * 3])
async def test_a_well_formed_key_is_accepted(key: str) -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    assert (await rig.post(envelope, idempotency_key=key)).status_code == 202


async def test_a_client_fills_its_part_of_the_memory_and_no_other() -> None:
    limit = 100_000
    rig, large = Rig(memory_bytes=8 * limit), envelopes(30, n=5000)  # each envelope has at least 10 kB
    rig.log.open = False
    waiting = [asyncio.create_task(rig.post(envelope, **COLLECTS)) for envelope in large]
    while sum(task.done() for task in waiting) + len(rig.log.waiting) < len(large):
        await asyncio.sleep(0)
        assert rig.intake._memory.taken_bytes <= limit
    busy = [title(task.result()) for task in waiting if task.done()]
    assert busy
    assert set(busy) == {"busy"}
    assert 0.8 * limit < rig.intake._memory.taken_bytes
    other = asyncio.create_task(rig.post(large[0], address="192.0.2.2", **COLLECTS))
    while len(rig.log.waiting) <= len(large) - len(busy):  # noqa: ASYNC110  # the request needs turns of the loop
        await asyncio.sleep(0)
    rig.log.release()
    answers = await asyncio.gather(*waiting, other)
    assert [answer.status_code for answer in answers].count(202) == len(large) + 1 - len(busy) == len(rig.log.appended)
    assert rig.intake._memory.taken_bytes == 0
    assert MEMORY_BYTES >= 10 * MAX_ENVELOPE_BYTES


async def test_a_long_batch_lets_other_requests_run() -> None:
    rig, batch, (envelope,) = Rig(), envelopes(8 * BREATH, n=1), envelopes(1)
    long, short = asyncio.create_task(rig.post_batch(batch, **COLLECTS)), asyncio.create_task(rig.post(envelope))
    await asyncio.wait({long, short})
    assert rig.log.appended == [[envelope], batch]


async def test_stop_answers_running_requests_and_refuses_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STOPPING_ACKNOWLEDGE_S", 0.1)
    monkeypatch.setattr(protocol, "STOPPING_BODY_S", 0.05)
    rig, (one, other) = Rig(), envelopes(2)
    rig.log.open = False
    held = asyncio.create_task(rig.post(one))
    reading = asyncio.create_task(rig.post(chunks(1000, 10, [], pause_s=0.02)))
    await asyncio.sleep(0.05)
    rig.intake.stop()
    for connection in rig.server.connections:
        connection.shutdown()
    assert title(await asyncio.wait_for(held, 5)) == "outcome unknown"
    assert title(await asyncio.wait_for(reading, 5)) == "stopping"
    assert title(await rig.post(other)) == "stopping"
    assert (await rig.ask("GET", "/ready")).status_code == 503
