"""Stores for publications and the schedule's progress."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

import msgspec

from ldpstream.engines.count_store import StoreDamaged
from ldpstream.engines.formats import check_format
from ldpstream.publishing.estimates.publication import (
    Jump,
    Publication,
    decode_publication,
    publication_key,
    publication_keys,
    spans,
    stated,
)
from ldpstream.publishing.progress import PROGRESS_FORMAT, Progress, Results
from ldpstream.publishing.stored import StoredReader
from ldpstream.surveys import Survey

JUMP_STEPS = 100  # publications in one request, in the search for the last jump

_progress = msgspec.json.Decoder(Progress)


class _Change(msgspec.Struct):
    change: Jump | None = None


_change = msgspec.json.Decoder(_Change)


class KeptResults(Results, ABC):
    """Base of the stores that hold the JSON of each publication by its key.

    A damaged publication counts as missing (`StoredReader`). A publication of another format raises OtherFormat.
    """

    def __init__(self, survey: Survey, reader: StoredReader, store: str, where: str) -> None:
        self._survey, self._reader, self._store = survey, reader, store
        self._decode = partial(decode_publication, where=where)

    @abstractmethod
    def history(self) -> list[Publication]:
        """Returns all publications kept, oldest step first."""

    # ---- the lease; a store of one process has none

    def lead(self, for_ms: int | None = None) -> bool:
        return True

    def renew(self) -> None:
        """Renews the lease if this estimator has it; otherwise has no effect."""

    def resign(self) -> None:
        """Releases the lease, so that another estimator can lead at once."""

    def balance(self) -> bool:
        """Passes the lease to another estimator that should have it. Returns True if it was passed."""
        return False

    # ---- reading

    @abstractmethod
    def _raw(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns the stored JSON of each key; None for a missing publication."""

    def get(self, keys: Sequence[str]) -> list[Publication | None]:
        """See `publishing.progress.Results`."""
        return [self._decoded(key, value) for key, value in zip(keys, self._raw(keys), strict=True)] if keys else []

    def landmarks(self) -> list[Publication]:
        """Returns the publications of the first kept step, then each attribute's last publication with a jump."""
        progress = self.progress()
        if progress is None:
            return []
        steps = range(max(progress.first_step, progress.next_step - self._survey.retention_steps), progress.next_step)
        found = self.get(publication_keys(self._survey, steps[0])) if steps else []
        for attribute in self._survey.attributes:
            if "filtered" in spans(attribute) and (jumped := self._last_jump(attribute.name, steps)) is not None:
                found.append(jumped)
        return [p for p in found if p is not None]

    def _last_jump(self, attribute: str, steps: range) -> Publication | None:
        for end in range(len(steps), 0, -JUMP_STEPS):
            keys = [publication_key(attribute, "filtered", step) for step in reversed(steps[max(0, end - JUMP_STEPS) : end])]
            for key, value in zip(keys, self._raw(keys), strict=True):
                found = self._reader.decode(_change.decode, value, self._store, key)
                if found is not None and found.change is not None:
                    return self._decoded(key, value)
        return None

    def _decoded(self, key: str, value: bytes | None) -> Publication | None:
        return self._reader.decode(self._decode, value, self._store, key)


def decode_progress(raw: bytes, what: str, other: str, damaged: str) -> Progress:
    """Decodes a stored progress.

    Args:
        what: names the progress in the message.
        other, damaged: advice for a progress of an earlier version, and for one that cannot be decoded.

    Raises:
        StoreDamaged: if it has another format (OtherFormat), or cannot be decoded.
    """
    try:
        check_format(what, stated.decode(raw).format, PROGRESS_FORMAT, other)
        return _progress.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreDamaged(f"{what} cannot be decoded: {error}; {damaged}") from None


def state_format(state: bytes) -> int:
    """Returns the format that a filter's state names, 1 if it names none; 0 if its first line cannot be decoded."""
    try:
        return stated.decode(state.partition(b"\n")[0]).format
    except msgspec.DecodeError:
        return 0


def in_order(publications: list[Publication]) -> list[Publication]:
    return sorted(publications, key=lambda p: (p.step, p.attribute, p.span, p.cohort or ""))
