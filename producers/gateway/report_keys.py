"""Report keys: each keyed envelope is a Kafka record with the header `key`, so that agents count the envelope once.

A report key has 16 bytes and is a function of the body and of the body's ``Idempotency-Key``. Every gateway therefore computes
the same report keys for every attempt with the same body and key:

- a single envelope: the report key is H = BLAKE2b(body), keyed with the Idempotency-Key, 16 bytes;
- envelope i of a batch, from 0: H with i added by XOR to its bytes 4 to 7 and to its bytes 12 to 15 (big-endian). No two report
  keys of a batch have an equal half, since agents remember one half. The first envelope has the report key H.

One Idempotency-Key with two different bodies gives two unrelated report keys, and both bodies count. The Idempotency-Key never
reaches the log, and a report key links no two envelopes of a device.
"""

import hashlib

import numpy as np

HEADER = "key"
KEY_BYTES = 16


def request_hash(body: bytes, idempotency_key: bytes) -> bytes:
    """Returns H, the hash of a request: 16 bytes.

    Args:
        body: the request's body, an envelope or a batch.
        idempotency_key: 1 to 64 bytes.
    """
    return hashlib.blake2b(body, key=idempotency_key, digest_size=KEY_BYTES).digest()


def batch_keys(hashed: bytes, count: int) -> list[bytes]:
    """Returns the report keys of a batch's envelopes, in order.

    Args:
        hashed: H.
        count: number of envelopes, at least 1.

    >>> [key.hex() for key in batch_keys(bytes(16), 2)]
    ['00000000000000000000000000000000', '00000000000000010000000000000001']
    """
    keys = np.tile(np.frombuffer(hashed, ">u4"), (count, 1))
    keys[:, [1, 3]] ^= np.arange(count, dtype=">u4")[:, None]
    raw = keys.tobytes()
    return [raw[start : start + KEY_BYTES] for start in range(0, len(raw), KEY_BYTES)]
