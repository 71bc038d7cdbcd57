"""The dead letters that an agent sends: which rejected records are copied, their time stamps, and which are lost or retried."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
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
from msgspec.structs import replace

from ldpstream.agents import metrics
from ldpstream.agents.consumer.broker_requests import BrokerRequests
from ldpstream.agents.log import DeadLetter
from ldpstream.agents.tally import Record
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys.life.lineage import known_fingerprints

from .samples import make_survey, sound

SURVEY = make_survey(step_seconds=20)
APPENDED_MS = 1_767_571_200_123


class Producer:
    """A producer that stores the records that it should send.

    Args:
        at_once, later: the errors of dead letters by number, raised when they are sent or when the broker answers.
    """

    def __init__(self, at_once: dict[int, Exception], later: dict[int, Exception]) -> None:
        self._at_once, self._later, self._calls = at_once, later, 0
        self.sent = list[tuple[Any, ...]]()

    async def send(self, *record: Any) -> asyncio.Future[None]:
        number, self._calls = self._calls, self._calls + 1
        if (cause := self._at_once.get(number)) is not None:
            raise ProducerSendError("refused") from cause
        answer = asyncio.get_running_loop().create_future()
        if (error := self._later.get(number)) is not None:
            answer.set_exception(error)
        else:
            self.sent.append(record)
            answer.set_result(None)
        return answer


def letter(value: bytes, reason: Any = "undecodable") -> DeadLetter:
    return DeadLetter(0, Record(7, APPENDED_MS, value), reason)


LETTERS = [letter(b"%d" % number) for number in range(5)]


async def send(
    letters: Sequence[DeadLetter],
    at_once: dict[int, Exception] | None = None,
    later: dict[int, Exception] | None = None,
    known: set[bytes] | None = None,
) -> list[tuple[Any, ...]]:
    """Returns the records that the broker received."""
    producer = Producer(at_once or {}, later or {})
    app: Any = SimpleNamespace(producer=producer)
    client: Any = None
    await BrokerRequests(app, client, SURVEY, lambda: known or set()).send_dead_letters(letters)
    return producer.sent


async def test_envelopes_of_known_surveys_are_not_copied() -> None:
    """A survey that was replaced under the same name leaves its envelopes in the topic."""
    rng = np.random.default_rng(1)
    replaced, served, stranger = make_survey(step_seconds=21), make_survey("other"), make_survey(step_seconds=22)
    values = [sound(survey, rng, 0, 0) for survey in (replaced, served, stranger)]
    known = known_fingerprints([replace(SURVEY, replaces=replaced.fingerprint.hex()), served])
    copied = await send([*(letter(value, "wrong survey") for value in values), letter(b"no envelope")], known=known)
    assert [record[2] for record in copied] == [values[2], b"no envelope"]


async def test_a_dead_letter_is_as_old_as_its_record() -> None:
    """Otherwise the topic would keep a record for another retention time if the log is counted again."""
    [record] = await send(LETTERS[:1])
    assert record[4] == APPENDED_MS / 1000


@pytest.mark.parametrize(
    ("at_once", "later", "received"),
    [
        ({2: MessageSizeTooLargeError("too large")}, {}, [0, 1, 3, 4]),
        ({}, {2: RecordTooLargeError()}, [0, 1, 3, 4]),
        ({0: MessageSizeTooLargeError(""), 4: MessageSizeTooLargeError("")}, {}, [1, 2, 3]),
        ({2: UnknownTopicOrPartitionError()}, {}, [0, 1]),  # a missing topic loses the others too, in one attempt
    ],
)
async def test_only_refused_dead_letters_are_lost(
    at_once: dict[int, Exception], later: dict[int, Exception], received: list[int]
) -> None:
    before = metrics.dead_letters_lost._value.get()
    assert [int(record[2]) for record in await send(LETTERS, at_once, later)] == received
    assert metrics.dead_letters_lost._value.get() - before == len(LETTERS) - len(received)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [KafkaTimeoutError(), NotLeaderForPartitionError(), KafkaConnectionError()])
async def test_an_unreachable_broker_loses_no_dead_letter(at_once: bool, error: Exception) -> None:
    gone: dict[int, Exception] = {2: error}
    with pytest.raises(LogUnavailable):
        await send(LETTERS, gone if at_once else {}, {} if at_once else gone)
