"""The gateway over a fake log: how often a report reaches the log."""

import asyncio
import time
from typing import Any

import pytest

from producers.gateway import intake
from producers.gateway.intake import BREATH, ENVELOPE, MEMORY_BYTES
from producers.gateway.kafka_log import NotAppended, Unacknowledged
from surveys.envelope import MAX_ENVELOPE_BYTES

from .gateway_rig import KEYS, NOW, STEP, SURVEY, Rig, chunks, envelopes, title


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


async def test_a_retry_with_the_key_learns_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "ACKNOWLEDGE_S", 0.05)
    rig, (envelope,) = Rig(), envelopes(1)
    rig.log.gate.clear()
    for _ in range(3):
        assert title(await rig.post(envelope, idempotency_key=KEYS[0])) == "outcome unknown"
    rig.log.ready = False  # while the log is unreachable, the gateway keeps the attempt in flight
    assert title(await rig.post(envelope, idempotency_key=KEYS[0])) == "outcome unknown"
    rig.log.gate.set()
    await asyncio.sleep(0.01)
    answer = await rig.post(envelope, idempotency_key=KEYS[0])
    assert (answer.status_code, answer.json()) == (202, {"accepted": 3})
    assert rig.log.appended == [[envelope]]
    assert rig.intake._memory.taken_bytes == 0


async def test_without_a_key_every_attempt_counts() -> None:
    """Control: two devices may send the same bytes."""
    rig, (envelope,) = Rig(), envelopes(1)
    for _ in range(2):
        assert (await rig.post(envelope)).status_code == 202
    assert rig.log.appended == [[envelope]] * 2


async def test_a_key_joins_only_attempts_of_one_body() -> None:
    rig, (one, other) = Rig(), envelopes(2)
    rig.log.gate.clear()
    asked = [rig.post(body, idempotency_key=key) for body in (one, other) for key in KEYS for _ in range(5)]
    answers = asyncio.gather(*asked)
    await asyncio.sleep(0.05)
    rig.log.gate.set()
    assert {answer.status_code for answer in await answers} == {202}
    assert sorted(rig.log.appended) == sorted([[one], [one], [other], [other]])
    for key in KEYS:
        assert (await rig.post(one, idempotency_key=key)).status_code == 202
        assert (await rig.post_batch([one], idempotency_key=key)).status_code == 202
    assert len(rig.log.appended) == 6
    assert rig.intake._by_key == {}


async def test_concurrent_attempts_of_a_batch_append_it_once() -> None:
    rig, batch = Rig(), envelopes(5 * BREATH, n=1)

    async def later(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return (await rig.post_batch(batch, idempotency_key=KEYS[0])).status_code

    assert set(await asyncio.gather(*map(later, range(12)))) == {202}
    assert rig.log.appended == [batch]


async def test_a_retry_is_acknowledged_after_its_step_closed() -> None:
    now, (envelope,) = [NOW], envelopes(1)
    rig = Rig(now_ms=lambda: now[0])
    assert (await rig.post(envelope, idempotency_key=KEYS[0])).status_code == 202
    now[0] = SURVEY.closes_ms(STEP)
    assert (await rig.post(envelope, idempotency_key=KEYS[0])).status_code == 202
    assert title(await rig.post(envelope, idempotency_key=KEYS[1])) == "step too old"


async def test_a_retry_in_flight_is_not_too_old_after_its_step_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "ACKNOWLEDGE_S", 0.05)
    now, (envelope,) = [NOW], envelopes(1)
    rig = Rig(now_ms=lambda: now[0])
    rig.log.gate.clear()
    assert title(await rig.post(envelope, idempotency_key=KEYS[0])) == "outcome unknown"
    now[0] = SURVEY.closes_ms(STEP)
    assert title(await rig.post(envelope, idempotency_key=KEYS[0])) == "outcome unknown"


async def test_an_attempt_that_was_not_appended_can_be_retried() -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    rig.log.failure = NotAppended()
    assert title(await rig.post(envelope, idempotency_key=KEYS[0])) == "log unavailable"
    rig.log.failure = None
    assert (await rig.post(envelope, idempotency_key=KEYS[0])).status_code == 202
    assert rig.log.appended == [[envelope]]


@pytest.mark.parametrize("failure", [Unacknowledged(), ZeroDivisionError()], ids=["unacknowledged", "unexpected"])
async def test_an_attempt_that_may_be_appended_is_not_repeated(failure: Exception) -> None:
    """If the first append reached the log, a second append would count the reports twice."""
    rig, (envelope,) = Rig(), envelopes(1)
    expected = "outcome unknown" if isinstance(failure, Unacknowledged) else "internal error"
    rig.log.failure = failure
    for key in ({"idempotency_key": KEYS[0]}, {}):
        assert title(await rig.post(envelope, **key)) == expected
    rig.log.failure = None
    for _ in range(2):
        assert title(await rig.post(envelope, idempotency_key=KEYS[0])) == "outcome unknown"
    assert rig.log.appended == []
    assert (await rig.post(envelope, idempotency_key=KEYS[1])).status_code == 202
    assert (await rig.post(envelope)).status_code == 202
    assert rig.log.appended == [[envelope]] * 2
    assert rig.intake._memory.taken_bytes == 0


@pytest.mark.parametrize("key", ["", "short", "k" * 65, "k" * 21 + " ", "käse" * 8, '"' + "k" * 22 + '"'])
async def test_a_malformed_key_is_refused(key: str) -> None:
    rig, (envelope,) = Rig(), envelopes(1)
    transport_safe = key.encode("latin-1").decode("latin-1")
    answer = await rig.ask(
        "POST", "/v1/reports", content=envelope, headers=[(b"content-type", ENVELOPE.encode()),
        (b"idempotency-key", transport_safe.encode("latin-1"))],
    )  # fmt: skip
    assert title(answer) == "malformed idempotency key"
    assert rig.log.appended == []


async def test_waiting_bytes_are_limited() -> None:
    limit = 100_000
    rig, large = Rig(memory_bytes=limit), envelopes(30, n=5000)  # each envelope has at least 10 kB
    rig.log.gate.clear()
    waiting = [asyncio.create_task(rig.post(envelope)) for envelope in large]
    while sum(task.done() for task in waiting) + len(rig.intake._deliveries) < len(large):
        await asyncio.sleep(0)
        assert rig.intake._memory.taken_bytes <= limit
    busy = [title(task.result()) for task in waiting if task.done()]
    assert busy
    assert set(busy) == {"busy"}
    assert 0.8 * limit < rig.intake._memory.taken_bytes
    rig.log.gate.set()
    answers = await asyncio.gather(*waiting)
    assert [answer.status_code for answer in answers].count(202) == len(large) - len(busy) == len(rig.log.appended)
    assert rig.intake._memory.taken_bytes == 0
    assert MEMORY_BYTES >= 10 * MAX_ENVELOPE_BYTES


async def test_stop_answers_running_requests_and_refuses_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STOPPING_ACKNOWLEDGE_S", 0.1)
    monkeypatch.setattr(intake, "STOPPING_BODY_S", 0.05)
    rig, (one, other) = Rig(), envelopes(2)
    rig.log.gate.clear()
    waiting = asyncio.create_task(rig.post(one))
    reading = asyncio.create_task(rig.post(chunks(1000, 10, [], pause_s=0.02)))
    await asyncio.sleep(0.05)
    rig.intake.stop()
    assert title(await asyncio.wait_for(waiting, 5)) == "outcome unknown"
    assert title(await asyncio.wait_for(reading, 5)) == "stopping"
    assert title(await rig.post(other)) == "stopping"
    assert (await rig.ask("GET", "/ready")).status_code == 503


async def test_stop_may_coincide_with_the_end_of_a_wait() -> None:
    rig, loop, errors = Rig(), asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    with pytest.raises(TimeoutError):
        async with rig.intake._within(0.01, 1.0):
            loop.call_later(0.011, rig.intake.stop)
            time.sleep(0.05)  # noqa: ASYNC251 makes both due in the same turn of the loop
            await asyncio.sleep(1)
    assert errors == []
    assert not rig.intake.ready
