"""The dead letters that an agent sends: which rejected records are copied, and the copies' time stamps."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec.structs import replace

from ldpstream.agents.kafka_log import KafkaLog
from ldpstream.agents.log import DeadLetter
from ldpstream.agents.tally import Record
from ldpstream.surveys.life.lineage import known_fingerprints

from .samples import make_survey, sound

SURVEY = make_survey(step_seconds=20)


class Producer:
    """A producer that stores the records that it should send."""

    def __init__(self) -> None:
        self.sent = list[tuple[Any, ...]]()

    async def send(self, *record: Any) -> asyncio.Future[None]:
        self.sent.append(record)
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(None)
        return answer


def letter(value: bytes, reason: Any = "wrong survey") -> DeadLetter:
    return DeadLetter(0, Record(7, 1_767_571_200_123, value), reason)


async def sent(*letters: DeadLetter, known: set[bytes]) -> list[tuple[Any, ...]]:
    producer: Any = Producer()
    app: Any = SimpleNamespace(producer=producer)
    client: Any = None
    await KafkaLog(app, client, SURVEY, lambda: known).send_dead_letters(letters)
    return list(producer.sent)


async def test_envelopes_of_known_surveys_are_not_copied() -> None:
    """A survey that was replaced under the same name leaves its envelopes in the topic."""
    rng = np.random.default_rng(1)
    replaced, served, stranger = make_survey(step_seconds=21), make_survey("other"), make_survey(step_seconds=22)
    values = [sound(survey, rng, 0, 0) for survey in (replaced, served, stranger)]
    known = known_fingerprints([replace(SURVEY, replaces=replaced.fingerprint.hex()), served])
    copied = await sent(*map(letter, values), letter(b"no envelope", "undecodable"), known=known)
    assert [record[2] for record in copied] == [values[2], b"no envelope"]


async def test_a_dead_letter_is_as_old_as_its_record() -> None:
    """Otherwise the topic would keep a record for another retention time if the log is counted again."""
    [record] = await sent(letter(b"no envelope", "undecodable"), known=set())
    assert record[4] == 1_767_571_200.123
