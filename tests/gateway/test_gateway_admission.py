"""Compares the gateway's limits with their definitions."""

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from ldpstream.gateway.admission import (
    NO_TOKEN,
    Client,
    Connections,
    MemoryLimit,
    RateLimit,
    Reservation,
    neighbourhood,
)
from ldpstream.gateway.http.problems import Problem

RATE, BURST = 4.0, 8.0  # powers of two, with times in 1/16 s: all sums are exact
TIMES = st.lists(st.integers(0, 40), max_size=60).map(lambda gaps: [sum(gaps[: i + 1]) / 16 for i in range(len(gaps))])


def ask(limit: RateLimit, client: Hashable, now: float) -> float:
    """Makes a request; charges the client if the request is admitted."""
    if (wait_s := limit.wait_s(client, now)) == 0:
        limit.charge(client, 1, now)
    return wait_s


def token_bucket(times: list[float]) -> list[bool]:
    """Returns the requests that a bucket of size BURST admits if it refills at RATE per second."""
    admitted, level, last = [], BURST, 0.0
    for now in times:
        level, last = min(BURST, level + (now - last) * RATE), now
        admitted.append(level >= 1)
        level -= admitted[-1]
    return admitted


@given(TIMES, st.integers(1, 5))
def test_the_rate_limit_is_a_token_bucket_for_every_client(times: list[float], tidy_every: int) -> None:
    limit = RateLimit(RATE, BURST)
    for client in ("a", "b"):
        admitted = []
        for index, now in enumerate(times):
            admitted.append(ask(limit, client, now) == 0)
            if index % tidy_every == 0:
                limit.forget(now)  # `forget` changes no answer
        assert admitted == token_bucket(times)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), min_size=1, max_size=60))
def test_charging_afterwards_keeps_to_the_rate(asked: list[tuple[int, int]]) -> None:
    """The total charge never exceeds the sum of the full bucket, its refill and the excess of the last request."""
    limit, taken, now, last = RateLimit(RATE, BURST), 0, 0.0, 0
    for gap, count in asked:
        now += gap / 16
        if limit.wait_s("a", now) == 0:
            limit.charge("a", count, now)
            taken, last = taken + count, count
            assert taken - last <= BURST - 1 + RATE * now
    wait = limit.wait_s("a", now)
    assert wait == max(0.0, max_debt(asked) / RATE)
    assert limit.wait_s("b", now) == 0


def max_debt(asked: list[tuple[int, int]]) -> float:
    """Returns how far the bucket's final level is below 1; the level may be negative."""
    level = BURST
    for gap, count in asked:
        level = min(BURST, level + gap / 16 * RATE)
        level -= count if level >= 1 else 0
    return 1 - level


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1"]))))
def test_connections_of_a_neighbourhood_are_limited(events: list[tuple[bool, str]]) -> None:
    connections, held = Connections(2), list[str]()
    for comes, host in events:
        near = [one for one in held if neighbourhood(one) == neighbourhood(host)]
        if comes:
            assert connections.enter(host) == (len(near) < 2)
            held += [host] if len(near) < 2 else []
        elif host in held:
            connections.leave(host)
            held.remove(host)
    assert len(connections._open) == len({neighbourhood(host) for host in held})


def test_remembered_clients_are_limited_and_expire() -> None:
    limit = RateLimit(RATE, BURST, max_clients=100)
    for number in range(1000):
        assert ask(limit, number, 0.0) == 0
        assert len(limit._full_at) <= 100
    limit.forget(0.0)
    assert len(limit._full_at) == 100
    limit.forget(1 / RATE)
    assert len(limit._full_at) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=60))
def test_the_memory_limits_hold_and_reservations_end(steps: list[tuple[int, int]]) -> None:
    """Two requests of one client share the client's part, an eighth. A listed relay gets all."""
    memory, limit = MemoryLimit(160), 20
    clients = [Client(NO_TOKEN, "a"), Client(NO_TOKEN, "a"), Client(NO_TOKEN, "b"), Client(NO_TOKEN, "c", relay=True)]
    reservations = [Reservation(memory, client) for client in clients]
    sizes = [0] * 4
    for which, n_bytes in steps:
        if n_bytes % 7 == 0:
            reservations[which].release()
            sizes[which] = 0
            continue
        try:
            reservations[which].grow(n_bytes)
            sizes[which] += n_bytes
        except Problem:
            taken = [sizes[0] + sizes[1], sizes[0] + sizes[1], sizes[2], -160][which]
            assert sum(sizes) + n_bytes > 160 or taken + n_bytes > limit
        assert memory.taken_bytes == sum(sizes) <= 160
        assert max(sizes[0] + sizes[1], sizes[2]) <= limit
    for reservation in reservations:
        reservation.release()
        reservation.release()
    assert (memory.taken_bytes, memory.taken_by) == (0, {})
