"""Dead letters that cannot be sent: some are lost, others are retried."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from faust.exceptions import ProducerSendError

from ldpstream.agents import Record, metrics
from ldpstream.agents.kafka_log import KafkaLog
from ldpstream.agents.log import DeadLetter
from ldpstream.runtime.errors import LogUnavailable

from .samples import make_survey

SURVEY = make_survey()
LETTERS = [DeadLetter(0, Record(offset, 0, b"letter %d" % offset), "undecodable") for offset in range(5)]


class Producer:
    """A producer that refuses some dead letters, either at once or when the broker answers."""

    def __init__(self, at_once: dict[int, Exception], later: dict[int, Exception]) -> None:
        self.at_once, self.later, self.sent = at_once, later, list[int]()

    async def send(self, topic: str, key: None, value: bytes, partition: None, timestamp: None, headers: Any) -> Any:
        number = int(value.split()[1])
        if (cause := self.at_once.get(number)) is not None:
            raise ProducerSendError("refused") from cause
        answer = asyncio.get_running_loop().create_future()
        if (error := self.later.get(number)) is not None:
            answer.set_exception(error)
        else:
            self.sent.append(number)
            answer.set_result(None)
        return answer


async def send(at_once: dict[int, Exception], later: dict[int, Exception]) -> tuple[list[int], float]:
    """Returns the dead letters that the broker received, and the number of dead letters that the metric reports as lost."""
    producer, before = Producer(at_once, later), metrics.dead_letters_lost._value.get()
    app = cast(Any, SimpleNamespace(producer=producer))
    await KafkaLog(app, cast(Any, None), SURVEY, set).send_dead_letters(LETTERS)
    return producer.sent, metrics.dead_letters_lost._value.get() - before


async def test_only_a_dead_letter_that_is_too_large_is_lost() -> None:
    assert await send({2: MessageSizeTooLargeError("too large")}, {}) == ([0, 1, 3, 4], 1)
    assert await send({}, {2: RecordTooLargeError()}) == ([0, 1, 3, 4], 1)
    assert await send({0: MessageSizeTooLargeError(""), 4: MessageSizeTooLargeError("")}, {}) == ([1, 2, 3], 2)


async def test_a_missing_topic_loses_all_dead_letters_in_one_attempt() -> None:
    assert await send({2: UnknownTopicOrPartitionError()}, {}) == ([0, 1], 3)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [KafkaTimeoutError(), NotLeaderForPartitionError(), KafkaConnectionError()])
async def test_an_unreachable_broker_loses_no_dead_letter(at_once: bool, error: Exception) -> None:
    gone: dict[int, Exception] = {2: error}
    with pytest.raises(LogUnavailable):
        await send(gone if at_once else {}, {} if at_once else gone)
