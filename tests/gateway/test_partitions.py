"""The choice of a partition, on a model of gateways and a log: attempts for one body always reach one partition.

The model's clocks and delays are random. Partitions are added, producers without keys write to any partition, and gateways
pause and continue with their last look at the log. The mutants show that the model finds wrong choices.
"""

import heapq
import random
from collections.abc import Callable, Iterator
from itertools import count, pairwise

import pytest

from ldpstream.engines.kafka import partitions
from ldpstream.engines.kafka.partitions import BASE_MS, OLD_MS, SETTLED_MS, VIEW_MS, Unsettled, View
from ldpstream.surveys.report_key import batch_keys, request_hash
from tests.agents.samples import make_survey

CLOCK_MS, DELAY_MS = 200, 800  # largest difference of a clock from the true time; longest replication and metadata delays
GATEWAYS, END_MS = 3, 700_000


class TopicState:
    """The true state of one topic: for each partition the append time and the commit time of its first record."""

    def __init__(self, rng: random.Random, t: int, n_partitions: int) -> None:
        self._rng, self.sizes = rng, [(t, n_partitions)]  # time of each change of the number of partitions
        self._clocks = [rng.randint(-CLOCK_MS, CLOCK_MS) for _ in range(64)]
        self._first: dict[int, tuple[int, int]] = {}

    def size(self, t: int) -> int:
        return next(n for since, n in reversed(self.sizes) if since <= t or since == self.sizes[0][0])

    def append(self, t: int, p: int) -> None:
        self._first.setdefault(p, (t + self._clocks[p], t + self._rng.randint(0, DELAY_MS)))

    def first_ms(self, t: int, p: int) -> int | None:
        stamp, committed = self._first.get(p, (0, t + 1))
        return stamp if committed <= t else None

    def retire(self, p: int) -> None:
        self._first[p] = (OLD_MS, 0)


class Model:
    """Gateways over one topic.

    Args:
        seed: determines everything.
        new_view: called once for each gateway; returns the `View` under test.

    Attributes:
        chosen: body -> all partitions chosen for the body.
        served: number of requests for which a gateway chose a partition.
    """

    def __init__(self, seed: int, new_view: Callable[[], Callable[..., View]] = lambda: View) -> None:
        self._rng, self._make_view = random.Random(seed), [new_view() for _ in range(GATEWAYS)]
        step_s = self._rng.choice((1, 3, 10))
        self._survey = make_survey(step_seconds=step_s, lateness_steps=2000 // step_s)
        self._t = self._start = self._survey.start_ms + 3_600_000
        self._log = TopicState(self._rng, self._t, self._rng.randint(1, 4))
        for p in range(self._log.size(self._t)):
            if self._rng.random() < 0.2:
                self._log.retire(p)
        self._clocks = [self._rng.randint(-CLOCK_MS, CLOCK_MS) for _ in range(GATEWAYS)]
        self._views: list[View | None] = [None] * GATEWAYS
        self._frozen_until = [0] * GATEWAYS
        self._bodies: list[tuple[int, bytes]] = []
        self.chosen: dict[bytes, set[int]] = {}
        self.served = self.added = 0

    def run(self) -> None:
        order, events = count(), list[tuple[int, int, Iterator[int]]]()
        programs = [self._looks(g) for g in range(GATEWAYS)] + [self._serves(g) for g in range(GATEWAYS)]
        for program in [*programs, self._operator(), self._writer()]:
            heapq.heappush(events, (self._t, next(order), program))
        while events:
            self._t, _, program = heapq.heappop(events)
            wait = next(program, None)
            if wait is not None and self._t + wait < self._start + END_MS:
                heapq.heappush(events, (self._t + wait, next(order), program))

    def _pause(self, longest_ms: int) -> int:
        return self._rng.randint(0, longest_ms)

    def _looks(self, g: int) -> Iterator[int]:
        while True:
            log, began = self._log, self._t + self._clocks[g]
            size = log.size(self._t - self._pause(DELAY_MS))  # the broker's metadata may be late
            yield self._pause(50)
            log, firsts = self._log, list[int | None]()
            for p in range(size):
                firsts.append(log.first_ms(self._t, p))
                if self._rng.random() < 0.1:
                    yield self._pause(20)
            self._views[g] = view = self._make_view[g](began, firsts)
            for p in view.unmarked():
                yield self._pause(400 if self._rng.random() < 0.2 else 5)
                if p < self._log.size(self._t):
                    self._log.append(self._t, p)
            yield self._pause(2000)
            while self._t < self._frozen_until[g]:
                yield self._frozen_until[g] - self._t

    def _serves(self, g: int) -> Iterator[int]:
        while True:
            self._serve(g)
            if self._rng.random() < 0.002:
                self._frozen_until[g] = self._t + self._rng.choice((4_000, 30_000, 400_000))
            yield self._pause(500)

    def _serve(self, g: int) -> None:
        view, now = self._views[g], self._t + self._clocks[g]
        if view is None:
            return
        newest = self._survey.step_at(now + self._survey.skew_ms)
        if self._rng.random() < 0.5 or not self._bodies:
            self._bodies.append((newest - self._pause(1), self._rng.randbytes(16)))
        step, hashed = self._rng.choice(self._bodies[-60:] if self._rng.random() < 0.8 else self._bodies)
        if self._survey.too_early(step, now):
            return
        try:
            p = view.partition(self._survey, step, hashed, now)
        except Unsettled:
            return
        self.served += 1
        self.chosen.setdefault(hashed, set()).add(p)

    def _operator(self) -> Iterator[int]:
        while True:
            yield self._pause(self._rng.choice((2_000, 20_000, 200_000)))
            if self._log.size(self._t) < 24:
                self._log.sizes.append((self._t, self._log.size(self._t) + self._rng.randint(1, 4)))
                self.added += 1

    def _writer(self) -> Iterator[int]:
        while True:
            yield self._pause(self._rng.choice((500, 5_000, 50_000)))
            self._log.append(self._t, self._rng.randrange(self._log.size(self._t)))


def is_found(new_view: Callable[[], Callable[..., View]] = lambda: View) -> bool:
    """True if some gateways choose two partitions for one body in one of the first runs."""
    for seed in range(25):
        model = Model(seed, new_view)
        model.run()
        if any(len(chosen) > 1 for chosen in model.chosen.values()):
            return True
    return False


def test_attempts_for_one_body_reach_one_partition() -> None:
    served = added = 0
    partitions_used = set()
    for seed in range(12):
        model = Model(seed)
        model.run()
        assert all(len(chosen) == 1 for chosen in model.chosen.values()), seed
        served, added = served + model.served, added + model.added
        partitions_used |= set().union(*model.chosen.values())
    assert (served > 25_000, added > 50, len(partitions_used) > 8) == (True,) * 3


@pytest.mark.parametrize("name", ["MARGIN_MS", "SETTLED_MS"])
def test_the_model_finds_a_missing_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, name, 0)
    assert is_found()


def test_a_settled_topic_spreads_its_requests_over_all_partitions() -> None:
    survey, t = make_survey(), make_survey().start_ms
    view = View(t + SETTLED_MS, [t, t - 3, t + BASE_MS, OLD_MS])
    chosen = {view.partition(survey, 0, request_hash(bytes([i]), b"k"), t + SETTLED_MS) for i in range(64)}
    assert chosen == {0, 1, 2, 3}


def test_an_added_partition_takes_the_steps_that_open_after_the_margin() -> None:
    survey = make_survey()
    t = survey.start_ms
    added = t + 1_000_000
    view = View(added + partitions.MARGIN_MS, [t, added])
    first = survey.step_at(added + partitions.MARGIN_MS + survey.skew_ms - 1) + 1
    hashes = [request_hash(bytes([i]), b"k") for i in range(64)]
    assert {view.partition(survey, first - 1, h, view.began_ms) for h in hashes} == {0}
    assert {view.partition(survey, first, h, view.began_ms) for h in hashes} == {0, 1}


def test_a_look_that_cannot_tell_is_not_used() -> None:
    survey, t = make_survey(), make_survey().start_ms
    for view in (View(t, []), View(t, [None, t]), View(t + SETTLED_MS - 1, [t, t])):
        with pytest.raises(Unsettled, match="new"):
            view.partition(survey, 0, bytes(16), view.began_ms)
    with pytest.raises(Unsettled, match="old"):
        View(t + SETTLED_MS, [t]).partition(survey, 0, bytes(16), t + SETTLED_MS + VIEW_MS + 1)


def test_markers_reach_partition_0_last() -> None:
    t = 10**12
    assert View(t, [None, None, t]).unmarked() == [1]
    assert View(t, [None, t]).unmarked() == [0]
    assert View(t, [t, None]).unmarked() == []  # the partition was added: it must not look like an original one
    assert View(t + SETTLED_MS, [t, None]).unmarked() == [1]


# ---- report keys


def test_report_keys_are_a_function_of_body_and_key() -> None:
    assert request_hash(b"body", b"k" * 16).hex() == "71a2d8f9e3c960cef2f536c9a183f0bb"
    hashes = {request_hash(body, key) for body in (b"a", b"b") for key in (b"k" * 22, b"l" * 22)}
    assert len(hashes) == 4


def test_the_report_keys_of_a_batch_look_unrelated() -> None:
    """Agents remember half a key: all halves differ. So do the differences between keys."""
    hashed = request_hash(b"body", b"k" * 16)
    keys = batch_keys(hashed, 10_000)
    assert {len(key) for key in keys} == {16}
    assert len({key[:8] for key in keys} | {hashed[:8]}) == len({key[8:] for key in keys} | {hashed[8:]}) == 10_001
    numbers = [int.from_bytes(key, "big") for key in (hashed, *keys)]
    assert len({a ^ b for a, b in pairwise(numbers)}) == 10_000
    assert min(bin(a ^ b).count("1") for a, b in pairwise(numbers)) > 20  # 64 expected; 20 or fewer: below 10^-11 in all pairs
