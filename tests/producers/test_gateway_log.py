"""Tests the gateway's Kafka log, with a fake producer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, OutOfOrderSequenceNumber

from producers.gateway import kafka_log
from producers.gateway.kafka_log import KafkaLog, NotAppended, Unacknowledged


class FakeProducer:
    """A producer that acknowledges, never acknowledges or fails; the test chooses."""

    made: list["FakeProducer"]

    def __init__(self) -> None:
        self.made.append(self)
        self.records: list[tuple[int, list[bytes]]] = []
        self.start_error: Exception | None = None
        self.queue_error: Exception | None = None
        self.ack_error: Exception | None = None
        self.answers, self.full, self.holds, self.stopped = True, False, False, False
        self.client, self._sender = self, self
        self.sender_task = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def partitions_for(self, topic: str) -> set[int]:
        return {0, 1, 2}

    async def force_metadata_update(self) -> bool:
        return self.answers

    async def send(self, topic: str, value: bytes, partition: int) -> asyncio.Future[None]:
        if self.full:
            await asyncio.sleep(60)
        return self._take(partition, [value])

    def create_batch(self) -> "FakeBatch":
        return FakeBatch()

    async def send_batch(self, batch: "FakeBatch", topic: str, *, partition: int) -> asyncio.Future[None]:
        return self._take(partition, batch.values)

    def _take(self, partition: int, values: list[bytes]) -> asyncio.Future[None]:
        if self.queue_error is not None:
            raise self.queue_error
        future = asyncio.get_running_loop().create_future()
        if self.ack_error is not None:
            future.set_exception(self.ack_error)
        else:
            self.records.append((partition, values))
            if not self.holds:
                future.set_result(None)
        return future

    async def stop(self) -> None:
        self.stopped = True
        if self.holds:
            await self.sender_task

    async def close(self) -> None:
        pass


class FakeBatch:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, timestamp: None, key: None, value: bytes) -> object:
        self.values.append(value)
        return self


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    """Shortens the log's time limits. Returns the list of producers that the log has made."""
    for name in ("PROBE_S", "CLOSE_S", "ANSWER_S", "QUEUE_S"):
        monkeypatch.setattr(kafka_log, name, 0.02)
    monkeypatch.setattr(FakeProducer, "made", [], raising=False)
    return FakeProducer.made


async def started(make: Callable[[], Any] = FakeProducer) -> KafkaLog:
    log = KafkaLog("reports", make)
    await log.start()
    assert log.ready
    return log


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not become true")


async def test_partitions_take_turns_and_batches_stay_together(producers: list[FakeProducer]) -> None:
    log = await started()
    for values in ([b"a"], [b"b", b"c"], [b"d"]):
        await log.append(values)
    assert sorted(producers[0].records) == sorted(zip((1, 2, 0), ([b"a"], [b"b", b"c"], [b"d"]), strict=True))
    await log.close()
    assert producers[0].stopped
    with pytest.raises(NotAppended):
        await log.append([b"e"])


async def test_an_envelope_that_was_not_queued_is_not_appended(producers: list[FakeProducer]) -> None:
    log = await started()
    producers[0].queue_error = KafkaTimeoutError()
    with pytest.raises(NotAppended):
        await log.append([b"a"])
    producers[0].queue_error, producers[0].full = None, True
    with pytest.raises(NotAppended):
        await log.append([b"a"])
    assert producers[0].records == []
    await log.close()


async def test_a_failed_producer_is_replaced(producers: list[FakeProducer]) -> None:
    log = await started()
    producers[0].ack_error = OutOfOrderSequenceNumber()
    for values in ([b"a"], [b"a", b"b"]):
        with pytest.raises(Unacknowledged):
            await log.append(values)
    await until(lambda: len(producers) == 2 and log.ready)
    await log.append([b"a"])
    assert producers[0].stopped
    assert [values for _, values in producers[1].records] == [[b"a"]]
    await log.close()


async def test_the_log_notices_an_unreachable_broker_and_its_recovery(producers: list[FakeProducer]) -> None:
    failing: list[bool] = []

    def make() -> FakeProducer:
        producer = FakeProducer()
        if failing:
            producer.start_error = KafkaConnectionError()
        return producer

    log = await started(make)
    failing.append(True)
    producers[0].answers = False
    await until(lambda: not log.ready)
    with pytest.raises(NotAppended):
        await log.append([b"a"])
    await until(lambda: len(producers) > 3)
    assert not log.ready
    failing.clear()
    await until(lambda: log.ready)
    await log.append([b"a"])
    await log.close()
    failing.append(True)
    away_at_the_start = KafkaLog("reports", make)
    await away_at_the_start.start()
    assert not away_at_the_start.ready
    failing.clear()
    await until(lambda: away_at_the_start.ready)
    await away_at_the_start.close()


async def test_the_log_is_not_ready_while_an_acknowledgement_is_late(
    producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await started()
    monkeypatch.setattr(kafka_log, "OVERDUE_S", 0.05)
    producers[0].holds = True
    waiting = asyncio.create_task(log.append([b"a"]))
    await until(lambda: not log.ready)
    with pytest.raises(NotAppended):
        await log.append([b"b"])
    (future,) = log._pending
    future.set_result(None)
    await waiting
    assert log.ready
    await log.close()


@pytest.mark.parametrize("ended", ["closed", "given up"])
async def test_a_pending_append_fails_when_its_producer_ends(
    ended: str, producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await started()
    producers[0].holds = True
    waiting = asyncio.create_task(log.append([b"a"]))
    await asyncio.sleep(0.01)
    if ended == "closed":
        await log.close()
    else:
        monkeypatch.setattr(kafka_log, "GIVE_UP_S", 0.05)
    await until(waiting.done)
    with pytest.raises(Unacknowledged):
        await waiting
    assert producers[0].stopped
    await log.close()
