"""Unpacks Kafka's codecs within bounds: gzip, snappy, lz4 and zstd.

Reports are random data, which does not shrink, but clients of other languages compress by default, and brokers may. A small
batch could unpack to any size: a decoder writes to a buffer of `MAX_UNPACKED_BYTES`, and a batch that does not fit is refused.
"""

from collections.abc import Callable, Iterator
from typing import Final

import cramjam
import numpy as np

from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES

MAX_UNPACKED_BYTES = 16 * MAX_ENVELOPE_BYTES  # limit of the unpacked records of one batch
CODEC: Final = 0x07  # bits in the low byte of a batch's attributes

_HEADER_BYTES = 61  # of a batch of version 2
_XERIAL, _XERIAL_HEADER_BYTES = b"\x82SNAPPY\x00", 16  # Java's snappy has blocks, each after its length


class Unreadable(Exception):
    """The records of a batch can never be read."""


def unpacked(batch: memoryview) -> memoryview:
    """Returns a batch of version 2 with its records unpacked; the header keeps the length and checksum of the packed batch.

    Raises:
        Unreadable: if the records unpack to more than `MAX_UNPACKED_BYTES`, the codec is unknown, or the bytes are not complete
            streams of this codec.
    """
    codec = batch[22] & CODEC
    if codec not in _DECODERS:
        raise Unreadable(f"compressed with the unknown codec {codec}")
    out = np.empty(_HEADER_BYTES + MAX_UNPACKED_BYTES, np.uint8).data  # only written pages of this buffer use memory
    try:
        size = _DECODERS[codec](batch[_HEADER_BYTES:], out[_HEADER_BYTES:])
    except cramjam.DecompressionError as error:
        why = f"no stream of the codec {codec} that unpacks to {MAX_UNPACKED_BYTES} bytes at most: {error}"
        raise Unreadable(why) from None
    out[:_HEADER_BYTES] = batch[:_HEADER_BYTES]
    out[22] &= ~CODEC
    return out[: _HEADER_BYTES + size]


def _snappy(packed: memoryview, out: memoryview) -> int:
    size = 0
    for block in _xerial_blocks(packed) if packed[: len(_XERIAL)] == _XERIAL else [packed]:
        size += cramjam.snappy.decompress_raw_into(block, out[size:])
    return size


def _xerial_blocks(packed: memoryview) -> Iterator[memoryview]:
    packed = packed[_XERIAL_HEADER_BYTES:]
    while packed:
        end = 4 + int.from_bytes(packed[:4], "big")
        yield packed[4:end]
        packed = packed[end:]


_DECODERS: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    1: cramjam.gzip.decompress_into,
    2: _snappy,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
