"""The sender of a device: outcomes of an attempt, waits between attempts, and requests that must not be made."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest

from ldpstream.device import Attempt, Device, Sender, routes
from ldpstream.device.reports import Waiting
from ldpstream.device.routes import DAY_S, retry_after_s
from ldpstream.gateway.http.problems import FINAL, STATUS
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import Survey
from tests.gateway.gateway_rig import Served
from tests.producers.samples import level
from tests.services.certificates import Authority
from tests.small_survey import small_survey

TOKEN = "token-of-the-gateway"


@pytest.fixture
def survey() -> Survey:
    """Steps of a day, from yesterday on: no report is late even if a test runs over midnight."""
    yesterday = datetime.fromtimestamp(time.time() - 86_400, UTC).replace(microsecond=0)
    asked = {"name": "zone", "size": 10, "level": [level("GRR")]}
    return small_survey(asked, name="sample", start=yesterday, step_seconds=86_400, lateness_steps=2)


def device_with_reports(survey: Survey, folder: Path, *ahead: int) -> Device:
    device, step = Device(survey, folder / "one.device", consent="simulated"), survey.step_at(now_ms())
    for steps in ahead:
        device.report(survey.attributes[0].name, 1, step + steps)
    return device


@contextmanager
def answering(
    status: int, *headers: dict[str, str], body: bytes = b"", context: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A server that answers with this status, and with these headers in turn. Yields its URL and the paths of all requests."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in headers[(len(asked) - 1) % len(headers)].items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_an_attempt_settles_what_the_gateway_took_or_refused_for_good(survey: Survey, tmp_path: Path) -> None:
    device = device_with_reports(survey, tmp_path, 0, 9)
    with closing(Served(survey=survey, tokens=[TOKEN], now_ms=now_ms)) as served:
        assert Sender(device, served.url, "another-token").attempt()[:3] == (0, 0, 2)
        assert Sender(device, served.url + "/", TOKEN).attempt() == Attempt(1, 0, 1, DAY_S, (409,))
        assert Sender(device, served.url, TOKEN).attempt() == Attempt(0, 0, 1, DAY_S, (409,))
        assert len(served.rig.log.counted()) == 1
        waiting = device.waiting()
        device.waiting = lambda: [replace(report, envelope=b"?") for report in waiting]  # type: ignore[method-assign]  # damaged
        assert Sender(device, served.url, TOKEN).attempt() == Attempt(0, 1, 0, 0, (422,))


def test_reports_go_in_random_order(survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, posted = device_with_reports(survey, tmp_path, *range(25)), list[str]()

    def post(_: routes.Direct, report: Waiting) -> routes.Answer:
        posted.append(report.key)
        return routes.Answer(0)

    monkeypatch.setattr(routes.Direct, "post", post)
    for _ in range(2):
        Sender(device, "http://127.0.0.1:9").attempt()
    orders = {tuple(report.key for report in device.waiting()), tuple(posted[:25]), tuple(posted[25:])}
    assert len(orders) == 3  # two equal ones: probability 2e-25
    assert len({frozenset(order) for order in orders}) == 1


@pytest.mark.parametrize("status", sorted({*STATUS.values(), 200, 301, 302, 307, 403, 411, 413, 417, 421, 426, 431, 502}))
def test_a_report_waits_until_its_outcome_is_known(status: int, survey: Survey, tmp_path: Path) -> None:
    """A redirect is not followed: the report would go to a server that the application did not name."""
    device = device_with_reports(survey, tmp_path, 0)
    told = {"Location": "/elsewhere", "Retry-After": "7"}
    with answering(status, told, body=b'{"type": "urn:ldpstream:problem:x"}') as (url, asked):
        outcome = Sender(device, f"{url}/gate").attempt()
    assert asked == ["/gate/v1/reports"]
    assert outcome.refused == (status == FINAL)
    assert len(device.waiting()) == outcome.waiting == (status != FINAL)
    assert outcome.retry_after_s == (7 if status >= 300 and status != FINAL else 0)
    assert outcome.statuses == (status,)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"status": 422, "title": "step too old"}', b'{"accepted": "1"}'])
@pytest.mark.parametrize("status", [202, 422])
def test_a_final_status_without_the_gateways_body_settles_nothing(
    status: int, body: bytes, survey: Survey, tmp_path: Path
) -> None:
    device = device_with_reports(survey, tmp_path, 0)
    with answering(status, {}, body=body) as (url, asked):
        assert Sender(device, url).attempt() == Attempt(0, 0, 1, 0, (status,), (routes.NOT_OWN,))
    assert (len(device.waiting()), len(asked)) == (1, 1)


def test_a_silent_network_holds_an_attempt_for_one_wait(
    survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt passes on `wait_s`, and ends after the first report without an answer."""
    waits = list[float]()

    def silent(*_: object, timeout: float) -> None:
        waits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(routes._opener(), "open", silent)
    device = device_with_reports(survey, tmp_path, 0, 1, 2)
    assert Sender(device, "http://127.0.0.1:9", wait_s=0.5).attempt() == Attempt(0, 0, 3, 0, (0,), ("timeout",))
    assert waits == [0.5]
    with pytest.raises(ValueError, match="wait_s must be a number in"):
        Sender(device, "http://127.0.0.1:9", wait_s=0.0)


def test_a_report_that_must_wait_long_delays_no_other(survey: Survey, tmp_path: Path) -> None:
    device = device_with_reports(survey, tmp_path, 0, 1)
    with answering(503, {"Retry-After": "7"}, {"Retry-After": "80000"}) as (url, _):
        assert Sender(device, url).attempt() == Attempt(0, 0, 2, 7, (503,))


def test_the_outcome_says_that_a_certificate_was_refused(survey: Survey, tmp_path: Path) -> None:
    device, identity = device_with_reports(survey, tmp_path, 0), Authority(tmp_path).issue("127.0.0.1", common_name="gateway")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert, identity.key)
    with answering(202, {}, context=context) as (url, asked):
        outcome = Sender(device, url.replace("http:", "https:")).attempt()
    assert (outcome.statuses, outcome.waiting, asked) == ((0,), 1, [])
    assert outcome.no_answer == ("certificate refused: unable to get local issuer certificate",)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (URLError(socket.gaierror(-2, "Name or service not known")), "name or service not known"),
        (URLError(TimeoutError("timed out")), "timeout"),
        (TimeoutError("timed out"), "timeout"),
        (http.client.RemoteDisconnected("ended"), "connection closed"),
        (URLError(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")), "TLS failed"),
        (URLError(OSError(101, "Network is unreachable")), "network is unreachable"),
        (http.client.BadStatusLine("secret"), "an answer that is not HTTP"),
        (URLError(ConnectionRefusedError(111, "Connection refused")), "connection refused"),
    ],
)
def test_the_outcome_says_why_there_was_no_answer(
    error: Exception, reason: str, survey: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: Request, timeout: float) -> None:
        raise error

    monkeypatch.setattr(routes._opener(), "open", fail)
    device = device_with_reports(survey, tmp_path, 0, 1)
    assert Sender(device, "http://127.0.0.1:9/secret").attempt() == Attempt(0, 0, 2, 0, (0,), (reason,))


@pytest.mark.parametrize(
    ("told", "wait_s"),
    [
        ("7", 7), ("86401", 86_400), ("9" * 5000, 86_400), ("-1", 0), ("soon", 0), ("٣", 0), ("1e3", 0),
        ("Tue, 24 Nov 2026 10:01:30 GMT", 90), ("Tue, 24 Nov 2026 09:59:00 GMT", 0), ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ("Tuesday, 24-Nov-26 10:00:05 GMT", 5), ("Tue, 24 Nov 99999 10:00:00 GMT", 0), ("Tue, 24 Nov 2026", 0),
    ],
)  # fmt: skip
def test_a_wait_is_a_number_of_seconds_or_a_time_up_to_a_day(told: str, wait_s: float) -> None:
    """A time is compared with the answer's `Date`, because the device's clock may be wrong."""
    assert retry_after_s(told, "Tue, 24 Nov 2026 10:00:00 GMT") == wait_s


def test_pauses_grow_and_differ(survey: Survey, tmp_path: Path) -> None:
    device, pauses = device_with_reports(survey, tmp_path, 0), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 40:
            raise InterruptedError

    with answering(503, {"Retry-After": "7"}) as (url, _), pytest.raises(InterruptedError):
        Sender(device, url).run(pause)
    assert len(device.waiting()) == 1
    for attempt, seconds in enumerate(pauses):
        assert 7 <= seconds <= 7 + min(300, 2**attempt)
    assert len(set(pauses)) == 40
    assert max(pauses[9:]) > 107  # false alarm: below 1e-14


@pytest.mark.parametrize(
    "url",
    [
        "gateway.example", "ftp://gateway.example", "http://", "https://a.example/?x=1", "file:///tmp/x", "http://me:secret@a",
        "http://me:secret@a\u2100", "http://[::1", "http://a:port", "http://a:65536",
        "http://a..b", "http://a/\u00e9", "http://a/b c", "http://a b", "http://b\u00fccher.example",
    ],
)  # fmt: skip
def test_a_malformed_url_is_refused(url: str, survey: Survey, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a gateway's URL must be http\[s\]://host\[:port\]\[/path\] .*, got") as caught:
        Sender(Device(survey, tmp_path / "one.device", consent="simulated"), url)
    assert "secret" not in str(caught.value)
