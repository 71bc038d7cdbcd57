"""Makes batches as a broker stores them, and reads such batches with our own reader."""

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.structs import TopicPartition
from crc32c import crc32c

from ldpstream.agents.consumer.batches import Piece, unpack

PARTITION = TopicPartition("reports", 0)
CONTROL, APPEND_TIME = 0x20, 0x08
GZIP, SNAPPY, LZ4, ZSTD = CODECS = (1, 2, 3, 4)

Headers = list[tuple[str, bytes | None]]


def batch(
    first: int,
    values: Sequence[bytes | None],
    appended_ms: int = 7,
    control: bool = False,
    codec: int = 0,
    headers: Sequence[Headers] | None = None,
) -> bytearray:
    """Makes one batch in the form that a broker with LogAppendTime stores."""
    builder = DefaultRecordBatchBuilder(2, codec, True, -1, -1, -1, 10**9)
    for offset, value in enumerate(values):
        builder.append(offset, 3, None, value, [("trace", b"x")] if headers is None else headers[offset])
    raw = bytearray(builder.build())
    raw[0:8] = first.to_bytes(8, "big")
    raw[35:43] = appended_ms.to_bytes(8, "big")  # the batch's largest timestamp, which applies to all records
    raw[22] |= APPEND_TIME | (CONTROL if control else 0)
    return sealed(raw)


def sealed(raw: bytearray) -> bytearray:
    """Returns the batch with a correct length and checksum."""
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return raw


def unread(raw: bytes, offset: int) -> Any:
    return PartitionRecords(PARTITION, _MemoryRecordsPy(raw), [], offset, None, None, True, 0)


def read(unread: Any) -> list[Piece]:
    """Reads the batches. Fails the test if a batch is refused."""
    return [piece if piece[1] is None else pytest.fail(f"refused: {piece[1]}") for piece in unpack(unread)]
