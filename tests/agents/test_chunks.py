"""Compares our reader of batches with aiokafka's reader, and tests the chunks and the thread of the consumer."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import structlog
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import CorruptRecordException, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from ldpstream.agents import Record
from ldpstream.agents.consumer import batches
from ldpstream.agents.consumer.batches import OwnTimes, Piece, joined, read_pieces, unpack, weight
from ldpstream.agents.consumer.chunks import ChunkThread, _Placement
from ldpstream.agents.tally import Records
from ldpstream.surveys.report_key import MALFORMED_KEY, REPORT_KEY_BYTES

from .fetched import APPEND_TIME, CODECS, GZIP, PARTITION, Headers, batch, read, sealed, unread


def sample(offset: int, codec: int) -> bytes:
    """Makes a log of five batches without those that end before `offset`: the second compressed, the fourth a control batch."""
    rng = np.random.default_rng(1)
    sizes = [1, 5, 3, 1, 40]
    raw, first = bytearray(), 100
    for i, size in enumerate(sizes):
        values = [None if rng.random() < 0.1 else rng.bytes(int(rng.integers(0, 30))) for _ in range(size)]
        first += size
        if first > offset:
            raw += batch(first - size, values, 1000 + i, control=i == 3, codec=codec if i == 1 else 0)
    return bytes(raw)


def only(runs: Iterable[Piece]) -> Records:
    """Returns the records of the only run, which is readable."""
    [(records, unread)] = runs
    assert unread is None
    return records


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize("offset", [100, 101, 104, 106, 109, 110, 149])
def test_our_reader_returns_the_records_of_the_library(offset: int, codec: int) -> None:
    """The reader may start at any offset within a batch. A control batch, which the library skips, becomes a marker."""
    raw = sample(offset, codec)
    theirs, ours = unread(raw, offset), unread(raw, offset)
    marker = [Record(109, 1003, b"")] if offset <= 109 else []
    expected = sorted([Record(record.offset, record.timestamp, record.value or b"") for record in theirs] + marker)
    batches = read(ours)
    assert [record for b in batches for record in only(joined([b]))] == expected
    assert list(only(joined(batches))) == expected
    assert ours.next_fetch_offset == theirs.next_fetch_offset == 150
    assert [record.offset for record in expected] == list(range(offset, 150))


def test_a_batch_with_a_wrong_checksum_is_an_error() -> None:
    """Changes the first or the last byte that the checksum covers."""
    raw = bytes(batch(0, [b"a"]) + batch(1, [b"b"]))
    assert [records.values for records, _ in read(unread(raw, 0))] == [(b"a",), (b"b",)]
    for place in (21, len(raw) - 1):
        damaged = bytearray(raw)
        damaged[place] ^= 1
        with pytest.raises(CorruptRecordException):
            list(unpack(unread(bytes(damaged), 0)))


ONE, TWO = bytes(range(16)), bytes(16)
HEADERS: list[tuple[Headers, bytes]] = [  # a record's headers, and the key that the agent reads
    ([], b""),
    ([("key", ONE)], ONE),
    ([("trace", b"x"), ("key", TWO), ("Key", ONE)], TWO),
    ([("trace", ONE)], b""),
    ([("key", ONE[:15])], ONE[:15]),
    ([("key", b"")], MALFORMED_KEY),
    ([("key", None)], MALFORMED_KEY),
    ([("key", ONE), ("key", ONE)], MALFORMED_KEY),
]


@pytest.mark.parametrize("skip", [0, 3])
def test_the_key_header_of_each_record_is_read(skip: int) -> None:
    """A key of the wrong length is passed on. An empty, null or repeated key becomes a key of a wrong length."""
    headers, keys = zip(*HEADERS, strict=True)
    raw = bytes(batch(5, [b"value"] * len(headers), headers=headers))
    without = bytes(batch(13, [b"a", b"b"]))
    assert [record.key for record in only(joined(read(unread(raw + without, 5 + skip))))] == [*keys[skip:], b"", b""]
    assert [record.key for record in only(joined(read(unread(raw, 5 + skip))))] == list(keys[skip:])
    assert only(joined(read(unread(without, 13)))).keys is None
    assert len(MALFORMED_KEY) not in (0, REPORT_KEY_BYTES)


def damaged(what: str) -> bytearray:
    """Makes an unreadable batch of 20 records that a broker would accept. The batch's first offset is 2."""
    raw = batch(2, [b"%d" % i for i in range(20)])
    if what == "a header that is not UTF-8":
        raw[raw.rindex(b"trace")] = 0xFF
    else:
        raw[61:] = b"never"
    return sealed(raw)


@pytest.mark.parametrize("codec", [0, *CODECS])
@settings(max_examples=200)
@given(damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4))
def test_damage_in_a_batch_affects_no_other_batch(codec: int, damage: list[tuple[int, int]]) -> None:
    """Records before the damage may be returned. All records of the next batch are returned."""
    raw = batch(2, [b"%d" % i for i in range(20)], codec=codec)
    for place, bits in damage:
        raw[61 + place % (len(raw) - 61)] ^= bits
    *pieces, after = unpack(unread(bytes(sealed(raw) + batch(22, [b"c"])), 2))
    counted = sum(len(records) if refused is None else refused.records for records, refused in pieces)
    assert (counted, list(after[0])) == (20, [Record(22, 7, b"c")])


def test_pieces_before_an_unreadable_piece_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the batch is refused, from the first piece with an unreadable record on.

    Here a piece is one record. Brokers accept header names that are not UTF-8; the library would end the process.
    """
    monkeypatch.setattr(batches, "PIECE_RECORDS", 1)
    lost = damaged("a header that is not UTF-8")
    pieces = list(unpack(unread(bytes(lost + batch(22, [b"c"])), 2)))
    expected = [*((i, None) for i in range(2, 21)), (21, (1, "unreadable batch")), (22, None)]
    assert [(records.offsets[0], refused and refused[:2]) for records, refused in pieces] == expected


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unpacks_to_too_much_is_refused_as_a_whole(codec: int) -> None:
    """Reading continues after it. The control unpacks to slightly less than the limit of 16 MB."""
    large = [bytes(10**6)] * 40
    raw = bytes(batch(0, large[:15], codec=codec) + batch(15, large, codec=codec) + batch(55, [b"a"], codec=codec))
    *read, (stand_in, refused), after = unpack(unread(raw, 0))
    assert refused is not None
    assert [offset for records, _ in read for offset in records.offsets] == list(range(15))
    assert (stand_in.offsets, refused[:2], after[0].offsets) == ([15], (40, "unreadable batch"), (55,))
    assert weight(stand_in) == batches.RECORD_BYTES


def test_one_call_returns_about_one_chunk_at_most() -> None:
    """The library returns nothing more if the consumer's position is not the end of the call before."""
    raw = b"".join(bytes(batch(first, [b"a", b"b", *[bytes(10**6)] * 6], codec=GZIP)) for first in range(0, 80, 8))
    state: Any = SimpleNamespace(paused=False, position=0, consumed_to=lambda offset: setattr(state, "position", offset))
    assignment = SimpleNamespace(active=True, state_value=lambda _: state)
    held = FetchResult(PARTITION, assignment=assignment, partition_records=unread(raw, 0), backoff=0)
    offsets, weights = list[int](), list[int]()
    while held.has_more():
        read_pieces(held)
        taken = held.getall()
        offsets += [offset for records, _ in taken for offset in records.offsets]
        weights.append(sum(weight(records) for records, _ in taken))
    assert offsets == list(range(80))
    assert max(weights) < batches.CHUNK_BYTES + 7 * 10**6


async def test_a_refused_batch_gets_its_own_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = bytes(batch(0, [b"a", b"b"]) + damaged("records") + batch(22, [b"c"]) + batch(23, [b"d"]))
    thread = _reader()
    library = Library(pieces=list(unpack(unread(raw, 0))))
    found = (await thread._fetch_records(library, {PARTITION}))[PARTITION]
    assert [(chunk.placement, chunk.sequence, chunk.unread and chunk.unread[:2]) for chunk in found] == [
        (5, 0, None), (5, 1, (20, "unreadable batch")), (5, 2, None),
    ]  # fmt: skip
    assert [[record.offset for record in chunk.records] for chunk in found] == [[0, 1], [2], [22, 23]]
    assert thread.consumer.placements[PARTITION].chunks == 3


async def test_a_transaction_marker_is_a_record_without_a_value() -> None:
    """Both before further records and at the end of the log."""
    marker, other = batch(2, [b"\x00\x00\x00\x01"], control=True), batch(4, [b"\x00\x00\x00\x00"], control=True)
    raw = bytes(batch(0, [b"a", b"b"]) + marker + batch(3, [b"c"]) + other)
    seen = unread(raw, 0)
    found = (await _reader()._fetch_records(Library(pieces=list(unpack(seen))), {PARTITION}))[PARTITION]
    assert [(chunk.sequence, chunk.unread) for chunk in found] == [(0, None)]
    assert [(record.offset, record.value) for record in found[0].records] == list(enumerate([b"a", b"b", b"", b"c", b""]))
    assert seen.next_fetch_offset == 5


def _reader() -> Any:
    """Makes a thread that reads one partition, just after a seek."""
    thread: Any = ChunkThread.__new__(ChunkThread)
    thread.consumer = SimpleNamespace(placements={PARTITION: _Placement(5)}, flow_active=True)
    return thread


async def test_the_next_chunks_are_read_ahead() -> None:
    thread = _reader()
    library = Library(pieces=list(unpack(unread(bytes(batch(0, [b"a", b"b"])), 0))))

    async def chunks() -> list[tuple[int, int]]:
        found = await thread._fetch_records(library, {PARTITION})
        return [(chunk.placement, chunk.sequence) for chunk in found.get(PARTITION, [])]

    assert (await chunks(), library.asked) == ([(5, 0)], 1)
    await asyncio.sleep(0.01)
    assert library.asked == 2
    thread.consumer.placements[PARTITION] = _Placement(6)
    library._fetcher._records.clear()
    assert (await chunks(), library.asked) == ([(5, 1)], 2)  # the chunk was read before the new seek
    assert (await chunks(), library.asked) == ([], 3)
    await asyncio.sleep(0.01)
    assert library.asked == 3  # after a read without records, the thread does not read ahead


class Library:
    """A fake of the part of aiokafka's consumer that our reader uses."""

    _closed = False

    def __init__(self, error: Exception | None = None, pieces: Sequence[Any] = ()) -> None:
        self.error, self.committed = error, dict[Any, Any]()
        self.pieces, self.asked = {PARTITION: list(pieces)} if pieces else {}, 0
        self._fetcher = SimpleNamespace(
            _closed=False, _records={}, fetched_records=self.fetched, _subscriptions=SimpleNamespace(fetch_context=nullcontext),
            _create_fetch_waiter=self.waiter,
        )  # fmt: skip
        if error is not None or pieces:
            self._fetcher._records[PARTITION] = None

    async def fetched(self, *_: Any, **__: Any) -> dict[Any, Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.pieces

    def waiter(self) -> "asyncio.Future[None]":
        self.asked += 1
        return asyncio.get_running_loop().create_future()

    def assignment(self) -> set[TopicPartition]:
        return {PARTITION}

    async def commit(self, offsets: dict[Any, Any]) -> None:
        self.committed |= offsets


@pytest.mark.parametrize(
    ("error", "displaced"),
    [(CorruptRecordException(), {0}), (OffsetOutOfRangeError({PARTITION: 3}), {0}), (None, set())],
)
async def test_after_an_error_the_partition_is_placed_again(
    error: Exception | None, displaced: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records read before the error are lost. A read from the library's position would skip the lost records."""
    monkeypatch.setattr("ldpstream.agents.consumer.chunks.AFTER_ERROR_S", 0.0)
    other, told = TopicPartition("reports", 1), list[set[TopicPartition]]()
    thread: Any = ChunkThread.__new__(ChunkThread)
    thread.consumer = SimpleNamespace(
        placements={PARTITION: _Placement(1), other: _Placement(2)},
        flow_active=True,
        dispatcher=SimpleNamespace(displace=told.append),
    )
    thread.parent_loop = asyncio.get_running_loop()
    assert await thread._fetch_records(Library(error), {PARTITION, other}) == {}
    await asyncio.sleep(0.1)  # a timer of 0 s has ended, however slow the machine
    assert ({where.partition for where in set[TopicPartition]().union(*told)}, set(thread.consumer.placements)) == (
        displaced,
        {where for where in (PARTITION, other) if where.partition not in displaced},
    )


async def test_a_record_without_log_append_time_stops_only_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a record is never counted, because its time is the producer's. The agent reads the partition again after a pause."""
    monkeypatch.setattr("ldpstream.agents.consumer.chunks.AFTER_ERROR_S", 0.3)
    thread, told = _reader(), list[set[TopicPartition]]()
    thread.consumer.dispatcher = SimpleNamespace(displace=told.append)
    thread.parent_loop = asyncio.get_running_loop()
    thread.consumer.placements[TopicPartition("reports", 1)] = _Placement(6)
    own_times = batch(0, [b"a"])
    own_times[22] ^= APPEND_TIME
    with pytest.raises(OwnTimes) as error:
        list(unpack(unread(bytes(sealed(own_times)), 0)))
    with structlog.testing.capture_logs() as lines:
        assert await thread._fetch_records(Library(error.value), {PARTITION}) == {}
    assert "has records without LogAppendTime" in lines[0]["error"]
    assert set(thread.consumer.placements) == {TopicPartition("reports", 1)}
    assert told == []
    await asyncio.sleep(0.5)
    assert told == [{PARTITION}]
