"""The conformance check's gateway passes a client that retries correctly, and fails clients with one fault each."""

import base64
import http.client
import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from devices.conformance import listener
from devices.conformance.calls import ConformanceError
from devices.conformance.listener import LEAST, Sending, listening
from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys.envelope import seal
from tests.producers.samples import one_question

SURVEY = one_question("GRR")


class Answer(NamedTuple):
    status: int  # 0: no answer
    retry_after: str | None
    body: bytes


Post = Callable[..., Answer]
Served = tuple[Sending, Post, tuple[str, int]]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients need not wait; `test_a_client_must_wait` tests the wait."""
    monkeypatch.setattr(listener, "RETRY_S", 0)


@pytest.fixture
def served() -> Iterator[Served]:
    with listening(SURVEY, "# toml\n", 0) as (sending, url):
        host = url.removeprefix("http://")

        def post(body: bytes, key: str | None, kind: str = ENVELOPE) -> Answer:
            connection = http.client.HTTPConnection(host, timeout=60)
            try:
                headers = {"Content-Type": kind} | ({} if key is None else {"Idempotency-Key": key})
                connection.request("POST", "/v1/reports", body, headers)
                answer = connection.getresponse()
                return Answer(answer.status, answer.getheader("Retry-After"), answer.read())
            except (http.client.HTTPException, OSError):
                return Answer(0, None, b"")
            finally:
                connection.close()

        yield sending, post, (host.partition(":")[0], int(host.partition(":")[2]))


def envelope(i: int, ahead: int = 0) -> bytes:
    """An envelope of this minute; different for each i."""
    rows = np.array([i % 10] * (1 + i // 10), SURVEY.mechanisms[0][0].report_dtype)
    return seal(SURVEY, 0, 0, SURVEY.step_at(now_ms()) + ahead, rows)


def key(i: int) -> str:
    return base64.urlsafe_b64encode(Random(i).randbytes(16)).rstrip(b"=").decode()


def deliver(post: Post, body: bytes, first_key: str, later_key: str | None = None, attempts: int = 3) -> None:
    """Posts until a 202."""
    name = first_key
    for _ in range(attempts):
        if post(body, name).status == 202:
            return
        name = later_key or first_key


def test_a_correct_client_passes(served: Served) -> None:
    sending, post, _ = served
    for i in range(LEAST - 1):
        deliver(post, envelope(i), key(i))
    batch = msgspec.msgpack.encode([envelope(40), envelope(41)])
    assert [post(batch, key(99), BATCH).status for _ in range(2)] == [504, 202]
    assert sending.verdict() == []
    assert (sending.requests, sending.attempts) == (LEAST, LEAST + LEAST * 5 // 6)


def test_a_device_that_gives_up_is_found_behind_a_device_with_an_equal_envelope(served: Served) -> None:
    sending, post, _ = served
    for i in range(LEAST):
        deliver(post, envelope(1), key(i), attempts=1 if i == 1 else 3)
    assert [fault.rule for fault in sending.verdict()] == [
        "no further attempt with the same key and body came after the answer: busy"
    ]


def test_a_step_that_closes_before_the_next_attempt_is_no_fault(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sending, post, _ = served
    bodies = [envelope(i) for i in range(LEAST)]
    for i, body in enumerate(bodies):
        post(body, key(i))
    monkeypatch.setattr(listener, "now_ms", lambda: now_ms() + 3_600_000)
    assert {post(body, key(i)).status for i, body in enumerate(bodies)} == {422}
    assert sending.verdict() == []
    post(bodies[0], key(99))
    assert [fault.rule for fault in sending.verdict()] == ["the gateway would refuse the request: step too old"]


def fresh_key(post: Post) -> None:
    deliver(post, envelope(0), key(0))
    deliver(post, envelope(1), key(1), key(2))


def key_of_another_body(post: Post) -> None:
    deliver(post, envelope(1), key(1))
    deliver(post, envelope(2), key(1))


def gives_up(post: Post) -> None:
    post(envelope(1), key(1))
    post(envelope(2), key(2))


def in_another_batch(post: Post) -> None:
    post(envelope(0), key(0))
    post(msgspec.msgpack.encode([envelope(1), envelope(2)]), key(1), BATCH)
    post(msgspec.msgpack.encode([envelope(2), envelope(3)]), key(2), BATCH)


def other_body(post: Post) -> None:
    post(envelope(0), key(0))
    post(envelope(1), key(1))
    post(envelope(2), key(1))


def linked_keys(post: Post) -> None:
    post(envelope(1), "A" * 22)
    post(envelope(2), "A" * 20 + "BA")


@pytest.mark.parametrize(
    ("client", "finding"),
    [
        (fresh_key, "no further attempt with the same key and body came after the answer: busy"),
        (key_of_another_body, "a key must never be used for another body"),
        (gives_up, "no further attempt with the same key and body came after the answer: busy"),
        (other_body, "no further attempt with the same key and body came after the answer: busy"),
        (in_another_batch, "no further attempt with the same key and body came after the answer: busy"),
        (linked_keys, "the first 8 bytes of a key belong to another request"),
        (lambda post: post(envelope(1), None), "refuse the request: malformed idempotency key"),
        (lambda post: post(envelope(1), "k" * 40), "refuse the request: malformed idempotency key"),
        (lambda post: post(envelope(1), key(1), "application/json"), "refuse the request: unsupported content type"),
        (lambda post: post(envelope(1) + b"\0", key(1)), "refuse the request: undecodable"),
        (lambda post: post(envelope(1, ahead=-9), key(1)), "refuse the request: step too old"),
    ],
)
def test_every_fault_is_found(client: Callable[[Post], object], finding: str, served: Served) -> None:
    sending, post, _ = served
    client(post)
    assert finding in " ".join(map(str, sending.verdict()))


def test_a_client_must_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sending, post, _ = served
    post(envelope(0), key(0))
    monkeypatch.setattr(listener, "RETRY_S", 3600)
    deliver(post, envelope(1), key(1))
    assert [fault.rule for fault in sending.verdict()] == ["an attempt came before Retry-After had passed"]


def test_a_step_in_the_future_is_no_fault(served: Served) -> None:
    sending, post, _ = served
    answer = post(envelope(1, ahead=5), key(1))
    assert answer.status == 409
    assert answer.retry_after is not None
    assert int(answer.retry_after) > 60
    with pytest.raises(ConformanceError, match=f"too few requests for a verdict: 0, needs {LEAST}"):
        sending.verdict()


def test_a_port_in_use_is_one_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConformanceError, match=f"--listen: 127.0.0.1:{port}: "), listening(SURVEY, "", port):
            pass
