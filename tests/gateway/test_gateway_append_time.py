"""The append time decides the answer: a 202 means that agents count the reports."""

import msgspec
import pytest

from ldpstream.agents import Record, tally
from ldpstream.engines.gateway_log import Outcome
from ldpstream.gateway.http.bodies import BATCH
from ldpstream.gateway.intake import PATIENCE_MS
from ldpstream.surveys import check_envelope

from .gateway_rig import KEYS, NOW, STEP, SURVEY, Rig, envelopes, title
from .kafka_log_rig import Topic, keyed, started, until

CLOSES, OPENS = SURVEY.closes_ms(STEP), SURVEY.opens_ms(STEP) - SURVEY.skew_ms


def counted(batch: list[bytes], appended_ms: int) -> int:
    """Returns the number of reports that agents count. Each envelope has three reports."""
    return len(batch) - len(tally(SURVEY, [Record(i, appended_ms, raw) for i, raw in enumerate(batch)]).rejected)


@pytest.mark.parametrize(
    ("appended_ms", "expected"),
    [(CLOSES - 1, 202), (CLOSES, 422), (CLOSES + 9999, 422), (OPENS, 202), (OPENS - 1, 409), (None, 202)],
)
async def test_the_answer_to_an_envelope_is_the_agents_verdict(appended_ms: int | None, expected: int) -> None:
    """The gateway's clock shows the middle of the step. Without an append time, the gateway's clock has decided."""
    rig, (envelope,) = Rig(), envelopes(1)
    rig.log.appended_ms = appended_ms
    answer = await rig.post(envelope, idempotency_key=KEYS[0])
    assert (answer.status_code, rig.log.appended) == (expected, [[envelope]])
    if appended_ms is not None:
        assert (expected == 202) == (counted([envelope], appended_ms) == 1)
    if expected == 422:
        assert title(answer) == "step too old"
    if expected == 409:
        assert title(answer) == "step in the future"
        wait_s = int(answer.headers["retry-after"])
        assert counted([envelope], OPENS - 1 + 1000 * wait_s) == 1


@pytest.mark.parametrize("clock_ms", [CLOSES - 1, CLOSES, CLOSES + PATIENCE_MS - 1, CLOSES + PATIENCE_MS])
async def test_the_log_decides_around_a_steps_close(clock_ms: int) -> None:
    """A gateway whose clock runs ahead by less than `PATIENCE_MS` refuses no report whose step is open by the log's clock."""
    rig, batch = Rig(now_ms=lambda: clock_ms), envelopes(2)
    asked = clock_ms < CLOSES + PATIENCE_MS
    for appended_ms in (CLOSES - 1, CLOSES):
        rig.log.appended_ms = appended_ms
        for answer in (await rig.post(batch[0]), await rig.post_batch(batch)):
            assert (answer.status_code == 202) == (asked and appended_ms < CLOSES)
            assert answer.status_code == 202 or title(answer) == "step too old"
    assert len(rig.log.appended) == 4 * asked


async def test_patience_makes_no_other_check_weaker() -> None:
    rig, (envelope,) = Rig(now_ms=lambda: CLOSES + 1), envelopes(1)
    fields = msgspec.msgpack.decode(envelope)
    fields[5] += 1
    assert title(await rig.post(msgspec.msgpack.encode(fields))) == "wrong length"
    assert rig.log.appended == []


@pytest.mark.parametrize("key", [{}, {"idempotency_key": KEYS[0]}], ids=["no key", "key"])
async def test_a_batch_of_several_steps_is_answered_with_what_counts(key: dict[str, str]) -> None:
    old, new = envelopes(2, step=STEP - 1), envelopes(3, step=STEP)
    rig, between = Rig(now_ms=lambda: SURVEY.opens_ms(STEP)), SURVEY.closes_ms(STEP - 1)
    rig.log.appended_ms = between
    answer = await rig.post_batch([*old, *new], **key)
    assert (answer.status_code, answer.json()) == (202, {"accepted": counted([*old, *new], between)})
    assert answer.json() == {"accepted": 3}
    rig.log.appended_ms = CLOSES
    answer = await rig.post_batch([*old, *new], **key)
    assert [(e["index"], e["reason"]) for e in answer.json()["elements"]] == [(i, "step too old") for i in range(5)]
    rig.log.appended_ms = OPENS - 1
    assert check_envelope(SURVEY, old[0], OPENS - 1).step == STEP - 1
    answer = await rig.post_batch([*old, *new], **key)
    if key:  # a further attempt with the key counts every envelope once; a batch taken apart would count some of them twice
        assert (answer.status_code, title(answer), "elements" in answer.json()) == (504, "outcome unknown", False)
        assert counted(new, OPENS - 1 + 1000 * int(answer.headers["retry-after"])) == 3
    else:
        assert (answer.status_code, answer.json()) == (202, {"accepted": 2})
    answer = await rig.post(msgspec.msgpack.encode(new), BATCH)
    assert title(answer) == "step in the future"  # none counts, so a further attempt counts each once


async def test_the_log_tells_the_append_time(topic: Topic) -> None:
    log, kafka = await started()
    told = list[tuple[Outcome, int | None]]()
    for told_ms in (NOW + 7, None):
        topic.told_ms = told_ms
        log.append([b"a"], keyed(), lambda *result: told.append(result))
        await until(lambda: bool(told))
        assert told.pop() == (Outcome.APPENDED, told_ms)
    await kafka.close()
