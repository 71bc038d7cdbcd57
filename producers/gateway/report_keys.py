"""Report keys (`surveys.report_key`): agents recognize an envelope that is sent again by its report key.

A report key is a function of the body and of the request's ``Idempotency-Key``. Every gateway therefore computes the same
report keys for every attempt with the same body and key:

- a single envelope, also in a batch of one: the report key is H = BLAKE2b(body), keyed with the Idempotency-Key, 16 bytes;
- envelope i of a longer batch, from 0: the report key is BLAKE2b(i as 4 bytes, big-endian), keyed with H, 16 bytes
  (`surveys.report_key.batch_keys`).

One Idempotency-Key with two different bodies gives two unrelated report keys, and both bodies count. So a 202 always stands for
reports that count, even if a faulty device uses a key twice. The Idempotency-Key never reaches the log. To somebody who does
not know it, report keys are unrelated random numbers: they link no two envelopes, not even those of one batch.
"""

import hashlib

from ldpstream.surveys.report_key import REPORT_KEY_BYTES


def request_hash(body: bytes, idempotency_key: bytes) -> bytes:
    """Returns H, the hash of a request: 16 bytes.

    Args:
        body: the request's body, an envelope or a batch.
        idempotency_key: 1 to 64 bytes.
    """
    return hashlib.blake2b(body, key=idempotency_key, digest_size=REPORT_KEY_BYTES).digest()
