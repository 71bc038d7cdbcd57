"""The results of a survey: publications and the schedule's progress, encoded for the store of an engine."""

from collections.abc import Sequence
from functools import partial

import msgspec

from ldpstream.engines.count_store import StoreDamaged
from ldpstream.engines.formats import check_format
from ldpstream.engines.results import ResultStore, Row
from ldpstream.estimators.filter.local_level import FORMAT as FILTER_FORMAT
from ldpstream.publishing.estimates.publication import (
    Publication,
    decode_publication,
    stated,
)
from ldpstream.publishing.progress import PROGRESS_FORMAT, Filters, Progress
from ldpstream.publishing.stored import StoredReader
from ldpstream.surveys import Survey

_progress = msgspec.json.Decoder(Progress)


class KeptResults:
    """Publications, progress and states of the filters of a survey, in the store of an engine.

    A damaged publication counts as missing (`StoredReader`).

    Raises:
        StoreUnavailable: from every method, if the store does not answer, or refuses the request.
        OtherFormat: from the methods that decode stored objects, if an object has another format.
        StoreDamaged: from `progress`, if the stored progress cannot be decoded.
    """

    def __init__(self, survey: Survey, store: ResultStore) -> None:
        self._survey, self.store = survey, store
        self._read = StoredReader(survey, store.kind, partial(decode_publication, where=store.where)).read
        self._seen: tuple[Progress | None, bytes | None] = (None, None)  # the progress last read, and its bytes in the store

    def lead(self, for_ms: int | None = None) -> bool:
        """See `ResultStore.lead`."""
        return self.store.lead(for_ms)

    # ---- writing

    def save(
        self, publications: list[Publication], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        """Saves the publications, the progress, and the states of the filters by attribute, in one atomic step. Replaces
        publications with the same keys. With None, the saved states of the filters stay.

        Returns:
            False, and nothing is saved, if the stored progress is no longer `before`: another estimator has continued.
        """
        kept = self._survey.retention_steps
        rows = [
            Row(p.key, p.step, msgspec.json.encode(p), msgspec.structs.replace(p, step=p.step - kept).key) for p in publications
        ]
        seen, raw = self._seen  # read once: the page's threads also read the progress
        written = None if before is None else msgspec.json.encode(before)
        wanted = raw if before == seen else written
        return self.store.save(rows, wanted, msgspec.json.encode(progress), filters or {}, progress.next_step - kept)

    # ---- reading

    def progress(self) -> Progress | None:
        """Returns the progress last saved; None before the first save."""
        raw = self.store.progress()
        self._seen = seen = (None if raw is None else self._decode_progress(raw), raw)
        return seen[0]

    def _decode_progress(self, raw: bytes) -> Progress:
        what = self.store.progress_name
        try:
            check_format(what, stated.decode(raw).format, PROGRESS_FORMAT, self.store.remedy)
            return _progress.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreDamaged(f"{what} cannot be decoded: {error}; {self.store.remedy}") from None

    def filters(self) -> dict[str, bytes]:
        """Returns the last saved state of every filter, by attribute."""
        states = self.store.filters()
        for state in states.values():
            check_format(self.store.filters_name, state_format(state), FILTER_FORMAT, self.store.filters_remedy)
        return states

    def get(self, keys: Sequence[str]) -> list[Publication | None]:
        """Returns the last saved publication of each key (`Publication.key`); None for a missing publication."""
        return [self._read(key, value) for key, value in zip(keys, self.store.get(keys), strict=True)] if keys else []

    def history(self) -> list[Publication]:
        """Returns all publications kept, oldest step first."""
        found = (self._read(key, value) for key, value in self.store.history())
        return in_order([p for p in found if p is not None])


def state_format(state: bytes) -> int:
    """Returns the format that a filter's state names, 1 if it names none; 0 if its first line cannot be decoded."""
    try:
        return stated.decode(state.partition(b"\n")[0]).format
    except msgspec.DecodeError:
        return 0


def in_order(publications: list[Publication]) -> list[Publication]:
    return sorted(publications, key=lambda p: (p.step, p.attribute, p.span, p.cohort or ""))
