"""Tests the gateway on a real socket, its Kafka log with a fake producer, its settings, and its client."""

import asyncio
import http.client
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, OutOfOrderSequenceNumber

from producers.gateway import intake, kafka_log, service
from producers.gateway.client import GatewaySink
from producers.gateway.intake import Limits
from producers.gateway.kafka_log import MAX_BATCH, MAX_BATCH_BYTES, KafkaLog, NotAppended, Unacknowledged
from producers.gateway.service import _Protocol, bounded_protocol, operations, read_tokens, serve
from producers.sinks import SinkError
from runtime.settings import Settings, SettingsError
from surveys.envelope import MAX_ENVELOPE_BYTES
from tests.services.rig import PATIENCE_S, wait_until

from .gateway_rig import NOW, STEP, SURVEY, TOML, Rig, Served, envelopes

TOKEN = "a-token-for-the-tests"


# ---- on a socket


MakeServed = Callable[..., Served]


@pytest.fixture
def served() -> Iterator[MakeServed]:
    made: list[Served] = []

    def make(**options: Any) -> Served:
        made.append(Served(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def answer_to(port: int, sent: Sequence[bytes]) -> bytes:
    """Sends the parts and returns all bytes received until the gateway closes. The gateway may not read all parts."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        received = b""
        try:
            for part in sent:
                connection.sendall(part)
            while more := connection.recv(65536):
                received += more
        except ConnectionError:
            pass
        return received


def test_endless_heads_and_silent_connections_are_closed(served: MakeServed, monkeypatch: pytest.MonkeyPatch) -> None:
    port = served().port
    head = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    assert answer_to(port, [head, b"\r\n"]).startswith(b"HTTP/1.1 200")
    assert answer_to(port, [head, b"a: " + b"b" * 20_000 + b"\r\n\r\n"]).startswith(b"HTTP/1.1 200")
    for endless in (b"x-long: " + b"b" * 10_000, b"x: y\r\n" * 2000):
        assert answer_to(port, [head, *[endless] * 200]) == b""
    patient_s = service.HEAD_S
    monkeypatch.setattr(service, "HEAD_S", 0.1)
    for sent in ([], [b"GET /hea"], [head]):
        begun = time.monotonic()
        assert answer_to(port, sent) == b""
        assert time.monotonic() - begun < patient_s  # the new limit, not the old one, closed the connection


@pytest.mark.parametrize("begun", [b"0\r\n", b"1\r\nx\r\n0\r\n"])
def test_a_connection_with_endless_trailers_is_closed(served: MakeServed, begun: bytes) -> None:
    """Endless trailers would fill the memory, before and after the answer."""
    one = served(tokens=[TOKEN])
    head = b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n"
    allowed = b"authorization: Bearer " + TOKEN.encode() + b"\r\n"
    for authorization in (b"", allowed):
        short = answer_to(one.port, [head + authorization + b"connection: close\r\n\r\n" + begun + b"a: b\r\n\r\n"])
        assert short.startswith(b"HTTP/1.1 400" if authorization else b"HTTP/1.1 401")
        for endless in (b"x: y\r\n" * 10_000, b"b" * 60_000):
            with socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE_S) as connection:
                connection.sendall(head + authorization + b"\r\n" + begun + b"a: b")
                with pytest.raises(ConnectionError):
                    for _ in range(1000):
                        connection.sendall(endless)


def test_a_request_answered_before_its_end_must_end_soon(served: MakeServed, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(connection: socket.socket) -> None:
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        assert received.startswith(b"HTTP/1.1 401")

    monkeypatch.setattr(service, "HEAD_S", 1.0)
    head = b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
    port = served(tokens=[TOKEN]).port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        begun = time.monotonic()
        while time.monotonic() < begun + 1.2:  # a series of complete requests may take longer than the limit for one request
            connection.sendall(head)
            refused(connection)
            connection.sendall(b"1\r\nx\r\n0\r\n\r\n")
        connection.sendall(head)
        refused(connection)
        with pytest.raises(ConnectionError):
            for _ in range(100):
                time.sleep(0.05)
                connection.sendall(b"1\r\nx\r\n")


def test_a_connection_is_kept_for_more_requests(served: MakeServed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HEAD_BYTES", 400)
    one = b"GET /health HTTP/1.1\r\nhost: x\r\n"
    last = answer_to(served().port, [one + b"\r\n"] * 50 + [one + b"connection: close\r\n\r\n"])
    assert last.count(b"HTTP/1.1 200") == 51


def accepted(port: int) -> int:
    """Returns how many of nine simultaneous connections get an answer."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)) for _ in range(9)]
        answers = 0
        for connection in held:
            with suppress(ConnectionError):
                connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
                answers += connection.recv(65536).startswith(b"HTTP/1.1 200")
        return answers


def test_one_address_cannot_hold_all_the_connections(served: MakeServed) -> None:
    """Control: without a limit, all connections are accepted. When one connection closes, another is accepted."""
    for protocol, limit in ((_Protocol, 9), (bounded_protocol(4), 4)):
        port = served(protocol=protocol).port
        assert accepted(port) == limit
        for _ in range(3):  # the server may learn a little later that the connections have closed
            wait_until(lambda: accepted(port) == limit, lambda: f"never {limit} connections again")  # noqa: B023


def test_an_oversized_body_gets_its_answer(served: MakeServed) -> None:
    one = served()
    head = b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\nconnection: close\r\n"
    answer = answer_to(one.port, [head, b"transfer-encoding: chunked\r\n\r\n", *[b"10000\r\n" + bytes(65536) + b"\r\n"] * 40])
    assert answer == b"" or b"too-large" in answer  # the answer is lost if the gateway closes during the send
    assert one.rig.log.appended == []
    sized = b"content-length: %d\r\n\r\n" % (MAX_ENVELOPE_BYTES + 1)
    assert b"too-large" in answer_to(one.port, [head, sized])


# ---- the client


def sent(one: Served) -> list[bytes]:
    return [envelope for batch in one.rig.log.appended for envelope in batch]


def test_the_sink_posts_batches_within_the_limits(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    sink = GatewaySink(one.url, TOKEN)
    small, large = envelopes(40, n=1), envelopes(12, n=60_000)
    for envelope in [*small, *large]:
        sink.send(envelope)
    sink.flush()
    sink.flush()
    assert sent(one) == [*small, *large]
    for batch in one.rig.log.appended:
        assert len(batch) <= MAX_BATCH
        assert sum(map(len, batch)) <= (MAX_BATCH_BYTES if len(batch) > 1 else MAX_ENVELOPE_BYTES)
    sink.close()
    sink.close()


def test_the_sink_retries_and_counts_once(served: MakeServed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "ACKNOWLEDGE_S", 0.1)
    one, batch = served(limits=Limits(requests=2.0)), envelopes(3)
    sink = GatewaySink(one.url)
    one.rig.log.gate.clear()
    timer = threading.Timer(1.5, lambda: one.loop.call_soon_threadsafe(one.rig.log.gate.set))
    timer.start()
    for _ in range(6):  # more than the rate admits at once
        for envelope in batch:
            sink.send(envelope)
        sink.flush()
    assert sent(one) == batch * 6
    sink.close()
    timer.join()


def test_the_sink_duplicates_nothing_when_answers_are_lost(served: MakeServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth answer on average is lost. The sink retries a batch with the batch's key."""
    one, rng, lost, true = served(), random.Random(1), list[int](), http.client.HTTPConnection.getresponse

    def getresponse(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        answer = true(connection)
        if rng.random() < 0.2:
            lost.append(answer.status)
            raise ConnectionResetError
        return answer

    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", getresponse)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    sink, batches = GatewaySink(one.url), [envelopes(1 + index % 3, seed=index) for index in range(100)]
    for batch in batches:
        for envelope in batch:
            sink.send(envelope)
        sink.flush()
    sink.close()
    assert lost.count(202) >= 10
    assert one.rig.log.appended == batches


def test_the_sink_retries_until_the_step_opens(served: MakeServed) -> None:
    now = [NOW]
    one, early = served(now_ms=lambda: now[0]), envelopes(2, step=STEP + 3)
    sink = GatewaySink(one.url, patience_s=0.0)
    with pytest.raises(SinkError, match=r"step in the future \(409\)"):
        post(sink, early)
    for use in (sink.flush, lambda: sink.send(early[0])):  # the failure is permanent
        with pytest.raises(SinkError, match="step in the future"):
            use()
    now[0] = SURVEY.opens_ms(STEP + 3) - SURVEY.skew_ms - 1
    later = GatewaySink(one.url)
    timer = threading.Timer(0.5, lambda: now.__setitem__(0, SURVEY.opens_ms(STEP + 3)))
    timer.start()
    post(later, early)
    timer.join()
    assert sent(one) == early


def test_a_refusal_or_unreachable_gateway_is_one_clear_error(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    with pytest.raises(SinkError, match=r"did not accept the reports: unauthorized \(401\)"):
        post(GatewaySink(one.url), envelopes(1))
    with pytest.raises(SinkError, match=r"step too old \(422\), 2 envelopes of the batch, the first at 1: step too old"):
        post(GatewaySink(one.url, TOKEN), [*envelopes(1), *envelopes(2, step=0)])
    one.rig.log.ready = False
    with pytest.raises(SinkError, match=r"log unavailable \(503\)"):
        post(GatewaySink(one.url, TOKEN, patience_s=0.0), envelopes(2))
    assert sent(one) == []
    with pytest.raises(SinkError, match=r"gateway at http://127\.0\.0\.1:9 did not accept the reports"):
        post(GatewaySink("http://127.0.0.1:9", patience_s=0.0), envelopes(1))
    for url in ("nonsense", "ftp://host", "http://host:port"):
        with pytest.raises(SinkError, match="URL must be http"):
            GatewaySink(url)


def test_the_sink_handles_a_proxys_answer_and_hides_the_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def answer() -> None:
            with proxy.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(
                    b"HTTP/1.1 503 Away\r\nretry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\ncontent-length: 0\r\n\r\n"
                )

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{proxy.getsockname()[1]}"
        with pytest.raises(SinkError, match=rf"^gateway at http://{address} did not accept the reports: status 503$"):
            post(GatewaySink(f"http://user:secret@{address}", patience_s=0.5), envelopes(1))
        thread.join()
    with pytest.raises(SinkError, match=r"got host:port$"):
        GatewaySink("http://user:secret@host:port")


def post(sink: GatewaySink, batch: list[bytes]) -> None:
    for envelope in batch:
        sink.send(envelope)
    try:
        sink.flush()
    finally:
        sink.close()


# ---- the Kafka log


class FakeProducer:
    """A producer that acknowledges, never acknowledges or fails; the test chooses."""

    made: list["FakeProducer"]

    def __init__(self) -> None:
        self.made.append(self)
        self.records: list[tuple[int, list[bytes]]] = []
        self.start_error: Exception | None = None
        self.queue_error: Exception | None = None
        self.ack_error: Exception | None = None
        self.answers, self.full, self.holds, self.stopped = True, False, False, False
        self.client, self._sender = self, self
        self.sender_task = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error

    async def partitions_for(self, topic: str) -> set[int]:
        return {0, 1, 2}

    async def force_metadata_update(self) -> bool:
        return self.answers

    async def send(self, topic: str, value: bytes, partition: int) -> asyncio.Future[None]:
        if self.full:
            await asyncio.sleep(60)
        return self._take(partition, [value])

    def create_batch(self) -> "FakeBatch":
        return FakeBatch()

    async def send_batch(self, batch: "FakeBatch", topic: str, *, partition: int) -> asyncio.Future[None]:
        return self._take(partition, batch.values)

    def _take(self, partition: int, values: list[bytes]) -> asyncio.Future[None]:
        if self.queue_error is not None:
            raise self.queue_error
        future = asyncio.get_running_loop().create_future()
        if self.ack_error is not None:
            future.set_exception(self.ack_error)
        else:
            self.records.append((partition, values))
            if not self.holds:
                future.set_result(None)
        return future

    async def stop(self) -> None:
        self.stopped = True
        if self.holds:
            await self.sender_task

    async def close(self) -> None:
        pass


class FakeBatch:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, timestamp: None, key: None, value: bytes) -> object:
        self.values.append(value)
        return self


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    """Shortens the log's time limits. Returns the list of producers that the log has made."""
    for name in ("PROBE_S", "CLOSE_S", "ANSWER_S", "QUEUE_S"):
        monkeypatch.setattr(kafka_log, name, 0.02)
    monkeypatch.setattr(FakeProducer, "made", [], raising=False)
    return FakeProducer.made


async def started(make: Callable[[], Any] = FakeProducer) -> KafkaLog:
    log = KafkaLog("reports", make)
    await log.start()
    assert log.ready
    return log


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not become true")


async def test_partitions_take_turns_and_batches_stay_together(producers: list[FakeProducer]) -> None:
    log = await started()
    for values in ([b"a"], [b"b", b"c"], [b"d"]):
        await log.append(values)
    assert sorted(producers[0].records) == sorted(zip((1, 2, 0), ([b"a"], [b"b", b"c"], [b"d"]), strict=True))
    await log.close()
    assert producers[0].stopped
    with pytest.raises(NotAppended):
        await log.append([b"e"])


async def test_an_envelope_that_was_not_queued_is_not_appended(producers: list[FakeProducer]) -> None:
    log = await started()
    producers[0].queue_error = KafkaTimeoutError()
    with pytest.raises(NotAppended):
        await log.append([b"a"])
    producers[0].queue_error, producers[0].full = None, True
    with pytest.raises(NotAppended):
        await log.append([b"a"])
    assert producers[0].records == []
    await log.close()


async def test_a_failed_producer_is_replaced(producers: list[FakeProducer]) -> None:
    log = await started()
    producers[0].ack_error = OutOfOrderSequenceNumber()
    for values in ([b"a"], [b"a", b"b"]):
        with pytest.raises(Unacknowledged):
            await log.append(values)
    await until(lambda: len(producers) == 2 and log.ready)
    await log.append([b"a"])
    assert producers[0].stopped
    assert [values for _, values in producers[1].records] == [[b"a"]]
    await log.close()


async def test_the_log_notices_an_unreachable_broker_and_its_recovery(producers: list[FakeProducer]) -> None:
    failing: list[bool] = []

    def make() -> FakeProducer:
        producer = FakeProducer()
        if failing:
            producer.start_error = KafkaConnectionError()
        return producer

    log = await started(make)
    failing.append(True)
    producers[0].answers = False
    await until(lambda: not log.ready)
    with pytest.raises(NotAppended):
        await log.append([b"a"])
    await until(lambda: len(producers) > 3)
    assert not log.ready
    failing.clear()
    await until(lambda: log.ready)
    await log.append([b"a"])
    await log.close()
    failing.append(True)
    away_at_the_start = KafkaLog("reports", make)
    await away_at_the_start.start()
    assert not away_at_the_start.ready
    failing.clear()
    await until(lambda: away_at_the_start.ready)
    await away_at_the_start.close()


async def test_the_log_is_not_ready_while_an_acknowledgement_is_late(
    producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await started()
    monkeypatch.setattr(kafka_log, "OVERDUE_S", 0.05)
    producers[0].holds = True
    waiting = asyncio.create_task(log.append([b"a"]))
    await until(lambda: not log.ready)
    with pytest.raises(NotAppended):
        await log.append([b"b"])
    (future,) = log._pending
    future.set_result(None)
    await waiting
    assert log.ready
    await log.close()


@pytest.mark.parametrize("ended", ["closed", "given up"])
async def test_a_pending_append_fails_when_its_producer_ends(
    ended: str, producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await started()
    producers[0].holds = True
    waiting = asyncio.create_task(log.append([b"a"]))
    await asyncio.sleep(0.01)
    if ended == "closed":
        await log.close()
    else:
        monkeypatch.setattr(kafka_log, "GIVE_UP_S", 0.05)
    await until(waiting.done)
    with pytest.raises(Unacknowledged):
        await waiting
    assert producers[0].stopped
    await log.close()


# ---- settings


def test_tokens_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    assert read_tokens(Settings()) == []
    path.write_text(f"{TOKEN}\n\n{TOKEN}-2\n")
    assert read_tokens(Settings(gateway_tokens_file=path)) == [TOKEN, f"{TOKEN}-2"]
    for wrong, said in (
        ("", "16 characters"),
        ("short-secret", "16 characters"),
        (TOKEN + "\nsecret", "16"),
        ("ü" * 20, "ASCII"),
    ):
        path.write_text(wrong)
        with pytest.raises(SettingsError, match=f"LDPSTREAM_GATEWAY_TOKENS_FILE.*{said}") as caught:
            read_tokens(Settings(gateway_tokens_file=path))
        assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_tokens(Settings(gateway_tokens_file=tmp_path))


def test_unusable_settings_are_one_clear_error(tmp_path: Path) -> None:
    ca = trustme.CA()
    cert, key, other = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "other.pem"
    issued = ca.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    ca.issue_cert("localhost").private_key_pem.write_to_path(other)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for settings, said in [
            ({"gateway_tls_cert": cert}, "belong together"),
            ({"gateway_tls_cert": cert, "gateway_tls_key": other}, "LDPSTREAM_GATEWAY_TLS_CERT.*cannot be used"),
            ({"gateway_tls_cert": cert, "gateway_tls_key": tmp_path / "none"}, "No such file"),
            ({"gateway_port": port}, f"LDPSTREAM_GATEWAY_PORT: 127.0.0.1:{port}: Address already in use"),
            ({"gateway_port": 0, "metrics_port": port}, "LDPSTREAM_METRICS_PORT"),
            ({"gateway_host": "no.such.host.invalid"}, "LDPSTREAM_GATEWAY_HOST"),
        ]:
            with pytest.raises(SettingsError, match=said):
                serve(SURVEY, TOML, Settings.model_validate({"gateway_tls_cert": None, **settings}), lambda: None)


async def test_operators_see_metrics_and_readiness() -> None:
    rig = Rig()
    for envelope in [*envelopes(3, n=4), *envelopes(1, step=0)]:
        await rig.post(envelope)
    rig.app = operations(rig.intake)
    text = (await rig.ask("GET", "/metrics")).text
    for name in ('requests_total{outcome="accepted"}', 'requests_total{outcome="step too old"}', "reports_total",
                 "envelopes_total", "request_seconds_bucket", "waiting_bytes 0.0", "log_available 1.0",
                 "keys_forgotten_total"):  # fmt: skip
        assert f"ldpstream_gateway_{name}" in text
    assert "192.0.2.1" not in text
    assert ((await rig.ask("GET", "/health")).status_code, (await rig.ask("GET", "/ready")).status_code) == (200, 200)
    rig.intake.stop()
    rig.log.ready = False
    assert ((await rig.ask("GET", "/health")).status_code, (await rig.ask("GET", "/ready")).status_code) == (200, 503)
    assert "ldpstream_gateway_log_available 0.0" in (await rig.ask("GET", "/metrics")).text
