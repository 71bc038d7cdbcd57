"""Tests the gateway on a real socket, and its settings."""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import trustme
from prometheus_client import REGISTRY, generate_latest

from ldpstream.gateway.credentials import check_certificate, read_tokens
from ldpstream.gateway.gateway_process import serve
from ldpstream.gateway.http import protocol
from ldpstream.runtime import web
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.surveys.life.watch import SurveyWatch
from tests.services.rig import PATIENCE_S, wait_until

from .gateway_rig import TOKEN, MakeServed, Rig, envelopes

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml"

# ---- on a socket


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
    patient_s = web.HEAD_S
    monkeypatch.setattr(web, "HEAD_S", 0.1)
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
        assert short.startswith((b"HTTP/1.1 422" if b"x" in begun else b"HTTP/1.1 400") if authorization else b"HTTP/1.1 401")
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

    monkeypatch.setattr(web, "HEAD_S", 1.0)
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
    monkeypatch.setattr(protocol, "HEAD_BYTES", 400)
    one = b"GET /health HTTP/1.1\r\nhost: x\r\n"
    last = answer_to(served().port, [one + b"\r\n"] * 50 + [one + b"connection: close\r\n\r\n"])
    assert last.count(b"HTTP/1.1 200") == 51


def accepts(port: int, limit: int) -> bool:
    """True if exactly `limit` of nine simultaneous connections get an answer."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)) for _ in range(9)]
        answers = 0
        for connection in held:
            with suppress(ConnectionError):
                connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
                answers += connection.recv(65536).startswith(b"HTTP/1.1 200")
        return answers == limit


@pytest.mark.parametrize(("limits", "limit"), [({}, 9), ({"connections": 4}, 4), ({"most": 4}, 4)])
def test_neither_one_address_nor_all_can_hold_more_connections(served: MakeServed, limits: dict[str, int], limit: int) -> None:
    """Control: without a limit, all connections are accepted. When one connection closes, another is accepted."""
    full = partial(accepts, served(**limits).port, limit)
    assert full()
    for _ in range(3):  # the server may learn a little later that the connections have closed
        wait_until(full, lambda: "the connections of before still count")


# ---- settings


def test_tokens_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    assert read_tokens(Settings()) == ([], [])
    path.write_text(f"{TOKEN}\n\ncollector {TOKEN}-2\n")
    assert read_tokens(Settings(gateway_tokens_file=path)) == ([TOKEN], [f"{TOKEN}-2"])
    for wrong, said in (
        ("", "16 characters"),
        ("short-secret", "16 characters"),
        (TOKEN + "\nsecret", "16"),
        ("ü" * 20, "ASCII"),
        (f"secret {TOKEN}", "for a collector after the word 'collector'"),
        ("collector", "16 characters"),
    ):
        path.write_text(wrong)
        with pytest.raises(SettingsError, match=f"LDPSTREAM_GATEWAY_TOKENS_FILE.*{said}") as caught:
            read_tokens(Settings(gateway_tokens_file=path))
        assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_tokens(Settings(gateway_tokens_file=tmp_path))


def test_unusable_settings_are_one_clear_error(tmp_path: Path) -> None:
    ca, watch = trustme.CA(), SurveyWatch([SAMPLE])
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
                serve(watch, Settings.model_validate({"metrics_port": 0, **settings}), lambda survey: None, Mock())


def test_the_end_of_the_certificate_is_exported(tmp_path: Path) -> None:
    """The file has the gateway's certificate first, and may have its authority after it."""
    ends, path, ca = datetime(2031, 2, 3, tzinfo=UTC), tmp_path / "both.pem", trustme.CA()
    ca.issue_cert("localhost", not_after=ends).private_key_and_cert_chain_pem.write_to_path(path)
    ca.cert_pem.write_to_path(path, append=True)
    check_certificate(Settings(gateway_tls_cert=path, gateway_tls_key=path))
    assert REGISTRY.get_sample_value("ldpstream_gateway_certificate_ends_timestamp_seconds") == ends.timestamp()


def test_a_survey_that_requires_a_relay_needs_relay_keys_at_the_start(tmp_path: Path) -> None:
    text = SAMPLE.read_text().replace("lateness_steps = 1", 'lateness_steps = 2\nrelay = "required"')
    (tmp_path / "survey.toml").write_text(text)
    with pytest.raises(
        SettingsError, match=r"LDPSTREAM_GATEWAY_RELAY_KEYS_FILE must be set: survey .* `ldpstream relay-key FILE`"
    ):
        serve(SurveyWatch([tmp_path / "survey.toml"]), Settings(), lambda survey: None, Mock())


async def test_operators_see_metrics_and_readiness() -> None:
    rig = Rig()
    for envelope in [*envelopes(3, n=4), *envelopes(1, step=0)]:
        await rig.post(envelope)
    text = generate_latest().decode()
    for name in ('requests_total{outcome="accepted"}', 'requests_total{outcome="step too old"}', "reports_total",
                 "request_seconds_bucket", "waiting_bytes 0.0",
                 'survey_ready{survey="sample"} 1.0'):  # fmt: skip
        assert f"ldpstream_gateway_{name}" in text
    assert "192.0.2.1" not in text
    assert rig.intake.unready() is None
    rig.intake.stop()
    rig.log.ready = False
    assert rig.intake.unready() is not None
