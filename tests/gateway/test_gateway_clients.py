"""Tests the limits of one client: a hostile client, a school, a carrier, a proxy, a relay, a collector."""

import numpy as np
import pytest

from ldpstream.device.relay.capsules import seal_request
from ldpstream.engines.gateway_log import Outcome
from ldpstream.gateway.admission import Connections
from ldpstream.gateway.intake import DEVICE_BATCH, RATE
from ldpstream.gateway.metrics import largest_client
from ldpstream.promises.false_reports import LEAST_REPORTS
from ldpstream.surveys import seal
from tests.agents.samples import sound

from .gateway_rig import COLLECTS, KEYS, NOW, STEP, SURVEY, TOKEN, Clock, Rig, envelopes, title
from .test_gateway_oblivious import CONFIG, RELAY_KEYS, message

HOSTILE, SCHOOL, RELAY = "203.0.113.66", "198.51.100.1", "192.0.2.200"
REPORT = sound(SURVEY, np.random.default_rng(1), STEP, 0)
BATCH = [REPORT] * DEVICE_BATCH


def reports_in(rig: Rig) -> int:
    return sum(map(len, rig.log.appended))


async def flood(rig: Rig, clock: Clock, address: str, seconds: int = 60, **headers: str) -> set[str]:
    """Posts batches as fast as the gateway allows. Returns the titles of the refusals."""
    refused = set[str]()
    for _ in range(seconds):
        while (answer := await rig.post_batch(BATCH, address=address, **headers)).status_code == 202:
            pass
        refused.add(title(answer))
        clock.now_s += 1
    return refused


@pytest.mark.parametrize("authorization", [{}, {"authorization": f"Bearer {TOKEN}"}], ids=["no token", "token of devices"])
async def test_a_device_sends_one_report_in_an_envelope_and_at_most_a_hundred_envelopes(authorization: dict[str, str]) -> None:
    rig = Rig(tokens=[TOKEN] if authorization else [])
    for answer in (
        await rig.post(envelopes(1, n=2)[0], **authorization),
        await rig.post_batch([*BATCH, REPORT], **authorization),
        await rig.post_batch([REPORT, *envelopes(1, n=2)], **authorization),
    ):
        assert (title(answer), answer.status_code) == ("collector required", 403)  # the same body counts with the token
    assert rig.log.appended == []
    for answer in (await rig.post_batch(BATCH, **authorization), await rig.post_batch(envelopes(300, n=40), **COLLECTS)):
        assert answer.status_code == 202


async def test_one_client_adds_a_thousand_reports_to_ten_thousand(clock: Clock) -> None:
    """Before the budget, one client added 1.2 million reports in ten seconds."""
    rig = Rig(rate=RATE)
    for number in range(100):  # each of 100 addresses with 100 honest reports
        assert (await rig.post_batch(BATCH, address=f"10.0.{number}.1")).status_code == 202
    assert await flood(rig, clock, HOSTILE) <= {"share used", "too many requests"}
    assert reports_in(rig) == 10_000 + LEAST_REPORTS
    assert largest_client.values() == {SURVEY.name: pytest.approx(1000 / 11_000)}
    answer = await rig.post(REPORT, address=HOSTILE)
    assert (title(answer), answer.status_code, answer.headers["retry-after"]) == ("share used", 429, "2")  # of a step of 10 s
    for number in range(4):  # the addresses of an IPv6 customer are one client
        await flood(rig, clock, f"2001:db8:7:{number}::1", seconds=10)
    assert reports_in(rig) == 10_000 + 2 * LEAST_REPORTS
    assert (await rig.post(REPORT, address="2001:db8:8::1")).status_code == 202


async def test_a_school_is_one_client_and_gets_through_up_to_a_hundredth_of_all(clock: Clock) -> None:
    rig = Rig(rate=RATE)
    many = SURVEY.mechanisms[0][0].simulate(np.zeros(50_000, np.int64), np.random.default_rng(1))
    for _ in range(4):
        assert (await rig.post(seal(SURVEY, 0, 0, STEP, many), **COLLECTS)).status_code == 202
    for _ in range(1999):
        assert (await rig.post(REPORT, address=SCHOOL)).status_code == 202
        clock.now_s += 0.02
    assert (await rig.post_batch(BATCH, address=SCHOOL)).status_code == 429
    assert largest_client.values()[SURVEY.name] < 0.01  # of clients only: the collector has no part in it


async def test_a_report_that_the_log_did_not_take_is_not_charged(clock: Clock) -> None:
    rig = Rig(rate=RATE)
    for outcome, status in ((Outcome.NOT_APPENDED, 503), (Outcome.KEYS_FULL, 503), (Outcome.UNKNOWN, 504)):
        rig.log.outcome = outcome
        for _ in range(3):
            clock.now_s += 10
            assert (await rig.post_batch(BATCH, address=HOSTILE)).status_code == status
    rig.log.outcome = Outcome.APPENDED
    await flood(rig, clock, HOSTILE)
    assert reports_in(rig) == LEAST_REPORTS - 300  # the log may have the reports of the three unknown outcomes


async def test_a_log_that_remembers_no_more_keys_refuses_until_the_next_step() -> None:
    rig = Rig()
    rig.log.outcome = Outcome.KEYS_FULL
    answer = await rig.post(REPORT, idempotency_key=KEYS[0])
    assert (title(answer), answer.status_code) == ("keys full", 503)
    assert SURVEY.step_at(NOW + 1000 * int(answer.headers["retry-after"])) == SURVEY.step_at(NOW) + 1


async def test_a_listed_relay_has_no_limits_and_any_other_is_a_client(clock: Clock) -> None:
    rig = Rig(rate=RATE, relays=f"{RELAY}, 2001:db8::/32")
    rig.intake.relay_keys = RELAY_KEYS
    for address, most in ((RELAY, 300), ("2001:db8:5::5", 300), (HOSTILE, 99)):
        answers = [
            (await rig.post_capsule(seal_request(CONFIG, message())[0], address=address)).status_code for _ in range(300)
        ]
        assert answers.count(200) == most
    assert reports_in(rig) == 699
    assert largest_client.values()[SURVEY.name] <= 0.1  # of 1000 reports: the relays have no part in it
    many, _ = seal_request(CONFIG, message(body=envelopes(1, n=2)[0]))
    await rig.post_capsule(many, address=RELAY)
    assert reports_in(rig) == 699


def test_a_listed_relay_may_open_any_number_of_connections() -> None:
    connections = Connections(2, f"{RELAY}/32")
    assert [connections.enter(host) for host in [RELAY] * 5 + [HOSTILE] * 3] == [True] * 7 + [False]
    for _ in range(5):
        connections.leave(RELAY)
    assert not connections.enter(HOSTILE)
