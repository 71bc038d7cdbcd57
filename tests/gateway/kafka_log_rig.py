"""A reports topic with a fake producer and a fake consumer, for the tests of the gateway's logs."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import OffsetAndTimestamp, RecordMetadata

from ldpstream.engines.gateway_log import Keyed, Outcome
from ldpstream.engines.kafka.gateway_topic import GatewayTopic
from ldpstream.engines.kafka.kafka_connection import KafkaConnection
from tests.agents.samples import make_survey

from .gateway_rig import NOW, STEP, SURVEY

OTHER = make_survey("other")
Record = tuple[bytes | None, list[tuple[str, bytes | None]]]


class Topic:
    """A reports topic: the number of partitions, the first offset and its append time, and the appended record batches."""

    def __init__(self, n_partitions: int = 3) -> None:
        self.first: dict[int, tuple[int, int] | None] = dict.fromkeys(range(n_partitions), (0, NOW - 60_000))
        self.starts: dict[int, int] = {}
        self.now_ms = NOW
        self.told_ms: int | None = NOW  # the append time in an acknowledgement
        self.batches: list[tuple[int, list[Record]]] = []
        self.stamps: set[int] = set()  # the producer's timestamps of all records
        self.markers: list[int] = []
        self.away: set[int] = set()  # partitions that acknowledge no marker
        self.exists, self.hangs = True, False
        self.ack_error: Exception | None = None
        self.holds = False

    def acknowledgement(self) -> RecordMetadata:
        """Returns what aiokafka's future yields for a record batch."""
        kind = 0 if self.told_ms is None else 1
        told_ms = -1 if self.told_ms is None else self.told_ms
        return RecordMetadata("reports", 0, TopicPartition("reports", 0), 0, told_ms, kind, 0)

    def values(self) -> list[list[bytes | None]]:
        return [[value for value, _ in records] for _, records in self.batches]


class FakeProducer:
    """A producer that acknowledges, never acknowledges or fails; the test chooses."""

    made: list["FakeProducer"]
    topics: dict[str, Topic]

    def __init__(self) -> None:
        self.made.append(self)
        self.start_error: Exception | None = None
        self.queue_error: Exception | None = None
        self.answers, self.full, self.holds, self.stopped = True, False, False, False
        self.held: list[asyncio.Future[RecordMetadata]] = []
        self.client = self.cluster = self._sender = self
        self.sender_task = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self.topics[topic].first) if self.topics[topic].exists else None

    def set_topics(self, topics: set[str]) -> None:
        pass

    async def force_metadata_update(self) -> bool:
        return self.answers

    async def send(self, topic: str, value: bytes, partition: int) -> asyncio.Future[None]:
        assert value == b""
        self.topics[topic].markers.append(partition)
        if partition in self.topics[topic].away:
            return asyncio.get_running_loop().create_future()
        self.topics[topic].first[partition] = (0, self.topics[topic].now_ms)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def send_batch(self, builder: Any, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        if self.full:
            await asyncio.sleep(60)
        if self.queue_error is not None:
            raise self.queue_error
        future = asyncio.get_running_loop().create_future()
        if (error := self.topics[topic].ack_error) is not None:
            future.set_exception(error)
            return future
        records = list(DefaultRecordBatch(bytearray(builder._build())))
        self.topics[topic].stamps.update(record.timestamp for record in records)
        self.topics[topic].batches.append((partition, [(record.value, list(record.headers)) for record in records]))
        if self.holds or self.topics[topic].holds:
            self.held.append(future)
        else:
            future.set_result(self.topics[topic].acknowledgement())
        return future

    async def stop(self) -> None:
        self.stopped = True
        if self.holds:
            await self.sender_task

    async def close(self) -> None:
        pass


class FakeConsumer:
    topics: dict[str, Topic]

    def __init__(self) -> None:
        self._client = self

    def set_topics(self, topics: set[str]) -> None:
        pass

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        assert set(times.values()) == {0}
        if any(self.topics[partition.topic].hangs for partition in times):
            await asyncio.get_running_loop().create_future()
        found = {partition: self.topics[partition.topic].first[partition.partition] for partition in times}
        return {partition: None if first is None else OffsetAndTimestamp(*first) for partition, first in found.items()}

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.topics[partition.topic].starts.get(partition.partition, 0) for partition in partitions}


async def started(make: Callable[[], Any] = FakeProducer, ready: bool = True) -> tuple[GatewayTopic, KafkaConnection]:
    kafka = KafkaConnection(make, FakeConsumer, lambda: FakeConsumer.topics[SURVEY.reports_topic].now_ms)
    log = kafka.add(SURVEY)
    await kafka.start()
    assert log.ready == ready
    return log, kafka


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(48_000):  # minutes
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not become true")


def begin(log: GatewayTopic, envelopes: list[bytes], keyed: Keyed | None = None) -> asyncio.Future[Outcome]:
    outcome = asyncio.get_running_loop().create_future()
    log.append(envelopes, keyed, lambda result, _: outcome.set_result(result))
    return outcome


def keyed(number: int = 0, step: int = STEP, now_ms: int = NOW) -> Keyed:
    return Keyed(number.to_bytes(12) + bytes(4), step, now_ms)
