"""Compares the fold of a partition, which counts each report key once, with the reference counter."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ldpstream.agents import PartitionFold, Record, remembered_keys
from ldpstream.agents.remembered_keys import RememberedKeys
from ldpstream.engines import Checkpoint, PaneKey
from ldpstream.surveys import REASONS
from tests.faults.invariant import numbers_of
from tests.faults.memory_store import MemoryCountStore

from .reference import Counted, judge, judge_log
from .samples import during, make_survey, sound, spoilt

SURVEY = make_survey()
STEP_MS = SURVEY.step_ms


def key_of(number: int) -> bytes:
    """Makes a report key. The keys differ in their first 8 bytes."""
    return number.to_bytes(8, "big") + bytes(8)


def n_keys(remembered: RememberedKeys) -> int:
    return sum(generation.n for generation in remembered._generations.values())


@cache
def judged(value: bytes, appended_ms: int) -> Counted | str:
    return judge(SURVEY, value, appended_ms)


@cache
def envelope(step: int, number: int) -> bytes:
    return sound(SURVEY, np.random.default_rng((step, number)), step, number % 3, 1 + number % 2)


@cache
def bad(step: int, reason: int) -> bytes:
    return spoilt(SURVEY, np.random.default_rng(reason), step, REASONS[reason])


# each event of a log: what happens, a number, and the time in ms since the event before
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["keyed", "keyed", "unkeyed", "again", "again", "spoilt", "malformed", "marker"]),
        st.integers(0, 1000),
        st.one_of(st.integers(-15_000, 4000), st.integers(9000, 21_000)),
    ),
    max_size=40,
)


def log_of(events: list[tuple[str, int, int]], one_key_one_envelope: bool = True) -> list[Record]:
    """Makes a log. "again" appends an earlier record again; otherwise a key may also come with another envelope."""
    log, now = list[Record](), during(SURVEY, 4)
    for what, number, ms in events:
        now += ms
        step = max(0, SURVEY.step_at(now) + (-2, -1, 0, 0, 1)[number % 5])
        value = key = b""
        if what == "again" and log:
            value, key = log[number % len(log)].value, log[number % len(log)].key
            if not one_key_one_envelope and number % 2:
                value = envelope(step, number)
        elif what == "spoilt":
            value, key = bad(step, number % len(REASONS)), key_of(len(log)) if number % 2 else b""
        elif what == "malformed":
            value, key = envelope(step, number), (b"x" * 15, b"y" * 17, b"?")[number % 3]
        elif what == "marker":
            key = (b"", key_of(number % 40), b"z")[number % 3]
        elif what in ("keyed", "unkeyed"):
            value, key = envelope(step, number), key_of(len(log)) if what == "keyed" else b""
        log.append(Record(len(log), now, value, key))
    return log


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "deliver", "deliver", "commit", "commit", "unanswered", "late", "restart"]),
        st.integers(0, 1),  # one of two agents, which both believe that they own the partition
        st.integers(1, 15),
    ),
    max_size=40,
)


@dataclass
class Owner:
    """An agent reduced to the fold of one partition."""

    store: MemoryCountStore
    log: list[Record]
    fold: PartitionFold = field(init=False)

    def __post_init__(self) -> None:
        self.restart(0)

    def restart(self, _: int) -> None:
        self.fold = PartitionFold(SURVEY, self.store.load(0))

    def deliver(self, n: int) -> None:
        """Delivers the next n records, and some earlier records again."""
        first = max(0, self.fold.next_offset - n % 3)
        assert self.fold.feed(self.log[first : self.fold.next_offset + n]).gap is None

    def commit(self, _: int, late: int = 0) -> None:
        """Commits; the fold counts `late` more records while the store writes."""
        change, expected = self.fold.changes(), self.fold.stored_position
        if late:
            self.deliver(late)
        if change is None:
            return
        if self.store.commit(0, expected, change):
            self.fold.committed(change)
        else:
            self.restart(0)

    def late(self, n: int) -> None:
        self.commit(0, n)

    def unanswered(self, _: int) -> None:
        """The store writes the change, but its answer is lost. The agent may write the same change again."""
        if (change := self.fold.changes()) is not None:
            self.store.commit(0, self.fold.stored_position, change)


def run(log: list[Record], operations: list[tuple[str, int, int]]) -> MemoryCountStore:
    """Runs the operations, then counts the rest of the log; returns the store."""
    store = MemoryCountStore(SURVEY)
    owners = [Owner(store, log), Owner(store, log)]
    for name, who, n in operations:
        getattr(owners[who], name)(n)
    last = Owner(store, log)
    last.deliver(len(log))
    last.commit(0)
    return store


Outcome = tuple[dict[PaneKey, tuple[int, tuple[int, ...]]], dict[str, int]]


def outcome(checkpoint: Checkpoint | None) -> Outcome:
    if checkpoint is None:
        return {}, {}
    panes = {key: numbers_of(table) for key, table in checkpoint.panes.items()}
    return panes, {str(reason): n for reason, n in checkpoint.rejected.items()}


def reference(log: list[Record]) -> Outcome:
    n, counts, rejected = Counter[PaneKey](), dict[PaneKey, list[int]](), Counter[str]()
    for found in judge_log(log, judged):
        if isinstance(found, Counted):
            pane = PaneKey(*found.pane)
            n[pane] += found.n
            counts[pane] = [a + b for a, b in zip(counts.get(pane, [0] * len(found.counts)), found.counts)]
        elif found not in ("duplicate", "marker"):
            rejected[found] += 1
    return {pane: (n[pane], tuple(counts[pane])) for pane in counts}, dict(rejected)


@given(EVENTS, OPERATIONS)
@settings(max_examples=150)
def test_each_key_counts_once_under_any_faults(
    events: list[tuple[str, int, int]], operations: list[tuple[str, int, int]]
) -> None:
    """The faults: any chunks, redeliveries, restarts, lost answers, two owners, and a clock that steps back."""
    log = log_of(events)
    assert outcome(run(log, operations).snapshot().get(0)) == reference(log)


@given(EVENTS, OPERATIONS, st.integers(0, 3))
@settings(max_examples=100)
def test_the_counts_depend_only_on_the_log(
    events: list[tuple[str, int, int]], operations: list[tuple[str, int, int]], bound: int
) -> None:
    """The counts equal those of a fold that gets one record at a time. Keys come with several envelopes, and few keys are
    remembered."""
    log = log_of(events, one_key_one_envelope=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered_keys, "MAX_KEYS", bound)
        one_by_one = PartitionFold(SURVEY, None)
        for record in log:
            one_by_one.feed([record])
        assert outcome(run(log, operations).snapshot().get(0)) == outcome(one_by_one.changes())


@pytest.mark.parametrize(("lateness", "skew"), [(0, 0), (0, 1), (1, 10), (2, 25), (3, 9)])
def test_a_generation_is_kept_exactly_as_long_as_needed(lateness: int, skew: int) -> None:
    """An envelope that is sent again every 500 ms until it is rejected counts once. The control: a generation that
    is dropped one step earlier counts an envelope of the latest step again."""
    survey = replace(make_survey(), lateness_steps=lateness, skew_seconds=skew)
    for at_s in range(10):
        accepted_ms = survey.opens_ms(5) + 1000 * at_s + 499
        step = survey.step_at(accepted_ms + survey.skew_ms)  # the latest step that is accepted
        value = sound(survey, np.random.default_rng(1), step, 0)
        times = range(accepted_ms, survey.closes_ms(step) + 500, 500)
        fold, early = PartitionFold(survey, None), PartitionFold(survey, None)
        early._keys._ahead -= 1
        results = [fold.feed([Record(i, time_ms, value, key_of(1))]) for i, time_ms in enumerate(times)]
        again = sum(early.feed([Record(i, time_ms, value, key_of(1))]).reports for i, time_ms in enumerate(times))
        assert [result.reports for result in results] == [1] + [0] * (len(times) - 1)
        assert {reason for result in results for _, reason in result.rejected} == {"step too old"}
        assert (again > 1 and n_keys(fold._keys) == 0) or at_s < 9


def test_results_report_duplicates_and_forgotten_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a record counts as often as it is sent. A key within the bound stays remembered."""
    monkeypatch.setattr(remembered_keys, "MAX_KEYS", 2)
    fold, now = PartitionFold(SURVEY, None), during(SURVEY, 4)
    log = [Record(i, now, envelope(4, 0), key_of(k)) for i, k in enumerate([7, 7, 8, 9, 9, 7, 8, 9])]
    one, two = fold.feed(log[:5]), fold.feed(log[5:])
    assert (one.duplicates, one.not_remembered, one.reports, n_keys(fold._keys)) == (1, 2, 4, 2)
    assert (two.duplicates, two.not_remembered, two.reports, n_keys(fold._keys)) == (2, 1, 1, 2)
    later = [Record(8 + i, now + STEP_MS, envelope(5, 0), key_of(k)) for i, k in enumerate([9, 7, 9])]
    assert fold.feed(later).duplicates == 2  # the next step remembers key 9


def test_only_new_keys_are_written_and_closed_generations_are_removed() -> None:
    fold = PartitionFold(SURVEY, None)

    def commit(offset: int, step: int) -> tuple[dict[int, int], dict[int, int]]:
        fold.feed([Record(offset + i, during(SURVEY, step), envelope(step, 0), key_of(offset + i)) for i in range(2)])
        change = fold.changes()
        assert change is not None
        fold.committed(change)
        return change.n_keys, {generation: len(keys) for generation, keys in change.keys.items()}

    assert commit(0, 4) == ({4: 2}, {4: 16})
    assert commit(2, 4) == ({4: 4}, {4: 16})
    assert commit(4, 5) == ({4: 4, 5: 2}, {5: 16})
    assert commit(6, 6) == ({4: 4, 5: 2, 6: 2}, {6: 16})
    assert commit(8, 7) == ({5: 2, 6: 2, 7: 2}, {4: 0, 7: 16})  # step 5, the latest of generation 4, has closed
    assert fold.dirty_bytes == 0


@pytest.mark.parametrize("n", [1, 3, 100])
def test_many_keys_are_found_in_any_chunks(n: int) -> None:
    """The runs are merged; every key is found in every later chunk, and no other key is."""
    rng = np.random.default_rng(n)
    keys, others = np.split(rng.permutation(np.unique(rng.integers(0, 2**64, 4000, np.uint64))), 2)
    remembered, now = RememberedKeys(SURVEY, {}), during(SURVEY, 4)
    for first in range(0, keys.size, n):
        assert not remembered.admit(keys[first : first + n], now)[0].any()
    assert n_keys(remembered) == keys.size
    assert max(len(generation.runs) for generation in remembered._generations.values()) <= 12
    mixed = rng.permutation(np.concatenate((keys, others)))
    duplicates, _ = remembered.admit(mixed, now + STEP_MS)
    np.testing.assert_array_equal(duplicates, np.isin(mixed, keys))
