"""Report keys (`surveys.report_key`): agents recognize an envelope that is sent again by its report key.

A report key is a function of the body and of the request's ``Idempotency-Key``:

- a single envelope, also in a batch of one: the report key is H = BLAKE2b(body), keyed with the Idempotency-Key, 16 bytes;
- envelope i of a longer batch, from 0: the report key is BLAKE2b(i as 4 bytes, big-endian), keyed with H, 16 bytes
  (`surveys.report_key.batch_keys`).

One Idempotency-Key with two different bodies gives unrelated report keys, so both bodies can count. The Idempotency-Key never
reaches the log. To somebody without the Idempotency-Key, the report keys link no two envelopes.
"""

import hashlib

from ldpstream.surveys.report_key import REPORT_KEY_BYTES


def request_hash(body: bytes, idempotency_key: bytes) -> bytes:
    """Returns H, the hash of a request: 16 bytes.

    Args:
        idempotency_key: 1 to 64 bytes.
    """
    return hashlib.blake2b(body, key=idempotency_key, digest_size=REPORT_KEY_BYTES).digest()
