"""The gateway as a process, with a real Kafka. The log holds each acknowledged envelope exactly once, also after outages."""

import http.client
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import trustme

from ldpstream.gateway.http.bodies import BATCH, ENVELOPE
from ldpstream.gateway.intake import OVERHEAD_BYTES
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.process import TOLD_TO_END
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import Survey, open_envelope, parse_survey, seal
from ldpstream.surveys.report_key import HEADER
from tests.small_survey import small_text

from .rig import ENDED_S, PATIENCE_S, KafkaNode, free_ports, get, read_records, start_command, wait_until

ROOT = Path(__file__).parents[2]
TOKEN = "token-of-the-service-tests"
FORWARDED = "203.0.113.77"  # a device's address, as a proxy forwards it
HEALTH_CHECK = ("the log does not answer", "the log answers again", "the topic is too new")  # depend on the broker's speed
ONLY = {"name": "only", "mechanism": "L-OSUE", "eps_inf": 4.0, "eps_1": 2.0}
ZONE = {"name": "zone", "size": 500, "level": [ONLY]}


class Process:
    """A gateway process, started from the command line.

    Args:
        bootstrap: the broker's `host:port`.
        folder: folder for the survey, the tokens and the log.
        settings: further settings, without the prefix `LDPSTREAM_`.
    """

    def __init__(self, bootstrap: str, folder: Path, **settings: str) -> None:
        self.file, source, tokens = folder / "now.toml", folder / "source.toml", folder / "tokens"
        source.write_text(small_text(ZONE, name=f"gate-{secrets.token_hex(6)}", lateness_steps=1))
        tokens.write_text(f"another-token-of-the-tests\ncollector {TOKEN}\n")
        self.survey = rehearse(source, self.file, 3600, now_s=time.time() - 60)
        self.port, self.metrics_port = free_ports(2)
        self.log = folder / "gateway.log"
        self.env = {
            **os.environ, "PYTHONPATH": str(ROOT), "LDPSTREAM_KAFKA": bootstrap, "LDPSTREAM_GATEWAY_PORT": str(self.port),
            "LDPSTREAM_METRICS_PORT": str(self.metrics_port), "LDPSTREAM_GATEWAY_TOKENS_FILE": str(tokens),
            "LDPSTREAM_GATEWAY_RATE": "1000000", "LDPSTREAM_GATEWAY_PROXIES": "127.0.0.1", "LDPSTREAM_PARTITIONS": "3",
            **{f"LDPSTREAM_{name}": value for name, value in settings.items()},
        }  # fmt: skip
        self.start()

    def start(self) -> None:
        self.process = start_command(self.log, self.env, "gateway", self.file)

    def status(self, path: str, port: int | None = None) -> int:
        """HTTP status of a GET."""
        return get(f"http://127.0.0.1:{port or self.port}{path}")[0]

    def until(self, path: str, status: int, port: int | None = None) -> None:
        wait_until(lambda: self.status(path, port) == status, self.log.read_text)

    def waiting_bytes(self) -> float:
        """Bytes of requests that the gateway has read and not yet answered, with `OVERHEAD_BYTES` for each request."""
        lines = get(f"http://127.0.0.1:{self.metrics_port}/metrics")[1].splitlines()
        (value,) = (line.split()[1] for line in lines if line.startswith("ldpstream_gateway_waiting_bytes "))
        return float(value)

    def finish(self) -> None:
        """Sends SIGTERM. The gateway must end with status 0 within `ENDED_S`."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(ENDED_S) == 0, self.log.read_text()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Process] = []

    def begin(bootstrap: str, **settings: str) -> Process:
        made.append(Process(bootstrap, tmp_path, **settings))
        made[-1].until("/ready", 200, made[-1].metrics_port)
        return made[-1]

    yield begin
    for process in made:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait()


def unlike_envelopes(survey: Survey, count: int, seed: int) -> list[bytes]:
    """Distinct envelopes of four reports of 500 bits each. Two envelopes are equal with probability below 2^-400."""
    mechanism, rng = survey.mechanisms[0][0], np.random.default_rng(seed)
    reports = mechanism.simulate(rng.integers(0, mechanism.k, 4 * count), rng)
    return [seal(survey, 0, 0, 0, reports[4 * index : 4 * index + 4]) for index in range(count)]


class Client(threading.Thread):
    """Posts envelopes one by one or in batches, and records the outcomes.

    Args:
        port: the gateway's port.
        parts: the parts to post; a part with more than one envelope is a batch.
        insist: True to retry with the same key until the gateway accepts.
    """

    def __init__(self, port: int, parts: list[list[bytes]], insist: bool) -> None:
        super().__init__()
        self.port, self.parts, self.insist = port, parts, insist
        self.told: list[tuple[list[bytes], str]] = []  # request's envelopes; "accepted", a problem's title or "no answer"
        self.start()

    def run(self) -> None:
        for part in self.parts:
            key, outcome = secrets.token_urlsafe(16), ""
            while outcome != "accepted":
                outcome = post(self.port, part, key)
                self.told.append((part, outcome))
                if outcome == "log unavailable" or (self.insist and outcome != "accepted"):
                    time.sleep(0.2)
                if not self.insist:
                    break

    def outcomes(self) -> Counter[str]:
        return Counter(outcome for _, outcome in self.told)


def post(port: int, part: list[bytes], key: str | None = None, token: str = TOKEN, reports: int | None = None) -> str:
    """Posts envelopes once and returns the outcome.

    Args:
        port: the gateway's port.
        part: the envelopes; more than one envelope is a batch.
        key: the idempotency key, or None.
        token: the bearer token.
        reports: number of reports in the part; None means four in each envelope.
    """
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": FORWARDED}
    headers["Content-Type"] = ENVELOPE if len(part) == 1 else BATCH
    if key is not None:
        headers["Idempotency-Key"] = key
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/v1/reports", part[0] if len(part) == 1 else msgspec.msgpack.encode(part), headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        if answer.status == 202:
            assert said == {"accepted": 4 * len(part) if reports is None else reports}
            return "accepted"
        return str(said["title"])
    except (OSError, http.client.HTTPException):
        return "no answer"
    finally:
        connection.close()


def insist(gateway: Process, part: list[bytes], reports: int | None = None) -> None:
    """Posts envelopes with one idempotency key until the gateway accepts them.

    A retry may be needed: a busy broker may answer later than the gateway waits.
    """
    key = secrets.token_urlsafe(16)
    wait_until(lambda: post(gateway.port, part, key, reports=reports) == "accepted", gateway.log.read_text)


def in_log(bootstrap: str, survey: Survey) -> Counter[bytes]:
    """Returns the envelopes in the log as agents count them: envelopes with the same report key once, and no markers."""
    places, counted = dict[bytes, int](), Counter[bytes]()
    for record in read_records(bootstrap, survey.reports_topic):
        key = dict(record.headers).get(HEADER)
        counted[record.value] += bool(record.value) and key not in places
        if key is not None:
            assert places.setdefault(key, record.partition) == record.partition, "one report key in two partitions"
    return +counted


def parts_of(envelopes: list[bytes], sizes: list[int]) -> list[list[bytes]]:
    """Splits the envelopes into parts; the given sizes repeat in order."""
    parts: list[list[bytes]] = []
    while envelopes:
        size = sizes[len(parts) % len(sizes)]
        parts.append(envelopes[:size])
        envelopes = envelopes[size:]
    return parts


def test_a_gateway_stopped_under_load_loses_and_doubles_nothing(kafka: str, start: Start) -> None:
    gateway = start(kafka)
    envelopes = unlike_envelopes(gateway.survey, 40_000, seed=1)
    clients = [Client(gateway.port, parts_of(envelopes[i::8], [1, 1, 1, 40]), insist=False) for i in range(8)]
    wait_until(lambda: sum((client.outcomes() for client in clients), Counter[str]())["accepted"] > 100, gateway.log.read_text)
    assert post(gateway.port, envelopes[:1], token="a-wrong-token-of-16") == "unauthorized"
    gateway.finish()
    for client in clients:
        client.join()
    outcomes = sum((client.outcomes() for client in clients), Counter[str]())
    assert outcomes["accepted"] > 100
    # on a busy machine the broker may answer too late for the gateway's health check: then the log is unavailable
    assert set(outcomes) <= {"accepted", "stopping", "outcome unknown", "no answer", "log unavailable"}
    found = in_log(kafka, gateway.survey)
    assert set(found.values()) == {1}
    told = {envelope: outcome for client in clients for part, outcome in client.told for envelope in part}
    accepted = {envelope for envelope, outcome in told.items() if outcome == "accepted"}
    assert accepted <= set(found)
    assert all(told[envelope] in ("accepted", "outcome unknown", "no answer") for envelope in found)
    for client in clients:
        for part, _ in client.told:  # the log holds either the whole batch or no part of the batch
            assert len({envelope in found for envelope in part}) == 1
    log = gateway.log.read_text()
    told_by_us = [line["event"] for line in map(json.loads, log.splitlines()) if line["logger"] == "ldpstream.gateway"]
    assert [event for event in told_by_us if event not in HEALTH_CHECK] == ["serving", TOLD_TO_END, "ended"]
    assert FORWARDED not in log
    assert TOKEN not in log


def test_a_broker_outage_loses_and_doubles_nothing(kafka_node: KafkaNode, start: Start) -> None:
    gateway = start(kafka_node.bootstrap)
    envelopes = unlike_envelopes(gateway.survey, 12_000, seed=2)
    parts = parts_of(envelopes, [1, 1, 1, 1, 20])
    clients = [Client(gateway.port, parts[5:][i::6], insist=True) for i in range(6)]
    wait_until(lambda: sum(len(client.told) for client in clients) >= len(parts) // 10, gateway.log.read_text)
    kafka_node.kill()
    gateway.until("/ready", 503)
    clients.append(Client(gateway.port, parts[:5], insist=True))  # the others may have ended before the outage
    wait_until(lambda: clients[-1].told, gateway.log.read_text)
    assert gateway.status("/health") == gateway.status("/health", gateway.metrics_port) == 200
    assert gateway.status("/ready", gateway.metrics_port) == 503
    (refused,) = unlike_envelopes(gateway.survey, 1, seed=3)  # the log must not hold this envelope
    assert post(gateway.port, [refused]) == "log unavailable"
    kafka_node.start()
    for client in clients:
        client.join(PATIENCE_S)
        assert not client.is_alive(), gateway.log.read_text()
    outcomes = sum((client.outcomes() for client in clients), Counter[str]())
    assert outcomes["accepted"] == len(parts)
    assert outcomes["log unavailable"] + outcomes["outcome unknown"] > 0, outcomes
    assert in_log(kafka_node.bootstrap, gateway.survey) == Counter(envelopes)
    gateway.finish()


@pytest.mark.parametrize("away", ["killed", "paused"])
def test_a_gateway_without_a_broker_ends_and_answers_all(away: str, kafka_node: KafkaNode, start: Start) -> None:
    gateway = start(kafka_node.bootstrap)
    first, *rest = unlike_envelopes(gateway.survey, 9, seed=4)
    insist(gateway, [first])
    kafka_node.kill() if away == "killed" else kafka_node.pause()
    clients = [Client(gateway.port, [[envelope]], insist=False) for envelope in rest]
    size = sum(OVERHEAD_BYTES + len(envelope) for envelope in rest)

    def all_arrived() -> bool:
        if all(client.told for client in clients):
            return True
        told = [(part[0], outcome) for client in clients for part, outcome in client.told]
        # an envelope whose outcome is unknown still waits for the log: the gateway's number contains it
        refused = sum(OVERHEAD_BYTES + len(envelope) for envelope, outcome in told if outcome != "outcome unknown")
        return refused + gateway.waiting_bytes() >= size

    wait_until(all_arrived, gateway.log.read_text)
    gateway.finish()
    for client in clients:
        client.join()
        assert set(client.outcomes()) <= {"outcome unknown", "log unavailable", "stopping"}
    if away == "killed":
        kafka_node.start()
    else:
        kafka_node.resume()
    found = in_log(kafka_node.bootstrap, gateway.survey)
    assert found[first] == 1
    assert set(found.values()) == {1}
    for client in clients:
        ((part, outcome),) = client.told
        assert outcome == "outcome unknown" or part[0] not in found


def test_users_report_through_the_gateway_and_fetch_the_survey(kafka: str, start: Start, tmp_path: Path) -> None:
    ca = trustme.CA()
    issued = ca.issue_cert("localhost")
    cert, key, trusted = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    ca.cert_pem.write_to_path(trusted)
    gateway = start(kafka, GATEWAY_TLS_CERT=str(cert), GATEWAY_TLS_KEY=str(key))
    url, tokens = f"https://localhost:{gateway.port}", tmp_path / "one-token"
    tokens.write_text(TOKEN)
    done = subprocess.run(
        [sys.executable, "-m", "ldpstream", "produce", str(gateway.file), "--users", "2000", "--steps", "1", "--gateway", url],
        env=gateway.env | {"SSL_CERT_FILE": str(trusted), "LDPSTREAM_GATEWAY_TOKENS_FILE": str(tokens)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2,000 reports acknowledged by the gateway" in done.stdout
    found, at_ms = in_log(kafka, gateway.survey), now_ms()
    assert sum(open_envelope(gateway.survey, value, at_ms).n for value in found.elements()) == 2000
    request = urllib.request.Request(f"{url}/v1/survey", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=trusted)) as answer:
        fetched = json.load(answer)
    assert parse_survey(tomllib.loads(fetched["toml"])).fingerprint == bytes.fromhex(fetched["fingerprint"])
    assert fetched["fingerprint"] == gateway.survey.fingerprint.hex()
    assert "ldpstream_gateway_reports_total 2000.0" in get(f"http://127.0.0.1:{gateway.metrics_port}/metrics")[1]
    gateway.finish()


def test_the_largest_bodies_are_accepted(kafka: str, start: Start) -> None:
    gateway = start(kafka)
    survey, row = gateway.survey, gateway.survey.mechanisms[0][0].report_dtype
    largest = seal(survey, 0, 0, 0, np.zeros(((10**6 - 40) // row.itemsize, *row.shape), row.base))
    batch = [seal(survey, 0, 0, 0, np.zeros((1, *row.shape), row.base))] * (640_000 // (row.itemsize + 30))
    insist(gateway, [largest], reports=open_envelope(survey, largest, now_ms()).n)
    insist(gateway, batch, reports=len(batch))
    assert in_log(kafka, survey) == Counter([largest, *batch])
