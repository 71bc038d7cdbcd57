"""Report keys: agents recognize an envelope that is sent again by its report key.

A keyed envelope is a Kafka record with one header `HEADER` of `REPORT_KEY_BYTES` bytes. A report key is a function of the body
and of the request's ``Idempotency-Key``:

- a single envelope, also in a batch of one: the report key is H = BLAKE2b(body), keyed with the Idempotency-Key, 16 bytes
  (`request_hash`);
- envelope i of a longer batch, from 0: the report key is BLAKE2b(i as 4 bytes, big-endian), keyed with H, 16 bytes
  (`batch_keys`).

One Idempotency-Key with two different bodies gives unrelated report keys, so both bodies can count. The Idempotency-Key never
reaches the log. To somebody without the Idempotency-Key, the report keys link no two envelopes.
"""

import hashlib
from typing import Final

HEADER: Final = "key"
REPORT_KEY_BYTES: Final = 16
MALFORMED_KEY: Final = b"?"  # replaces an empty or repeated header; its length is wrong for a key
MAX_KEYS: Final = 2**22  # largest number of keys that a partition remembers for a step of the append time: 32 MiB


class KeyRoom:
    """The room for report keys in one partition: at most `MAX_KEYS` in a step of the append time.

    Args:
        step: the step of the latest append.
        used: number of keys that were appended in this step.
    """

    def __init__(self, step: int = -(2**63), used: int = 0) -> None:
        self.step, self.used = step, used

    def take(self, step: int, count: int) -> bool:
        """Takes the room for keys that are appended in a step; returns False, and takes nothing, if there is too little."""
        if step > self.step:
            self.step, self.used = step, 0
        if self.used + count > MAX_KEYS:
            return False
        self.used += count
        return True


def request_hash(body: bytes, idempotency_key: bytes) -> bytes:
    """Returns H, the hash of a request: 16 bytes.

    Args:
        idempotency_key: 1 to 64 bytes.
    """
    return hashlib.blake2b(body, key=idempotency_key, digest_size=REPORT_KEY_BYTES).digest()


def batch_keys(hashed: bytes, count: int) -> list[bytes]:
    """Returns the report keys of a batch's envelopes, in order.

    Args:
        hashed: the hash of the request.
        count: number of envelopes, at least 1.

    >>> [key.hex() for key in batch_keys(bytes(16), 2)]
    ['b877fed2bb10a558fd757e26257ae8ae', '13ad8743f4e9934d71f2cbbf99d60329']
    """
    keyed = hashlib.blake2b(key=hashed, digest_size=REPORT_KEY_BYTES)  # a copy takes less time than a new hash with a key
    keys = list[bytes]()
    for i in range(count):
        one = keyed.copy()
        one.update(i.to_bytes(4, "big"))
        keys.append(one.digest())
    return keys
