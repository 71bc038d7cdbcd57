"""Batches as our own reader unpacks them, against aiokafka's."""

import asyncio
import tracemalloc
import zlib
from collections.abc import Sequence
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

from agents import Record, batches
from agents.batches import Batch, FetchedBatches, FetchedBytes, RefusedBatch, joined, unpack
from agents.chunks import LOG_APPEND_TIME, ChunkConsumer, ChunkThread, _Placement

PARTITION = TopicPartition("reports", 0)
CONTROL, APPEND_TIME, GZIP = 0x20, 0x08, 0x01


def batch(first: int, values: Sequence[bytes | None], appended_ms: int = 7, control: bool = False, codec: int = 0) -> bytearray:
    """One batch as a broker with LogAppendTime keeps it."""
    builder = DefaultRecordBatchBuilder(2, codec, True, -1, -1, -1, 10**9)
    for offset, value in enumerate(values):
        builder.append(offset, 3, None, value, [("trace", b"x")])
    raw = bytearray(builder.build())
    raw[0:8] = first.to_bytes(8, "big")
    raw[35:43] = appended_ms.to_bytes(8, "big")  # the largest time stamp, which stands for all of them
    raw[22] |= APPEND_TIME | (CONTROL if control else 0)
    return sealed(raw)


def sealed(raw: bytearray) -> bytearray:
    """The same batch with a checksum that is right."""
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return raw


def unread(raw: bytes, offset: int) -> Any:
    return PartitionRecords(PARTITION, FetchedBytes(raw), [], offset, None, None, True, 0)


def read(unread: Any) -> list[Batch]:
    """All its batches, of which none is refused."""
    return [piece for piece in unpack(unread) if isinstance(piece, Batch) or pytest.fail(f"refused: {piece.refusal}")]


def sample(offset: int = 0) -> bytes:
    """A log of five batches, one of them compressed, the fourth a control batch, from the one on that holds the offset."""
    rng = np.random.default_rng(1)
    sizes = [1, 5, 3, 1, 40]
    raw, first = bytearray(), 100
    for i, size in enumerate(sizes):
        values = [None if rng.random() < 0.1 else rng.bytes(int(rng.integers(0, 30))) for _ in range(size)]
        first += size
        if first > offset:
            raw += batch(first - size, values, 1000 + i, control=i == 3, codec=GZIP if i == 1 else 0)
    return bytes(raw)


@pytest.mark.parametrize("offset", [100, 101, 104, 106, 109, 110, 149])
def test_the_records_are_those_of_the_library(offset: int) -> None:
    """Also from within a batch, and past a control batch that holds no record."""
    theirs, ours = unread(sample(offset), offset), unread(sample(offset), offset)
    expected = [Record(record.offset, record.timestamp, record.value or b"") for record in theirs]
    batches = read(ours)
    assert all(b.timestamp_types == {LOG_APPEND_TIME} for b in batches)
    assert [record for b in batches for record in joined([b])] == expected
    assert list(joined(batches) if batches else []) == expected
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
    assert [b.values for b in read(unread(raw, 0))] == [(b"a",), (b"b",)]
    for place in (covered, len(raw) - 1):
        damaged = bytearray(raw)
        damaged[place] ^= 1
        with pytest.raises(CorruptRecordException):
            list(unpack(unread(bytes(damaged), 0)))


def test_what_has_been_fetched_is_handed_on_by_the_batch() -> None:
    before = FetchResult(PARTITION, assignment=None, partition_records=unread(sample(), 100), backoff=0)
    held = FetchedBatches({PARTITION: before})
    assert list(held) == [PARTITION]
    assert [len(b.values) for b in held[PARTITION]._partition_records] == [1, 5, 3, 40]
    error = object()
    held[PARTITION] = error
    assert held[PARTITION] is error


def bomb(first: int, n: int) -> bytearray:
    """A batch of two ordinary records and n large ones, which take one byte in a thousand."""
    return batch(first, [b"a", b"b", *[bytes(10**6)] * n], codec=GZIP)


def damaged(what: str) -> bytearray:
    """A batch of 20 records from offset 2 on that a broker takes and that cannot be read."""
    raw = batch(2, [b"%d" % i for i in range(20)], codec=GZIP if "gzip" in what else 0)
    if what == "a codec that is not read":
        raw[22] |= 4
    elif what == "a header that is not UTF-8":
        raw[raw.rindex(b"trace")] = 0xFF
    elif what == "not gzip at all":
        raw[61:] = b"never"
    elif what == "gzip that ends early":
        del raw[-9:]
    elif what == "gzip of something else":
        raw[61:] = zlib.compress(b"\x7f" * 50, wbits=31)
    else:
        raw += zlib.compress(b"and more gzip", wbits=31)
    return sealed(raw)


@pytest.mark.parametrize(
    "what",
    ["a codec that is not read", "not gzip at all", "gzip that ends early", "gzip of something else", "gzip, twice"],
)
def test_a_batch_that_cannot_be_read_is_refused_and_the_others_are_not(what: str) -> None:
    lost = damaged(what)
    before, refused, after = unpack(unread(bytes(batch(0, [b"a", b"b"]) + lost + batch(22, [b"c"])), 0))
    assert (before[:3], after[:3]) == (((0, 1), (7, 7), (b"a", b"b")), ((22,), (7,), (b"c",)))
    assert isinstance(refused, RefusedBatch)
    assert (refused.record, refused.refusal) == (Record(2, 7, bytes(lost)), (20, "undecodable"))


def test_a_record_that_cannot_be_read_takes_those_behind_it_in_its_batch_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header's name need not be UTF-8 for a broker; the library would end the process."""
    monkeypatch.setattr(batches, "PIECE_RECORDS", 1)
    lost = damaged("a header that is not UTF-8")
    pieces = list(unpack(unread(bytes(lost + batch(22, [b"c"])), 2)))
    refused = pieces[-2]
    assert isinstance(refused, RefusedBatch)
    assert [piece.offsets for piece in pieces if isinstance(piece, Batch)] == [*((i,) for i in range(2, 21)), (22,)]
    assert (refused.record.offset, refused.refusal) == (21, (1, "undecodable"))


def test_a_batch_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control is one that unpacks to a little less than is allowed."""
    most = 3
    monkeypatch.setattr(batches, "MAX_UNPACKED_BYTES", most * 10**6)
    raw = bytes(bomb(0, most - 1) + bomb(most + 1, 60) + batch(most + 63, [b"c"]))
    tracemalloc.start()
    pieces = [
        (piece.refusal, piece.record.offset) if isinstance(piece, RefusedBatch) else piece.offsets
        for piece in unpack(unread(raw, 0))
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pieces[-2:] == [((62, "too large"), most + 1), (most + 63,)]
    assert [offset for piece in pieces[:-2] for offset in piece] == list(range(most + 1))
    assert peak < 5 * most * 10**6


def test_not_more_is_handed_on_at_a_time_than_a_chunk() -> None:
    """However well it was compressed."""
    raw = b"".join(bytes(bomb(first, 6)) for first in range(0, 80, 8))
    result = FetchResult(PARTITION, assignment=None, partition_records=unread(raw, 0), backoff=0)
    held = FetchedBatches({PARTITION: result})[PARTITION]
    held.check_assignment, held._update_position = lambda _: True, lambda: None
    offsets, weights = list[int](), list[int]()
    while held.has_more():
        taken = held.getall()
        offsets += [offset for piece in taken for offset in piece.offsets]
        weights.append(sum(piece.weight for piece in taken))
    assert offsets == list(range(80))
    assert max(weights) < batches.CHUNK_BYTES + 7 * 10**6
    assert held.getall() == []


async def test_a_refused_batch_is_a_chunk_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = bytes(batch(0, [b"a", b"b"]) + damaged("not gzip at all") + batch(22, [b"c"]) + batch(23, [b"d"]))
    thread: Any = ChunkThread.__new__(ChunkThread)
    thread.consumer = SimpleNamespace(placements={PARTITION: _Placement(5)}, flow_active=True)
    library = Library(pieces=list(unpack(unread(raw, 0))))
    found = (await thread._fetch_records(library, {PARTITION}))[PARTITION]
    assert [(chunk.placement, chunk.sequence, chunk.refusal) for chunk in found] == [
        (5, 0, None), (5, 1, (20, "undecodable")), (5, 2, None),
    ]  # fmt: skip
    assert [[record.offset for record in chunk.records] for chunk in found] == [[0, 1], [2], [22, 23]]
    assert thread.consumer.placements[PARTITION].chunks == 3


async def test_the_next_chunks_are_read_while_these_are_counted() -> None:
    thread: Any = ChunkThread.__new__(ChunkThread)
    thread.consumer = SimpleNamespace(placements={PARTITION: _Placement(5)}, flow_active=True)
    library = Library(pieces=list(unpack(unread(bytes(batch(0, [b"a", b"b"])), 0))))

    async def chunks() -> list[tuple[int, int]]:
        found = await thread._fetch_records(library, {PARTITION})
        return [(chunk.placement, chunk.sequence) for chunk in found.get(PARTITION, [])]

    assert (await chunks(), library.asked) == ([(5, 0)], 1)
    await asyncio.sleep(0.01)
    assert library.asked == 2
    thread.consumer.placements[PARTITION], library.pieces = _Placement(6), {}
    assert (await chunks(), library.asked) == ([(5, 1)], 2)  # as it was read: before the partition was placed anew
    assert (await chunks(), library.asked) == ([], 3)
    await asyncio.sleep(0.01)
    assert library.asked == 3  # with nothing there, it reads when it is told to


class Library:
    """What our reader asks of aiokafka's consumer."""

    _closed = False

    def __init__(self, error: Exception | None = None, pieces: Sequence[Any] = ()) -> None:
        self.error, self.committed = error, dict[Any, Any]()
        self.pieces, self.asked = {PARTITION: list(pieces)} if pieces else {}, 0
        self._fetcher = SimpleNamespace(
            _closed=False, _records={}, fetched_records=self.fetched, _subscriptions=SimpleNamespace(fetch_context=nullcontext)
        )

    async def fetched(self, *_: Any, **__: Any) -> dict[Any, Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.pieces

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
