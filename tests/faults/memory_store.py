"""The count store and the results in memory, fast enough for many random lists of faults."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ldpstream.engines.checkpoint import Checkpoint, PaneKey, first_open_step
from ldpstream.engines.count_store import CountStore
from ldpstream.mechanisms import CountTable
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.progress import Filters, Progress
from ldpstream.publishing.results import KeptResults, in_order
from ldpstream.surveys import Survey


class MemoryCountStore(CountStore):
    """A count store in this process's memory."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self._checkpoints: dict[int, Checkpoint] = {}
        self._lock = threading.Lock()

    def load(self, partition: int) -> Checkpoint | None:
        with self._lock:
            if (stored := self._checkpoints.get(partition)) is None:
                return None
            first = first_open_step(self.survey, stored.newest_ms)
            panes = {key: table for key, table in stored.panes.items() if key.step >= first}
            return _with_panes(stored, panes, pruned_below=0, keys=dict(stored.keys))

    def commit(self, partition: int, expected: tuple[int, str] | None, change: Checkpoint) -> bool:
        with self._lock:
            stored = self._checkpoints.get(partition)
            if stored is not None and change.same_change(stored):
                return True
            if not change.starts_from(stored, expected):
                return False
            panes = ({} if stored is None else stored.panes) | change.panes
            self._checkpoints[partition] = _with_panes(
                change,
                {key: table for key, table in panes.items() if table.n},
                pruned_below=0 if stored is None else stored.pruned_below,
                keys=_changed_keys({} if stored is None else stored.keys, change),
            )
            return True

    def heads(self) -> dict[int, Checkpoint]:
        with self._lock:
            return {p: _with_panes(checkpoint, {}, pruned_below=0) for p, checkpoint in self._checkpoints.items()}

    def checkpoints(self, steps: range) -> dict[int, Checkpoint]:
        with self._lock:
            return {
                partition: _with_panes(checkpoint, {key: table for key, table in checkpoint.panes.items() if key.step in steps})
                for partition, checkpoint in self._checkpoints.items()
            }

    def prune(self, before_step: int, seen: Mapping[int, Checkpoint]) -> None:
        with self._lock:
            for partition, checkpoint in self._checkpoints.items():
                if partition in seen and checkpoint.follows(seen[partition]):
                    kept = {key: table for key, table in checkpoint.panes.items() if key.step >= before_step}
                    below = max(before_step, checkpoint.pruned_below)
                    self._checkpoints[partition] = _with_panes(checkpoint, kept, pruned_below=below, keys=checkpoint.keys)


def _with_panes(checkpoint: Checkpoint, panes: dict[PaneKey, CountTable], **others: Any) -> Checkpoint:
    copied: dict[str, Any] = {
        "panes": panes,
        "rejected": dict(checkpoint.rejected),
        "n_keys": dict(checkpoint.n_keys),
        "keys": {},
    }
    return replace(checkpoint, **(copied | others))


def _changed_keys(stored: dict[int, bytes], change: Checkpoint) -> dict[int, bytes]:
    keys = dict(stored)
    for generation, added in change.keys.items():
        if not added:
            keys.pop(generation, None)
        elif change.is_whole(generation):
            keys[generation] = added
        else:
            keys[generation] = keys.get(generation, b"") + added
    return keys


class MemoryResults(KeptResults):
    """The results of one survey in this process's memory."""

    def __init__(self) -> None:
        self._publications: dict[str, Publication] = {}
        self._progress: Progress | None = None
        self._filters: dict[str, bytes] = {}

    def progress(self) -> Progress | None:
        return self._progress

    def filters(self) -> dict[str, bytes]:
        return dict(self._filters)

    def save(
        self, publications: list[Publication], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        if self._progress != before:
            return False
        self._filters.update(filters or {})
        self._publications.update((p.key, p) for p in publications)
        self._progress = progress
        return True

    def lead(self, for_ms: int | None = None) -> bool:
        return True

    def get(self, keys: Sequence[str]) -> list[Publication | None]:
        return [self._publications.get(key) for key in keys]

    def history(self) -> list[Publication]:
        return in_order(list(self._publications.values()))
