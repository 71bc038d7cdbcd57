"""Batches as our own reader unpacks them, against aiokafka's."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException, OffsetOutOfRangeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.structs import TopicPartition
from crc32c import crc32c

from agents import Record
from agents.chunks import LOG_APPEND_TIME, ChunkConsumer, ChunkThread, _Batches, _Fetched, _joined, _unpack

PARTITION = TopicPartition("reports", 0)
CONTROL, APPEND_TIME = 0x20, 0x08


def batch(first: int, values: list[bytes | None], appended_ms: int = 7, control: bool = False) -> bytearray:
    """One batch as a broker with LogAppendTime keeps it."""
    builder = DefaultRecordBatchBuilder(2, 0, True, -1, -1, -1, 10**6)
    for offset, value in enumerate(values):
        builder.append(offset, 3, None, value, [("trace", b"x")])
    raw = bytearray(builder.build())
    raw[0:8] = first.to_bytes(8, "big")
    raw[35:43] = appended_ms.to_bytes(8, "big")  # the largest time stamp, which stands for all of them
    raw[22] |= APPEND_TIME | (CONTROL if control else 0)
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return raw


def unread(raw: bytes, offset: int) -> Any:
    return PartitionRecords(PARTITION, _Fetched(raw), [], offset, None, None, True, 0)


def sample(offset: int = 0) -> bytes:
    """A log of five batches, the fourth a control batch, from the one on that holds the offset."""
    rng = np.random.default_rng(1)
    sizes = [1, 5, 3, 1, 40]
    raw, first = bytearray(), 100
    for i, size in enumerate(sizes):
        values = [None if rng.random() < 0.1 else rng.bytes(int(rng.integers(0, 30))) for _ in range(size)]
        first += size
        if first > offset:
            raw += batch(first - size, values, 1000 + i, control=i == 3)
    return bytes(raw)


@pytest.mark.parametrize("offset", [100, 101, 104, 106, 109, 110, 149])
def test_the_records_are_those_of_the_library(offset: int) -> None:
    """Also from within a batch, and past a control batch that holds no record."""
    theirs, ours = unread(sample(offset), offset), unread(sample(offset), offset)
    expected = [Record(record.offset, record.timestamp, record.value or b"") for record in theirs]
    batches = list(_unpack(ours))
    assert all(b.timestamp_types == {LOG_APPEND_TIME} for b in batches)
    assert [record for b in batches for record in _joined([b])] == expected
    assert list(_joined(batches) if batches else []) == expected
    assert ours.next_fetch_offset == theirs.next_fetch_offset == 150
    assert [record.offset for record in expected] == [o for o in range(offset, 150) if o != 109]


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_that_was_damaged_on_its_way_is_an_error(version: int) -> None:
    """Whatever byte it is that is covered by the checksum; the old versions' are the library's to check."""
    if version == 2:
        raw, covered = bytes(batch(0, [b"a"]) + batch(1, [b"b"])), 21
    else:
        builder = LegacyRecordBatchBuilder(1, 0, 1000)
        builder.append(0, 7, None, b"a")
        builder.append(1, 7, None, b"b")
        raw, covered = bytes(builder.build()), 17
    assert [b.values for b in _unpack(unread(raw, 0))] == [(b"a",), (b"b",)]
    for place in (covered, len(raw) - 1):
        damaged = bytearray(raw)
        damaged[place] ^= 1
        with pytest.raises(CorruptRecordException):
            list(_unpack(unread(bytes(damaged), 0)))


def test_what_has_been_fetched_is_handed_on_by_the_batch() -> None:
    before = FetchResult(PARTITION, assignment=None, partition_records=unread(sample(), 100), backoff=0)
    held = _Batches({PARTITION: before})
    assert list(held) == [PARTITION]
    assert [len(b.values) for b in held[PARTITION]._partition_records] == [1, 5, 3, 40]
    error = object()
    held[PARTITION] = error
    assert held[PARTITION] is error


class Library:
    """What our reader asks of aiokafka's consumer."""

    _closed = False

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.committed = error, dict[Any, Any]()
        self._fetcher = SimpleNamespace(
            _closed=False, _records={}, fetched_records=self.fetched, _subscriptions=SimpleNamespace(fetch_context=nullcontext)
        )

    async def fetched(self, *_: Any, **__: Any) -> dict[Any, Any]:
        if self.error is not None:
            raise self.error
        return {}

    def assignment(self) -> set[TopicPartition]:
        return {PARTITION}

    async def commit(self, offsets: dict[Any, Any]) -> None:
        self.committed |= offsets


@pytest.mark.parametrize(
    ("error", "displaced"),
    [(CorruptRecordException(), {0, 1}), (OffsetOutOfRangeError({PARTITION: 3}), {0}), (None, set())],
)
async def test_after_an_error_partitions_are_placed_again(
    error: Exception | None, displaced: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before the error is gone, so reading on from the library's position would pass it over."""
    monkeypatch.setattr("agents.chunks.AFTER_ERROR_S", 0.0)
    other, told = TopicPartition("reports", 1), list[set[int]]()
    thread: Any = ChunkThread.__new__(ChunkThread)
    thread.consumer = SimpleNamespace(placements=dict.fromkeys((PARTITION, other)), flow_active=True, displaced=told.append)
    thread.parent_loop = asyncio.get_running_loop()
    assert await thread._fetch_records(Library(error), {PARTITION, other}) == {}
    await asyncio.sleep(0)
    assert (set().union(*told), set(thread.consumer.placements)) == (
        displaced,
        {where for where in (PARTITION, other) if where.partition not in displaced},
    )


async def test_group_offsets_of_partitions_that_went_to_others_are_left_out() -> None:
    library, consumer = Library(), ChunkConsumer.__new__(ChunkConsumer)
    consumer._thread = cast(Any, SimpleNamespace(_ensure_consumer=lambda: library))
    await consumer._commit_group("reports", {0: 5, 1: 7})
    assert {where.partition: at.offset for where, at in library.committed.items()} == {0: 5}
