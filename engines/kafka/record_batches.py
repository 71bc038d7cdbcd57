"""Record batches: the gateway collects the envelopes of many requests into one append.

All envelopes of a request are in one record batch: the log has all of them or none. The producer's timestamps are 0: true
timestamps would tell when each request arrived.
"""

from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka.producer.message_accumulator import BatchBuilder

from ldpstream.engines.gateway_log import Done, Outcome
from ldpstream.engines.kafka.topics import OVERHEAD_BYTES
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from ldpstream.surveys.report_key import HEADER

log = structlog.get_logger("ldpstream.gateway")

RECORD_BYTES: Final = 36  # upper bound of a record's size without its value


class RecordBatch:
    """Records for one partition, in one append."""

    def __init__(self, began_s: float) -> None:
        self.builder = BatchBuilder(MAX_ENVELOPE_BYTES + OVERHEAD_BYTES, 0)
        self.began_s = began_s
        self._size = 0
        self._waiting: list[Done] = []

    def add(self, envelopes: Sequence[bytes], keys: Sequence[bytes] | None, done: Done) -> bool:
        """Adds the envelopes of a request; returns False, and adds nothing, if they do not fit."""
        size = sum(map(len, envelopes)) + RECORD_BYTES * len(envelopes)
        if self._size and self._size + size > MAX_ENVELOPE_BYTES:
            return False
        self._size += size
        headers = [[]] * len(envelopes) if keys is None else [[(HEADER, key)] for key in keys]
        for envelope, header in zip(envelopes, headers, strict=True):
            if self.builder.append(timestamp=0, key=None, value=envelope, headers=header) is None:
                raise RuntimeError("aiokafka's record batch is smaller than the sizes of its records")
        self._waiting.append(done)
        return True

    def finish(self, outcome: Outcome, appended_ms: int | None = None) -> None:
        """Tells all requests their outcome and append time."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            try:
                done(outcome, appended_ms)
            except Exception:  # the other requests must get their answers
                log.exception("internal error")
