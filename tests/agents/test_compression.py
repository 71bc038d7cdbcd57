"""Kafka's codecs: we read everything that clients write, within a memory limit."""

import zlib
from collections.abc import Callable

import cramjam
import pytest
from aiokafka import codec

from ldpstream.agents.consumer.compression import MAX_UNPACKED_BYTES, Unreadable, unpacked

from .fetched import CODECS, ENCODERS, GZIP, LZ4, SNAPPY, ZSTD

PLAIN = b"one report and another report, " * 3000 + bytes(range(256)) * 20
Encode = Callable[[bytes], bytes]


def in_pieces(compressor: "cramjam.zstd.Compressor | cramjam.lz4.Compressor", plain: bytes, size: int = 2**20) -> bytes:
    """Compresses piece by piece, so that the header does not state the size, as some clients do."""
    packed = b""
    for first in range(0, len(plain), size):
        compressor.compress(plain[first : first + size])
        packed += bytes(compressor.flush())
    return packed + bytes(compressor.finish())


def zstd_blocks(plain: bytes) -> bytes:
    """Makes a zstd frame of unknown size with the largest window that decoders accept.

    A block of equal bytes needs four bytes.
    """
    blocks, size = bytearray(b"\x28\xb5\x2f\xfd\x00\x88"), 2**17
    for first in range(0, len(plain), size):
        block, last = plain[first : first + size], first + size >= len(plain)
        alike = block.count(block[:1]) == len(block)
        blocks += (len(block) << 3 | alike << 1 | last).to_bytes(3, "little") + (block[:1] if alike else block)
    return bytes(blocks)


def snappy_raw(plain: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(plain))


def halves(encode: Encode) -> Encode:
    """Encodes the two halves as two consecutive streams."""
    return lambda plain: encode(plain[: len(plain) // 2]) + encode(plain[len(plain) // 2 :])


WRITERS: dict[str, tuple[int, Encode]] = {
    "gzip": (GZIP, lambda plain: zlib.compress(plain, wbits=31)),
    "gzip in two members": (GZIP, halves(lambda plain: zlib.compress(plain, wbits=31))),
    "raw snappy": (SNAPPY, snappy_raw),
    "xerial snappy": (SNAPPY, codec.snappy_encode),
    "lz4": (LZ4, ENCODERS[LZ4]),
    "lz4 of unknown size": (LZ4, lambda plain: in_pieces(cramjam.lz4.Compressor(), plain)),
    "lz4 in two frames": (LZ4, halves(ENCODERS[LZ4])),
    "zstd": (ZSTD, ENCODERS[ZSTD]),
    "zstd of unknown size": (ZSTD, lambda plain: in_pieces(cramjam.zstd.Compressor(), plain)),
    "zstd with the largest window": (ZSTD, zstd_blocks),
    "zstd in two frames": (ZSTD, halves(ENCODERS[ZSTD])),
}


def unpack(number: int, packed: bytes) -> bytes:
    return bytes(unpacked(number, memoryview(packed)))


@pytest.mark.parametrize("name", WRITERS)
def test_every_clients_compression_is_read(name: str) -> None:
    number, encode = WRITERS[name]
    assert unpack(number, encode(PLAIN)) == PLAIN


@pytest.mark.parametrize("name", WRITERS)
def test_a_bomb_is_refused(name: str) -> None:
    """The decoders write into a buffer of the limit's size. A batch of exactly this size is read."""
    number, encode = WRITERS[name]
    assert len(unpack(number, encode(bytes(MAX_UNPACKED_BYTES)))) == MAX_UNPACKED_BYTES
    for size in (MAX_UNPACKED_BYTES + 1, 4 * MAX_UNPACKED_BYTES):
        with pytest.raises(Unreadable, match=f"unpacks to more than {MAX_UNPACKED_BYTES} bytes") as error:
            unpack(number, encode(bytes(size)))
        assert error.value.reason == "too large"


@pytest.mark.parametrize(
    ("number", "packed", "reason"),
    [
        (SNAPPY, b"\xff\xff\xff\xff\x0fabc", "too large"),  # states a size of 4 GiB
        (SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xffabc", "unreadable batch"),  # a block of 2 GiB
        (SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00", "unreadable batch"),  # an empty block
        (SNAPPY, b"\x82SNAPPY\x00", "unreadable batch"),  # half a header
        # states a size of 2⁶⁰ bytes
        (ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little") + b"\x01\x00\x00", "unreadable batch"),
        (ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00", "unreadable batch"),  # a window of 2⁴¹ bytes
        (LZ4, b"\x04\x22\x4d\x18\x7c\x70", "unreadable batch"),
        (0, b"", "unreadable batch"),
        (5, b"", "unreadable batch"),
        (7, b"", "unreadable batch"),
    ],
)
def test_a_false_header_is_refused(number: int, packed: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as error:
        unpack(number, packed)
    assert error.value.reason == reason


@pytest.mark.parametrize("name", WRITERS)
def test_a_cut_or_extended_stream_is_refused(name: str) -> None:
    """A stream is also refused if a decoder of another codec reads the stream."""
    number, encode = WRITERS[name]
    packed = encode(PLAIN)
    whole = {len(encode(PLAIN[: len(PLAIN) // 2]))} if "two" in name else set()  # only the first of two streams
    for length in {*range(0, len(packed), 97), *range(len(packed) - 12, len(packed))} - whole:
        with pytest.raises(Unreadable):
            unpack(number, packed[:length])
    for more in (b"x", b"more"):
        with pytest.raises(Unreadable):
            unpack(number, packed + more)
    for other in set(CODECS) - {number}:
        with pytest.raises(Unreadable):
            unpack(other, packed)
