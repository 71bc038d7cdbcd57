"""Batches as our own reader unpacks them, against aiokafka's."""

from typing import Any

import numpy as np
import pytest
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from agents import Record
from agents.chunks import LOG_APPEND_TIME, _Batches, _joined, _unpack

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
    return raw


def unread(raw: bytes, offset: int, check: bool = False) -> Any:
    return PartitionRecords(PARTITION, MemoryRecords(raw), [], offset, None, None, check, 0)


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


def test_a_batch_that_was_damaged_on_its_way_is_an_error() -> None:
    raw = bytearray(batch(0, [b"a"]) + batch(1, [b"b"]))
    with pytest.raises(CorruptRecordException):
        list(_unpack(unread(bytes(raw), 0, check=True)))
    assert [b.values for b in _unpack(unread(bytes(raw), 0))] == [(b"a",), (b"b",)]  # attributes were changed past the checksum


def test_what_has_been_fetched_is_handed_on_by_the_batch() -> None:
    before = FetchResult(PARTITION, assignment=None, partition_records=unread(sample(), 100), backoff=0)
    held = _Batches({PARTITION: before})
    assert list(held) == [PARTITION]
    assert [len(b.values) for b in held[PARTITION]._partition_records] == [1, 5, 3, 40]
    error = object()
    held[PARTITION] = error
    assert held[PARTITION] is error
