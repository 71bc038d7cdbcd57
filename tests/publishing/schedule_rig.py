"""An in-memory log, an in-memory publisher and small count tables, for the tests of the schedule."""

import pickle
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.engines.count_store import CountStore
from ldpstream.mechanisms import CountTable
from ldpstream.publishing import schedule
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Survey, load_survey

SURVEY = load_survey(Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml")
M = SURVEY.mechanisms[0][0]
MARGIN_MS = schedule.MARGIN_MS


class ScheduleLog:
    """An in-memory log: the append times of each partition's records, and of the markers after them."""

    def __init__(self, *partitions: list[int], begins: dict[int, int] | None = None) -> None:
        self.times = list(partitions)
        self.begins = begins or dict.fromkeys(range(len(partitions)), 0)
        self.markers: list[list[int]] = [[] for _ in partitions]
        self.now_ms = 0
        self.store: CountStore | None = None  # the agents' store, if it is not the schedule's

    id = ""

    def described(self) -> tuple[str, range]:
        return self.id, range(len(self.times))

    def ends(self) -> dict[int, int]:
        return {p: self.begins[p] + len(times) + len(self.markers[p]) for p, times in enumerate(self.times)}

    def earliest_ms(self) -> int | None:
        return min((t for times in self.times for t in times), default=None)

    def mark(self, partitions: Collection[int]) -> dict[int, int]:
        for p in partitions:
            self.markers[p].append(self.now_ms)
        return dict.fromkeys(partitions, self.now_ms)


class Schedule(schedule.Schedule):
    """A schedule of a log whose partitions have a marker at the present time, once agents have counted their records."""

    def turn(self, now_ms: int) -> list[Publication] | None:
        log = cast(ScheduleLog, self._position)
        log.now_ms = now_ms
        count_markers(log, log.store or self._store)
        return super().turn(now_ms)


def count_markers(log: ScheduleLog, store: CountStore) -> None:
    """Appends and counts a marker in every partition whose records are counted."""
    heads = store.heads()
    for p, end in log.ends().items():
        head = heads.get(p)
        before = Checkpoint(0, log_id=log.id) if head is None else head
        if before.log_id == log.id and end - len(log.markers[p]) <= before.next_offset <= end:
            log.mark([p])
            newest_ms = max(before.newest_ms, log.now_ms)
            change = replace(before, next_offset=end + 1, newest_ms=newest_ms, base_writer=before.writer)
            assert store.commit(p, None if head is None else head.position, change)


class Told:
    def __init__(self) -> None:
        self.publications: list[Publication] = []

    def publish(self, publications: list[Publication]) -> None:
        self.publications += publications


_concluded: dict[bytes, Publication] = {}


@contextmanager
def concluded_once() -> Iterator[None]:
    """Within the context, schedules compute equal estimates only once. An estimate depends on its arguments alone."""

    def remembered(survey: Survey, *given: Any, **named: Any) -> Publication:
        key = pickle.dumps((survey.fingerprint, given, named))
        if key not in _concluded:
            _concluded[key] = conclude(survey, *given, **named)
        return _concluded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "conclude", remembered)
        yield


def pane(step: int, reports: int = 5) -> dict[PaneKey, CountTable]:
    return {PaneKey(0, 0, step): M.tabulate(np.zeros(reports, np.uint8))}


def keys(publications: list[Publication]) -> list[tuple[int, bool]]:
    return [(p.step, p.complete) for p in publications if p.attribute == "screen" and p.span == "step"]
