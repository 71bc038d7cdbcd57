"""Compares the gateway's limits with their definitions."""

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from ldpstream.gateway.admission import (
    RateLimit,
)

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


def test_remembered_clients_are_limited_and_expire() -> None:
    limit = RateLimit(RATE, BURST, max_clients=100)
    for number in range(1000):
        assert ask(limit, number, 0.0) == 0
        assert len(limit._full_at) <= 100
    limit.forget(0.0)
    assert len(limit._full_at) == 100
    limit.forget(1 / RATE)
    assert len(limit._full_at) == 0
