"""A sender behind a relay: nothing goes past the relay, faults lose and double nothing, and two reports cannot be linked.

A small relay between a device and a real gateway records what each side sees, on a clock that the tests advance.
"""

import json
import socket
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ldpstream.device import Attempt, Device, Relay, Sender
from ldpstream.producers.device import relayed
from ldpstream.producers.device.device import Waiting
from ldpstream.producers.gateway.oblivious import PATH
from ldpstream.producers.relay.capsules import KeyConfig, encode_configs, public_key
from ldpstream.producers.relay.relay_keys import RelayKey, RelayKeys
from ldpstream.surveys import Survey, SurveyError, load_survey
from tests.small_survey import small_survey

from .gateway_rig import MakeServed, Served
from .samples import level

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = RelayKeys([RelayKey(7, CREATED, bytes(range(32)))])
CONFIGS = encode_configs([KeyConfig(7, public_key(KEYS.private[7]))])
STEP_S = 3600
FIRST = 40  # the first step of the tests


def behind_relay(attributes: int = 3, **keys: Any) -> Survey:
    asked = [{"name": f"a{i}", "size": 4 + 60 * i, "level": [level("OUE" if i else "GRR")]} for i in range(attributes)]
    head = {"step_seconds": STEP_S, "lateness_steps": 1, "collection": "spl", "relay": "required"}
    return small_survey(*asked, **(head | keys))


@dataclass
class Clock:
    """The device's and the gateway's wall clock. A pause ends at once, and advances the clock."""

    now_ms: int
    pauses: int = 0

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.now_ms += int(1000 * seconds) + 1


@dataclass
class Passed:
    """A request, as the relay received it from a device."""

    at_ms: int
    connection: tuple[str, int]
    headers: dict[str, str]
    body: bytes


@dataclass
class SmallRelay:
    """Passes requests on to a gateway, without what tells devices apart.

    Attributes:
        url: of this relay.
        passed: all requests.
        answer: called with the gateway's answer (status, type, body), and returns the answer to the device; may raise.
        before: called with each body before it is passed on; returns the bodies to pass on.
    """

    gateway: tuple[str, int]
    clock: Clock
    url: str = ""
    passed: list[Passed] = field(default_factory=list)
    answer: Callable[[int, str, bytes], tuple[int, str, bytes]] = lambda *answer: answer
    before: Callable[[bytes], list[bytes]] = lambda body: [body]

    def forward(self, body: bytes) -> tuple[int, str, bytes]:
        with closing(HTTPConnection(*self.gateway, timeout=10)) as connection:
            connection.request("POST", PATH, body, {"Content-Type": "message/ohttp-req"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type") or "", answer.read()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(behind_relay().opens_ms(FIRST) + 1_700_000)
    monkeypatch.setattr(relayed, "now_ms", lambda: clock.now_ms)
    return clock


@pytest.fixture
def gateway(served: MakeServed, clock: Clock) -> Served:
    one = served(survey=behind_relay(), now_ms=lambda: clock.now_ms)
    one.rig.intake.relay_keys = KEYS
    return one


@pytest.fixture
def relay(gateway: Served, clock: Clock) -> Iterator[SmallRelay]:
    small = SmallRelay(("127.0.0.1", gateway.port), clock)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            small.passed.append(Passed(clock.now_ms, self.client_address, dict(self.headers), body))
            answers = [small.forward(passed) for passed in small.before(body)]
            status, kind, content = small.answer(*(answers[-1] if answers else (502, "text/plain", b"")))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    small.url = f"http://127.0.0.1:{server.server_port}/gateway"
    yield small
    server.shutdown()
    thread.join()
    server.server_close()


def reporting(folder: Path, step: int = FIRST, name: str = "one", survey: Survey | None = None) -> Device:
    device = Device(survey or behind_relay(), folder / f"{name}.device")
    for attribute in device.survey.attributes:
        device.report(attribute.name, 1, step)
    return device


def sender(device: Device, gateway: Served, relay: SmallRelay, token: str | None = None) -> Sender:
    return Sender(device, gateway.url, token, Relay(relay.url, CONFIGS))


def test_every_report_of_a_device_arrives_once_and_alone(
    tmp_path: Path, gateway: Served, relay: SmallRelay, clock: Clock
) -> None:
    device = reporting(tmp_path)
    sent = sorted(report.envelope for report in device.waiting())
    sender(device, gateway, relay).run(clock.pause)
    assert device.waiting() == []
    assert sorted(envelope for envelopes in gateway.rig.log.appended for envelope in envelopes) == sent
    assert [len(envelopes) for envelopes in gateway.rig.log.appended] == [1, 1, 1]


def test_a_plain_request_is_refused_with_the_reason(tmp_path: Path, gateway: Served) -> None:
    device = reporting(tmp_path)
    with pytest.raises(ValueError, match="small takes reports through a relay only: give `relay`"):
        Sender(device, gateway.url)
    for whole in (True, False):  # the direct path of the gateway, and that of a body in pieces
        with closing(HTTPConnection("127.0.0.1", gateway.port, timeout=10)) as connection:
            report = device.waiting()[0]
            headers = {"Content-Type": "application/vnd.ldpstream.envelope", "Idempotency-Key": report.key}
            body = report.envelope if whole else iter([report.envelope[:9], report.envelope[9:]])
            connection.request("POST", "/v1/reports", body, headers, encode_chunked=not whole)
            answer = connection.getresponse()
            assert (answer.status, b'"relay required"' in answer.read()) == (403, True)
    assert gateway.rig.log.appended == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((502, "text/plain", b"no"), "the relay answered 502"),
        ((422, "application/problem+json", b"{}"), "the relay answered 422"),  # not the gateway's 422, which would be encrypted
        ((202, "application/json", b'{"accepted":1}'), "the relay answered 202"),
        ((200, "message/ohttp-res", b"x" * 90), "an answer that is not the gateway's"),
        ((307, "text/plain", b""), "the relay answered 307"),
    ],
)
def test_a_relay_that_answers_itself_settles_nothing(
    answer: tuple[int, str, bytes], reason: str, tmp_path: Path, gateway: Served, relay: SmallRelay, clock: Clock
) -> None:
    device = reporting(tmp_path)
    relay.answer, relay.before = lambda *_: answer, lambda _: []
    one = sender(device, gateway, relay)
    clock.now_ms = device.survey.opens_ms(FIRST + 2) - STEP_S * 100
    assert one.attempt()._replace(retry_after_s=0) == Attempt(0, 0, 3, 0, (0,), (reason,))
    assert len(relay.passed) == 1
    assert gateway.rig.log.appended == []
    relay.answer, relay.before = lambda *told: told, lambda body: [body]
    one.run(clock.pause)
    assert sum(map(len, gateway.rig.log.appended)) == 3


def test_a_relay_that_is_away_is_never_bypassed(tmp_path: Path, gateway: Served, clock: Clock) -> None:
    device = reporting(tmp_path)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        away = f"http://127.0.0.1:{listening.getsockname()[1]}"
    clock.now_ms = device.survey.opens_ms(FIRST + 2) - STEP_S * 100
    one = Sender(device, gateway.url, None, Relay(away, CONFIGS))
    outcome = one.attempt()
    assert (outcome.waiting, outcome.no_answer) == (3, ("connection refused",))
    assert outcome.retry_after_s > 0
    assert gateway.rig.log.appended == []


def test_a_relay_that_repeats_delays_and_drops_doubles_and_loses_nothing(
    tmp_path: Path, gateway: Served, relay: SmallRelay, clock: Clock
) -> None:
    rng, old = np.random.default_rng(5), list[bytes]()

    def before(body: bytes) -> list[bytes]:
        old.append(body)
        return [*(old[i] for i in rng.integers(0, len(old), 2)), body] if rng.random() < 0.5 else []

    relay.before = before
    devices = [reporting(tmp_path, name=str(i)) for i in range(5)]
    sent = sorted(report.envelope for device in devices for report in device.waiting())
    for device in devices:
        begun, one = clock.now_ms, sender(device, gateway, relay)
        one.run(clock.pause)
        clock.now_ms = begun
    counted = gateway.rig.log.counted()
    assert len(gateway.rig.log.appended) > len(counted)  # the relay did repeat
    assert sorted(envelope for envelopes in counted for envelope in envelopes) == sent


def test_a_rotated_key_loses_no_report(tmp_path: Path, gateway: Served, relay: SmallRelay, clock: Clock) -> None:
    device = reporting(tmp_path)
    fresh = RelayKeys([RelayKey(8, CREATED, bytes(range(1, 33)))])
    gateway.rig.intake.relay_keys = fresh
    clock.now_ms = device.survey.opens_ms(FIRST + 2) - STEP_S * 100
    assert sender(device, gateway, relay).attempt().no_answer == ("the gateway has other relay keys",)
    renewed = Relay(relay.url, encode_configs([KeyConfig(8, public_key(fresh.private[8]))]))
    Sender(device, gateway.url, None, renewed).run(clock.pause)
    assert sum(map(len, gateway.rig.log.appended)) == 3


# ---- what the relay and the gateway can link


@dataclass(frozen=True)
class Link:
    """What an observer of both sides of the relay compares between two requests."""

    size: int
    headers: tuple[tuple[str, str], ...]
    connection: tuple[str, int]
    key: bytes


def links(passed: list[Passed]) -> list[Link]:
    return [Link(len(p.body), tuple(sorted(p.headers.items())), p.connection, p.body[7:39]) for p in passed]


def linked(requests: list[Link]) -> set[str]:
    """The kinds of features that differ between requests, or that two requests share and no others need to share."""
    found = set[str]()
    if len({request.size for request in requests}) > 1:
        found.add("size")
    if len({request.headers for request in requests}) > 1:
        found.add("headers")
    if len({request.connection for request in requests}) < len(requests):
        found.add("connection")
    if len({request.key for request in requests}) < len(requests):
        found.add("key")
    return found


def test_no_request_has_a_mark(tmp_path: Path, gateway: Served, relay: SmallRelay, clock: Clock) -> None:
    """Reports of one byte and of 16, of two devices and three attributes, all leave in requests that look the same."""
    for name in ("one", "two"):
        begun = clock.now_ms
        sender(reporting(tmp_path, name=name), gateway, relay).run(clock.pause)
        clock.now_ms = begun
    requests = links(relay.passed)
    assert len(requests) == 6
    assert linked(requests) == set()
    one = requests[0]
    control = [one, Link(one.size + 16, one.headers, ("127.0.0.1", 1), b"a" * 32)]
    assert linked(control) == {"size"}  # as without the padding
    assert linked([one, Link(one.size, (*one.headers, ("X-Device", "7")), one.connection, one.key)]) == {
        "headers", "connection", "key"
    }  # fmt: skip


def moments(devices: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Shares of the window at which the reports of devices leave: one row a device, one column an attribute."""
    survey, rng = behind_relay(), np.random.default_rng(seed)
    begin, end = survey.opens_ms(FIRST + 1), survey.closes_ms(FIRST) - 360_000
    schedule = relayed.Moments(survey)

    def moment() -> float:
        key = urlsafe_b64encode(rng.bytes(16)).rstrip(b"=").decode()
        return (schedule._of(Waiting("a0", FIRST, b"", key)) - begin) / (end - begin)

    return np.array([[moment() for _ in range(3)] for _ in range(devices)])


def test_the_moments_of_a_device_are_uniform_and_independent() -> None:
    """Kolmogorov-Smirnov and rank tests of 2000 devices. Each fails for one seed in 10 000."""
    found = moments(2000, 32)
    assert found.min() >= 0
    assert found.max() < 1
    assert stats.kstest(found.ravel(), "uniform").pvalue > 1e-4
    apart = np.abs(found[:, 0] - found[:, 1])
    assert stats.kstest(apart, lambda x: 1 - (1 - x) ** 2).pvalue > 1e-4  # of two independent uniform moments
    assert stats.spearmanr(found[:, 0], found[:, 2]).pvalue > 1e-4
    burst = np.abs(found[:, 0] - found[:, 0])  # the control: a device that sends all its reports at once
    assert stats.kstest(burst, lambda x: 1 - (1 - x) ** 2).pvalue < 1e-4


def test_a_device_that_was_asleep_does_not_send_all_at_once(
    tmp_path: Path, gateway: Served, relay: SmallRelay, clock: Clock
) -> None:
    device = reporting(tmp_path)
    clock.now_ms = device.survey.closes_ms(FIRST) - STEP_S * 300  # all moments have passed
    one = sender(device, gateway, relay)
    outcome = one.attempt()
    assert (outcome.accepted, outcome.waiting, len(relay.passed)) == (1, 2, 1)
    assert outcome.retry_after_s > 0
    assert one.attempt().waiting == 2  # the others wait for new moments
    assert len(relay.passed) == 1
    one.run(clock.pause)
    assert sum(map(len, gateway.rig.log.appended)) == 3
    assert len({p.at_ms for p in relay.passed}) == 3


def test_a_device_that_knows_no_relay_refuses_the_survey_by_its_format() -> None:
    text = json.loads(behind_relay().canonical)
    assert (text["format"], text["relay"]) == (4, "required")
    plain = json.loads(behind_relay(relay=None).canonical)
    assert plain["format"] == 3
    assert {key for key in text if text[key] != plain.get(key)} == {"format", "relay"}


def test_a_restart_keeps_the_moments(tmp_path: Path, clock: Clock) -> None:
    device = reporting(tmp_path)
    first, again = relayed.Moments(device.survey), relayed.Moments(device.survey)
    assert [first._of(report) for report in device.waiting()] == [again._of(report) for report in device.waiting()]


def test_bad_input_gets_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a relay's URL must be .* got 'relay.example'"):
        Relay("relay.example", CONFIGS)
    for keys, told in ((b"", "must hold a key configuration"), (CONFIGS[:-1], "ends too early")):
        with pytest.raises(ValueError, match=told):
            Relay("https://relay.example", keys)
    late = small_survey({"name": "zone", "size": 10, "level": [level("GRR")]})
    with pytest.raises(ValueError, match="small has lateness_steps = 0: reports through a relay would come too late"):
        Sender(Device(late, tmp_path / "late.device"), "https://gateway.example", None, Relay("https://relay.example", CONFIGS))
    with pytest.raises(ValueError, match="lateness_steps must be at least 1 with relay, got 0"):
        behind_relay(lateness_steps=0)
    sample = Path("surveys/samples/changing.toml").read_text()
    (tmp_path / "wrong.toml").write_text(sample.replace("[[", 'relay = "maybe"\n[[', 1))
    with pytest.raises(SurveyError, match="relay"):
        load_survey(tmp_path / "wrong.toml")
