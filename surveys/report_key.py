"""Report keys: a keyed envelope is a Kafka record with one header `HEADER` of `REPORT_KEY_BYTES` bytes."""

import hashlib
from typing import Final

HEADER: Final = "key"
REPORT_KEY_BYTES: Final = 16
MALFORMED_KEY: Final = b"?"  # replaces an empty or repeated header; its length is wrong for a key


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
