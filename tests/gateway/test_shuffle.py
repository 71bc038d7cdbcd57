"""Reports through a relay reach the log in random order, at times that do not depend on their arrival."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from scipy.stats import chisquare

from ldpstream.gateway import shuffle
from ldpstream.gateway.http.bodies import ENVELOPE
from ldpstream.gateway.http.problems import Problem
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.shuffle import BATCH_S, Shuffle

from .gateway_rig import KEYS, Rig, envelopes

Order = Callable[[list[Any]], None]
BATCHES, MEMBERS = 480, 4
FALSE_ALARM = 1e-9  # of each statistical test
HELD = envelopes(MEMBERS)


def report(intake: Intake, envelope: bytes, relayed: bool = True) -> asyncio.Future[int | Problem]:
    """Gives a report to the gateway. Returns the answer."""
    answer = asyncio.get_running_loop().create_future()
    headers = [(b"content-type", ENVELOPE.encode()), (b"idempotency-key", KEYS[0].encode())]
    intake.take(headers, "192.0.2.1", envelope, answer.set_result, relayed)
    return answer


async def orders(order: Order) -> Counter[tuple[int, ...]]:
    """Counts the orders in which `BATCHES` batches reach the log. The envelopes arrive in the order of `HELD`."""
    found, rig = Counter[tuple[int, ...]](), Rig(shuffle=Shuffle(0.0001, order), relays="192.0.2.0/24")
    for _ in range(BATCHES):
        rig.log.appended.clear()
        answers = [report(rig.intake, envelope) for envelope in HELD]
        assert await asyncio.gather(*answers) == [1] * MEMBERS
        found[tuple(HELD.index(envelope) for (envelope,) in rig.log.appended)] += 1
    return found


def p_value(found: Counter[tuple[int, ...]]) -> float:
    """The probability of a less even table of orders, if all orders are equally likely."""
    return float(chisquare([found[order] for order in permutations(range(MEMBERS))]).pvalue)


def rotate(held: list[Any]) -> None:
    """A wrong shuffle: every request has every place equally often, but most orders never occur."""
    first = _random.randrange(len(held))
    held[:] = held[first:] + held[:first]


def as_they_arrived(_: list[Any]) -> None:
    """No shuffle."""


_random = random.Random(20261127)


@pytest.mark.parametrize(
    ("order", "passes"),
    [(_random.shuffle, True), (rotate, False), (as_they_arrived, False)],
    ids=["shuffle", "control: rotated", "control: not shuffled"],
)
async def test_the_order_in_the_log_is_independent_of_the_order_of_arrival(order: Order, passes: bool) -> None:
    """Chi-squared test of all 24 orders of a batch, with a fixed seed and a false-alarm rate of 1e-9."""
    assert (p_value(await orders(order)) > FALSE_ALARM) == passes


def _note(left: list[bytes], envelope: bytes, _: object) -> None:
    left.append(envelope)


async def answers_in_the_order_of_the_log(rig: Rig) -> int:
    """Returns how many of 100 batches have answers in the order in which the log got their reports."""
    same = 0
    for _ in range(100):
        rig.log.appended.clear()
        left: list[bytes] = []
        answers = [report(rig.intake, envelope) for envelope in HELD]
        for answer, envelope in zip(answers, HELD, strict=True):
            answer.add_done_callback(partial(_note, left, envelope))
        await asyncio.gather(*answers)
        await asyncio.sleep(0)
        same += left == [envelope for (envelope,) in rig.log.appended]
    return same


@pytest.mark.parametrize("held", [True, False], ids=["answers held", "control: answers at once"])
async def test_the_order_of_the_answers_does_not_tell_the_order_in_the_log(held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 batches with 24 equally likely orders, 4.2 are in the order of the log; more than 25 with probability 1e-12."""
    if not held:
        monkeypatch.setattr(Intake, "_answer_later", lambda _, answer, result: answer(result))
    assert (await answers_in_the_order_of_the_log(Rig(shuffle=Shuffle(0.0001, _random.shuffle))) <= 25) == held


def test_the_order_is_drawn_by_a_cryptographic_generator() -> None:
    assert isinstance(shuffle._random, random.SystemRandom)
    assert Shuffle()._order == shuffle._random.shuffle


class Loop:
    """An event loop with a virtual time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timer: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, call: Callable[[], None]) -> None:
        assert self.timer is None
        assert when_s > self.now_s
        self.timer = when_s, call

    def advance(self, to_s: float) -> None:
        if self.timer is not None and self.timer[0] <= to_s:
            (self.now_s, call), self.timer = self.timer, None
            call()
        self.now_s = to_s


def test_the_times_in_the_log_tell_the_batch_and_nothing_finer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends happen at multiples of the batch's length after the arrival, wherever in the batch the requests arrive."""
    loop, drawn = Loop(), random.Random(1)
    arrivals = sorted(drawn.uniform(0, 300) for _ in range(1000))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    held, appended = Shuffle(order=as_they_arrived), dict[float, float]()
    for arrival in arrivals:
        loop.advance(arrival)
        held.hold(lambda arrival=arrival: appended.__setitem__(arrival, loop.now_s))  # type: ignore[misc]  # an untyped default
    loop.advance(301)
    assert list(appended) == arrivals
    for arrival, at in appended.items():
        assert at == (arrival // BATCH_S + 1) * BATCH_S
        assert 0 < at - arrival <= BATCH_S


async def test_a_plain_request_does_not_wait_for_a_batch() -> None:
    rig = Rig(shuffle=Shuffle(3600))
    assert await report(rig.intake, HELD[0], relayed=False) == 1


@pytest.mark.parametrize("cause", ["log unavailable", "internal error"])
async def test_a_log_that_fails_after_the_wait_answers_every_request(cause: str) -> None:
    rig = Rig(shuffle=Shuffle(0.001))
    answers = [report(rig.intake, envelope) for envelope in HELD]
    if cause == "log unavailable":
        rig.log.ready = False
    else:
        rig.log.failure = RuntimeError("a fault of ours")
    assert [found.cause for found in await asyncio.gather(*answers) if isinstance(found, Problem)] == [cause] * MEMBERS
    assert rig.intake._memory.taken_bytes == 0
    assert rig.log.appended == []
