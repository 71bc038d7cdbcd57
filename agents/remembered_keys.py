"""Counts a record once, even if a producer sent it several times, while its report key is remembered.

A *report key* is 16 bytes, in the record's `key` header. A producer sends each attempt to deliver an envelope with the same key
and to the same partition. The first accepted record with a key is counted. A later record with a remembered key is a
*duplicate* if its envelope is acceptable, even if the envelope differs: it is neither counted nor rejected. A rejected record's
key is not remembered. A record without a key is no duplicate. A record with a value and a `key` header of another length, or
with two of them, is rejected as "malformed key".

Keys are remembered in *generations*: generation u has the keys of the accepted records whose append time is in step u. A
generation is dropped once no envelope of its records can be accepted again:

    A record appended at time t is accepted with step s only if opens_ms(s) <= t + skew_ms. If t lies in step u, then
    t <= opens_ms(u + 1) - 1, hence s <= u + ahead, where ahead = ceil(skew_ms / step_ms).
    At time T, every step below f = first_open_step(T) is closed.
    If u + ahead < f, a record sent again from generation u has a closed step and is rejected as "step too old".

At most `Survey.open_steps` generations exist at a time. The counts depend only on the log, not on the chunks or the times of
the commits.

Only the first `MAX_KEYS` keys of a generation are remembered. A record beyond this limit counts again if it is sent again. The
log of `ldpstream serve` takes no more keys. A gateway appends no more keys to a partition of Kafka; further gateways and other
producers can.

Only the first 8 bytes of a key are remembered. If two different keys have the same first 8 bytes, the later record is dropped
wrongly. For n remembered random keys, the expected number of such pairs is about n^2 / 2^65.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ldpstream.agents.tally import Records, Tally, tally
from ldpstream.engines.checkpoint import STORED_KEY_BYTES, Checkpoint, first_open_step
from ldpstream.mechanisms import CountTable
from ldpstream.surveys import Reason, Survey
from ldpstream.surveys.report_key import MAX_KEYS, REPORT_KEY_BYTES

RATIO: Final = 4  # least ratio of the sizes of successive runs; a larger one means fewer runs to search and more merging

Keys: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class RememberedKeys:
    """The report keys that the fold of one partition remembers."""

    def __init__(self, survey: Survey, stored: Mapping[int, bytes]) -> None:
        self._survey = survey
        self._ahead = -(-survey.skew_ms // survey.step_ms)
        self._generations = {step: _Generation([np.sort(_from_bytes(keys))]) for step, keys in stored.items()}
        self._stored = set(stored)

    @property
    def unwritten_bytes(self) -> int:
        return sum(keys.nbytes for generation in self._generations.values() for keys in generation.unwritten)

    def admit(self, keys: Keys, appended_ms: int) -> tuple[Mask, int]:
        """Finds the duplicates among accepted records, and remembers the other records' keys, up to `MAX_KEYS`.

        Args:
            keys: (n,) the records' keys, in the order of the log.
            appended_ms: append time of one of the records, which were all appended in one step.

        Returns:
            (n,) true for each duplicate; the number of the other records whose key is not remembered.
        """
        self._drop_closed(appended_ms)
        step = self._survey.step_at(appended_ms)
        room = max(0, MAX_KEYS - (self._generations[step].n if step in self._generations else 0))
        ordered = np.sort(keys)
        seen = self._seen(ordered)
        if keys.size <= room and not seen.any() and not (ordered[1:] == ordered[:-1]).any():  # the common case, for speed
            self._add(step, ordered)
            return seen, 0
        # each key once, with the position of its first record; and for each record, the position of its key among these
        distinct, starts, which = np.unique(keys, return_index=True, return_inverse=True)
        seen = self._seen(distinct)
        fresh = np.sort(starts[~seen])[:room]  # the positions of the keys to remember
        last = int(fresh[-1]) if fresh.size else -1
        known = seen | (starts <= last)
        duplicates = known[which]
        duplicates[fresh] = False
        self._add(step, distinct[~seen & known])
        return duplicates, int(keys.size - duplicates.sum() - fresh.size)

    def _add(self, step: int, ordered: Keys) -> None:
        if ordered.size:
            self._generations.setdefault(step, _Generation([])).add(ordered)

    def _seen(self, ordered: Keys) -> Mask:
        seen = np.zeros(ordered.size, bool)
        for generation in self._generations.values():
            for run in generation.runs:
                at = np.searchsorted(run, ordered)
                seen |= run[np.minimum(at, run.size - 1)] == ordered
        return seen

    def _drop_closed(self, newest_ms: int) -> None:
        first = first_open_step(self._survey, newest_ms) - self._ahead
        for step in [step for step in self._generations if step < first]:
            del self._generations[step]

    def clear(self) -> None:
        self._generations.clear()

    def changes(self, newest_ms: int) -> tuple[dict[int, int], dict[int, bytes]]:
        self._drop_closed(newest_ms)
        keys = dict.fromkeys(self._stored - self._generations.keys(), b"")
        for step, generation in self._generations.items():
            if generation.unwritten:
                keys[step] = b"".join(run.tobytes() for run in generation.unwritten)
        return {step: generation.n for step, generation in self._generations.items()}, keys

    def committed(self, change: Checkpoint) -> None:
        self._stored = set(change.n_keys)
        for step, keys in change.keys.items():
            if step in self._generations:
                self._generations[step].written(len(keys) // STORED_KEY_BYTES)


class _Generation:
    """The keys of one generation.

    Runs are merged so that each has at least `RATIO` times the keys of the next one.
    """

    __slots__ = ("n", "runs", "unwritten")

    def __init__(self, stored: list[Keys]) -> None:
        self.runs, self.n = stored, sum(run.size for run in stored)
        self.unwritten: list[Keys] = []

    def add(self, ordered: Keys) -> None:
        self.n += ordered.size
        self.unwritten.append(ordered)
        self.runs.append(ordered)
        while len(self.runs) > 1 and self.runs[-2].size < RATIO * self.runs[-1].size:
            merged = np.sort(np.concatenate(self.runs[-2:]), kind="stable")  # merges sorted runs in linear time
            self.runs[-2:] = [merged]

    def written(self, n: int) -> None:
        rest = np.concatenate(self.unwritten)[n:]
        self.unwritten = [rest] if rest.size else []


def tally_once(survey: Survey, records: Records, remembered: RememberedKeys) -> Tally:
    """Counts the reports of the records; skips duplicates.

    Args:
        remembered: the keys of earlier records; gets the keys of the accepted ones of these records.
    """
    if records.keys is None:
        return tally(survey, records)
    total = Tally()
    for run in records.by_step(survey):
        total += _tally_step(survey, run, run.keys or (), remembered)
    return total


def _tally_step(survey: Survey, records: Records, headers: Sequence[bytes], remembered: RememberedKeys) -> Tally:
    lengths = np.fromiter(map(len, headers), np.int64, len(headers))
    well_formed = (lengths == 0) | (lengths == REPORT_KEY_BYTES)
    wrong: list[tuple[int, Reason]] = [
        (records.offsets[i], "malformed key") for i in np.flatnonzero(~well_formed).tolist() if records.values[i]
    ]
    newest_ms = records.appended_ms[-1]
    if not well_formed.all():
        headers, lengths = [key for key in headers if len(key) == REPORT_KEY_BYTES], lengths[well_formed]
        records = records.where(well_formed)
    keyed, keys = lengths == REPORT_KEY_BYTES, _from_bytes(b"".join(headers))[:: REPORT_KEY_BYTES // STORED_KEY_BYTES]
    total = tally(survey, records)
    accepted = np.fromiter(map(bool, records.values), bool, len(records))  # a marker has no value
    accepted[[bisect_left(records.offsets, offset) for offset, _ in total.rejected]] = False
    duplicates, not_remembered = remembered.admit(keys[accepted[keyed]], newest_ms)
    if duplicates.any():
        again = np.zeros(len(records), bool)
        again[np.flatnonzero(keyed & accepted)[duplicates]] = True
        for key, table in tally(survey, records.where(again)).counts.items():
            counted = total.counts.pop(key)
            if counted.n > table.n:
                total.counts[key] = CountTable(table.mechanism, counted.n - table.n, counted.counts - table.counts)
    return Tally(total.counts, sorted(total.rejected + wrong), int(duplicates.sum()), not_remembered)


def _from_bytes(keys: bytes) -> Keys:
    return np.frombuffer(keys, "<u8").astype(np.uint64, copy=False)
