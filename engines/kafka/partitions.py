"""The partition of a keyed request: every gateway chooses the same one for the same body and key, at any time.

Agents remember report keys per partition, so all attempts for one body must reach one partition, also while partitions are
added. Gateways choose by facts of the log that do not change: T_p, the append time of partition p's first record (`-infinity`
if retention has deleted it), and the earliest step s in the body.

    usable(s) = {p: T_p <= max(T_0 + BASE_MS, opens_ms(s) - margin)},  margin = skew_ms + MARGIN_MS
    partition = usable(s)[bytes 8 to 11 of H, big-endian, modulo the number of usable partitions]

So the partitions that got a record within `BASE_MS` of partition 0's first record take every step. A partition that is added
later takes the steps that open at least the margin after its first record. A gateway appends a *marker* to a partition without
a record. A marker is a record with an empty value, which agents skip. A new topic gets partition 0's marker last, and further
markers only `SETTLED_MS` after that.

**Gateways agree.** Two gateways could choose differently only if a partition q had no record in an older look, but were in
usable(s) of a later look. The older look began at time b, so T_q >= b - d, where d bounds the lags of clocks, replication and
metadata. Both of these inequalities hold, so q is not in usable(s):

1. T_q > opens_ms(s) - margin: a gateway uses a look for at most `VIEW_MS`, and accepts no step that opens later than the
   allowed skew. So opens_ms(s) <= b + VIEW_MS + skew_ms. Hence opens_ms(s) - margin <= b - (MARGIN_MS - VIEW_MS) < T_q, if
   d < MARGIN_MS - VIEW_MS (295 seconds).
2. T_q > T_0 + BASE_MS: a gateway uses a look only if b >= T_0 + SETTLED_MS. So T_q >= T_0 + SETTLED_MS - d > T_0 + BASE_MS, if
   d < SETTLED_MS - BASE_MS (6 seconds).

**Not covered.** After a topic is deleted and recreated, attempts for one body may reach two partitions. Do not delete the topic
of a running survey.

Retention must keep the first record of partition p until all steps that open before T_p + margin have closed.
"""

from collections.abc import Sequence
from typing import Final

from ldpstream.surveys import Survey

BASE_MS: Final = 2_000
SETTLED_MS: Final = 8_000
VIEW_MS: Final = 5_000
MARGIN_MS: Final = 300_000
OLD_MS: Final = -(2**62)  # T_p if the first record is deleted


class Unsettled(Exception):
    """A look at the log cannot tell the partition: it is too old, or the topic is too new."""


class View:
    """One look at the partitions of the reports topic.

    Args:
        first_ms: T_p of every partition in order; `OLD_MS` if the first record is deleted, None if the partition has no record.
    """

    def __init__(self, began_ms: int, first_ms: Sequence[int | None]) -> None:
        self.began_ms, self.first_ms = began_ms, tuple(first_ms)
        self.with_records = [p for p, first in enumerate(self.first_ms) if first is not None]
        self._usable: dict[int, list[int]] = {}  # by step

    @property
    def settled(self) -> bool:
        return bool(self.first_ms) and self.first_ms[0] is not None and self.began_ms >= self.first_ms[0] + SETTLED_MS

    def unmarked(self) -> list[int]:
        empty = [p for p, first in enumerate(self.first_ms) if first is None]
        if 0 in empty:
            return empty[1:] or empty
        return empty if self.settled else []

    def partition(self, survey: Survey, step: int, hashed: bytes, now_ms: int) -> int:
        """Returns the partition of a keyed request.

        Args:
            step: the earliest step in the body; not too early at `now_ms`.

        Raises:
            Unsettled: if this look cannot tell the partition.
        """
        if now_ms - self.began_ms > VIEW_MS:
            raise Unsettled("the last look at the log is too old")
        usable = self._usable.get(step)
        if usable is None:
            usable = self._usable[step] = self._find_usable(survey, step)
        return usable[int.from_bytes(hashed[8:12], "big") % len(usable)]

    def _find_usable(self, survey: Survey, step: int) -> list[int]:
        if not self.settled or self.first_ms[0] is None:
            raise Unsettled("the topic is too new")
        limit = max(self.first_ms[0] + BASE_MS, survey.opens_ms(step) - survey.skew_ms - MARGIN_MS)
        return [p for p, first in enumerate(self.first_ms) if first is not None and first <= limit]
