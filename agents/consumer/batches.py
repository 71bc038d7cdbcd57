"""Reads fetch answers: checks each batch of records, unpacks it and cuts it into pieces.

If a piece has an unreadable record, the reader *refuses* this piece and the rest of the batch. It refuses a compressed batch
whole if it cannot be unpacked within bounds.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from operator import ge, itemgetter
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import _MemoryRecordsPy
from crc32c import crc32c

from ldpstream.agents.consumer.compression import CODEC, Unreadable, unpacked
from ldpstream.agents.log import Unread
from ldpstream.agents.tally import Records
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from ldpstream.surveys.report_key import HEADER, MALFORMED_KEY

CHUNK_BYTES = 2 * MAX_ENVELOPE_BYTES  # approximate size of a chunk
PIECE_RECORDS = 16_384
RECORD_BYTES = 100  # approximate memory of a record in bytes, without the record's value

_APPEND_TIME = 0x08  # a bit in the low byte of a batch's attributes


class OwnTimes(CorruptRecordException):  # type: ignore[misc]  # aiokafka has no types
    """A batch has its producer's time stamps: the topic does not have LogAppendTime. Its records are never counted."""


# Records; or one record without a value, which represents the refused part of a batch and has the first of its offsets.
Piece = tuple[Records, Unread | None]


def weight(records: Records) -> int:
    """Returns the approximate memory of some records in bytes."""
    keys = 0 if records.keys is None else sum(map(len, records.keys))
    return sum(map(len, records.values)) + keys + RECORD_BYTES * len(records)


def read_pieces(fetched: Any) -> None:
    """Makes one of aiokafka's fetch results return pieces of batches."""
    if isinstance(fetched, FetchResult) and "getall" not in vars(fetched):
        unread = fetched._partition_records
        unread._records_iterator = unpack(unread)
        fetched.getall = partial(_some, fetched)


def _some(result: Any, _max_records: int | None = None) -> list[Piece]:
    taken: list[Piece] = []
    if result.check_assignment(result._topic_partition) and result.has_more():
        total = 0
        for piece in result._partition_records:
            taken.append(piece)
            total += weight(piece[0])
            if total >= CHUNK_BYTES:
                result._update_position()
                break
        else:
            result._update_position()
            result._partition_records = None
    return taken


fetcher.MemoryRecords = _MemoryRecordsPy  # gives access to a batch's bytes; other consumers in this process work as before


def unpack(unread: Any) -> Iterator[Piece]:
    """Yields the pieces of a fetch answer's batches, in place of the records that aiokafka's `_unpack_records` yields."""
    while unread._records.has_next():
        raw, batch, first = unread._records._next_slice, unread._records.next_batch(), unread.next_fetch_offset
        if raw[16] == 2 and crc32c(raw[21:]) != int.from_bytes(raw[17:21], "big"):
            raise CorruptRecordException("a batch has a wrong checksum")
        if batch.is_control_batch:  # for example, the end of a transaction
            if markers := range(max(first, batch.base_offset), batch.next_offset):
                unread.next_fetch_offset = batch.next_offset
                yield Records(markers, (batch.max_timestamp,) * len(markers), (b"",) * len(markers)), None
        else:
            attributes, appended = (raw[22], raw[35:43]) if raw[16] == 2 else (raw[17], raw[18:26])
            if not attributes & _APPEND_TIME:
                raise OwnTimes("has records without LogAppendTime")
            try:
                for piece in _pieces(batch, raw, first):
                    unread.next_fetch_offset = piece.offsets[-1] + 1
                    yield piece, None
            except Unreadable as error:
                first = unread.next_fetch_offset
                unread.next_fetch_offset = batch.next_offset
                stand_in = Records([first], [int.from_bytes(appended, "big")], [b""])
                yield stand_in, Unread(batch.next_offset - first, "unreadable batch", str(error))
        unread.next_fetch_offset = max(unread.next_fetch_offset, batch.next_offset)


def _pieces(batch: Any, raw: memoryview, first: int) -> Iterator[Records]:
    if raw[16] < 2:
        raise Unreadable("written in a message format older than Kafka 0.11")
    if raw[22] & CODEC:
        raw = unpacked(raw)
        batch = DefaultRecordBatch(raw)
    records = chain(batch)  # does not read a batch again after its end
    length = min(PIECE_RECORDS, max(1, PIECE_RECORDS * CHUNK_BYTES // len(raw)))
    low = batch.base_offset
    while rows := _rows(records, length):
        offsets, appended_ms, values, keys = zip(*rows, strict=True)
        if not all(values):
            values = tuple(value or b"" for value in values)
        if offsets[0] < low or offsets[-1] >= batch.next_offset or any(map(ge, offsets, offsets[1:])):
            raise Unreadable("its record offsets do not ascend, or leave the batch's range")
        low = offsets[-1] + 1
        if low > first:
            old = bisect_left(offsets, first)
            known = keys[old:] if any(keys) else None
            yield Records(offsets[old:], appended_ms[old:], values[old:], known)


def _key(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    if len(headers) == 1 and headers[0][0] == HEADER:  # the common case, for speed
        return headers[0][1] or MALFORMED_KEY
    found = [value or MALFORMED_KEY for name, value in headers if name == HEADER]
    if len(found) == 1:
        return found[0]
    return MALFORMED_KEY if found else b""


def _rows(records: Iterator[Any], length: int) -> list[Any]:
    try:
        return [
            (r.offset, r.timestamp, r.value, _key(headers) if (headers := r.headers) else b"") for r in islice(records, length)
        ]
    except (CorruptRecordException, ValueError, IndexError) as error:  # for example, a header name that is not UTF-8
        raise Unreadable(f"a record cannot be read: {type(error).__name__}") from None


def joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Joins consecutive pieces of records."""
    for unread, run in groupby(pieces, itemgetter(1)):
        if unread is None:
            yield _columns([records for records, _ in run]), None
        else:
            yield from run


def _columns(parts: Sequence[Records]) -> Records:
    if len(parts) == 1:
        return parts[0]
    offsets = tuple(chain.from_iterable(part.offsets for part in parts))
    appended_ms = tuple(chain.from_iterable(part.appended_ms for part in parts))
    values = tuple(chain.from_iterable(part.values for part in parts))
    if all(part.keys is None for part in parts):
        return Records(offsets, appended_ms, values)
    keys = (part.keys or (b"",) * len(part) for part in parts)
    return Records(offsets, appended_ms, values, tuple(chain.from_iterable(keys)))
