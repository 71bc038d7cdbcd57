"""Kafka's codecs: agents read what clients write, within a bound of memory."""

import zlib
from collections.abc import Callable

import cramjam
import pytest
from aiokafka import codec

from ldpstream.agents.consumer.compression import MAX_UNPACKED_BYTES, Unreadable, unpacked

from .fetched import GZIP, LZ4, SNAPPY, ZSTD

PLAIN = b"one report and another report, " * 3000 + bytes(range(256)) * 20
HEADER = bytes(61)


def in_pieces(compressor: "cramjam.zstd.Compressor | cramjam.lz4.Compressor", plain: bytes) -> bytes:
    """Compresses piece by piece, so that the header does not state the size, as some clients do."""
    packed = b""
    for first in range(0, len(plain), 2**20):
        compressor.compress(plain[first : first + 2**20])
        packed += bytes(compressor.flush())
    return packed + bytes(compressor.finish())


def zstd_with_the_largest_window(plain: bytes) -> bytes:
    """Makes a frame of unknown size with the largest window that decoders accept, 128 MiB."""
    blocks, size = bytearray(b"\x28\xb5\x2f\xfd\x00\x88"), 2**17
    for first in range(0, len(plain), size):
        block, last = plain[first : first + size], first + size >= len(plain)
        alike = block.count(block[:1]) == len(block)
        blocks += (len(block) << 3 | alike << 1 | last).to_bytes(3, "little") + (block[:1] if alike else block)
    return bytes(blocks)


WRITERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, lambda plain: zlib.compress(plain, wbits=31)),
    "raw snappy": (SNAPPY, lambda plain: bytes(cramjam.snappy.compress_raw(plain))),
    "xerial snappy": (SNAPPY, codec.snappy_encode),
    "lz4": (LZ4, codec.lz4_encode),
    "lz4 of unknown size": (LZ4, lambda plain: in_pieces(cramjam.lz4.Compressor(), plain)),
    "zstd": (ZSTD, lambda plain: codec.zstd_encode(plain, 3)),
    "zstd of unknown size": (ZSTD, lambda plain: in_pieces(cramjam.zstd.Compressor(), plain)),
    "zstd with the largest window": (ZSTD, zstd_with_the_largest_window),
}


def unpack(number: int, packed: bytes) -> bytes:
    header = bytearray(HEADER)
    header[22] = number | 8
    batch = unpacked(memoryview(bytes(header) + packed))
    assert bytes(batch[:61]) == HEADER[:22] + b"\x08" + HEADER[23:]
    return bytes(batch[61:])


@pytest.mark.parametrize("name", WRITERS)
def test_every_clients_compression_is_read_up_to_the_limit(name: str) -> None:
    """A decoder writes into a buffer of the limit's size: whatever the stream states or has, it gets no more memory."""
    number, encode = WRITERS[name]
    assert unpack(number, encode(PLAIN)) == PLAIN
    assert len(unpack(number, encode(bytes(MAX_UNPACKED_BYTES)))) == MAX_UNPACKED_BYTES
    for size in (MAX_UNPACKED_BYTES + 1, 4 * MAX_UNPACKED_BYTES):
        with pytest.raises(Unreadable, match=f"unpacks to {MAX_UNPACKED_BYTES} bytes at most"):
            unpack(number, encode(bytes(size)))


@pytest.mark.parametrize(
    ("number", "packed"),
    [
        (SNAPPY, b"\xff\xff\xff\xff\x0fabc"),  # states a size of 4 GiB
        (SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xffabc"),  # a block of 2 GiB
        (SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00"),  # an empty block
        (ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little") + b"\x01\x00\x00"),  # states a size of 2⁶⁰ bytes
        (ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00"),  # a window of 2⁴¹ bytes
        (LZ4, b"\x04\x22\x4d\x18\x7c\x70"),
        (5, b""),
        (7, b""),
    ],
)
def test_a_false_header_is_refused(number: int, packed: bytes) -> None:
    with pytest.raises(Unreadable):
        unpack(number, packed)


@pytest.mark.parametrize("name", WRITERS)
def test_a_cut_or_extended_stream_is_refused(name: str) -> None:
    number, encode = WRITERS[name]
    packed = encode(PLAIN)
    for changed in (*(packed[:length] for length in {1, 30, len(packed) // 2, len(packed) - 1}), packed + b"more"):
        with pytest.raises(Unreadable):
            unpack(number, changed)
