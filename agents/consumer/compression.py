"""Unpacks Kafka's codecs within bounds: gzip, snappy, lz4 and zstd.

A decoder writes to a buffer of `MAX_UNPACKED_BYTES`. A batch that does not fit is refused.
"""

from collections.abc import Iterator
from typing import Final, NoReturn

import cramjam
import numpy as np

from ldpstream.surveys import Reason
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES

MAX_UNPACKED_BYTES = 16 * MAX_ENVELOPE_BYTES  # limit of one unpacked batch

_CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES, _BLOCK_LENGTH_BYTES = 16, 4
_FULL = "failed to write whole buffer"  # cramjam's error message for output that does not fit


class Unreadable(Exception):
    """The records of a batch can never be read."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason: Reason = reason


def unpacked(codec: int, packed: memoryview) -> memoryview:
    """Returns the unpacked records of a batch.

    Raises:
        Unreadable: "too large" if the records unpack to more than `MAX_UNPACKED_BYTES`. "unreadable batch" if the codec is
            unknown or the bytes are not complete streams of this codec.
    """
    if (name := _CODECS.get(codec)) is None:
        raise Unreadable("unreadable batch", f"compressed with the unknown codec {codec}")
    decode = _snappy if name == "snappy" else getattr(cramjam, name).decompress_into
    out = np.empty(MAX_UNPACKED_BYTES, np.uint8).data  # only written pages of this buffer use memory
    try:
        return out[: decode(packed, out)]
    except cramjam.DecompressionError as error:
        if str(error) == _FULL:
            _too_large()
        raise Unreadable("unreadable batch", f"compressed with {name}: {error}") from None


def _snappy(packed: memoryview, out: memoryview) -> int:
    size = 0
    for block in _xerial_blocks(packed) if packed[: len(_XERIAL)] == _XERIAL else [packed]:
        if size + cramjam.snappy.decompress_raw_len(block) > len(out):
            _too_large()
        size += cramjam.snappy.decompress_raw_into(block, out[size:])
    return size


def _xerial_blocks(packed: memoryview) -> Iterator[memoryview]:
    start = _XERIAL_HEADER_BYTES
    while start != len(packed):
        end = start + _BLOCK_LENGTH_BYTES + int.from_bytes(packed[start : start + _BLOCK_LENGTH_BYTES], "big")
        if not start + _BLOCK_LENGTH_BYTES < end <= len(packed):
            raise Unreadable("unreadable batch", "compressed with snappy: a block ends early")
        yield packed[start + _BLOCK_LENGTH_BYTES : end]
        start = end


def _too_large() -> NoReturn:
    raise Unreadable("too large", f"the batch unpacks to more than {MAX_UNPACKED_BYTES} bytes")
