"""Simulated devices behind a relay: the sink delivers each report once, or says that it did not."""

from collections.abc import Iterator
from http import HTTPStatus

import numpy as np
import pytest

from ldpstream.device.device import Waiting
from ldpstream.device.routes import Answer, ThroughRelay
from ldpstream.producers import relay_sink
from ldpstream.producers.relay_sink import RelaySink
from ldpstream.producers.sinks import SinkError, TooLateError
from ldpstream.surveys import seal
from tests.gateway.gateway_rig import STEP, TOKEN

from .relay_rig import RelaySite, relay_site, relay_survey

SURVEY = relay_survey()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[RelaySite]:
    with relay_site(SURVEY, monkeypatch, tokens=[TOKEN]) as found:
        yield found


def envelopes(count: int, step: int = STEP) -> list[bytes]:
    m = SURVEY.mechanisms[0][0]
    rng = np.random.default_rng(1)
    return [seal(SURVEY, 0, 0, step, m.simulate(np.array([i % m.k]), rng)) for i in range(count)]


def sent(site: RelaySite, reports: list[bytes], token: str = TOKEN, patience_s: float = 0.0) -> None:
    sink = RelaySink(SURVEY, site.relay.device_side(), token, patience_s)
    try:
        for report in reports:
            sink.send(report)
        sink.flush()
    finally:
        sink.close()


def logged(site: RelaySite) -> list[bytes]:
    return sorted(envelope for (envelope,) in site.gateway.rig.log.counted())


def test_each_report_travels_alone_and_counts_once(site: RelaySite) -> None:
    site.relay.times = 2
    reports = envelopes(30)
    sent(site, reports)
    assert logged(site) == sorted(reports)
    assert len(site.relay.seen) == len(reports)
    assert len({seen.port for seen in site.relay.seen}) == len(reports)
    assert len(site.gateway.rig.log.appended) == 2 * len(reports)


def test_a_report_is_sent_again_until_the_gateway_answers(site: RelaySite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay loses the first answers of all reports."""
    monkeypatch.setattr(relay_sink, "LONGEST_PAUSE_S", 0.01)
    post, lost = ThroughRelay.post, set[str]()

    def losing(way: ThroughRelay, report: Waiting) -> Answer:
        answer = post(way, report)
        if report.key in lost:
            return answer
        lost.add(report.key)
        return Answer(0, from_gateway=False, reason="timeout")

    monkeypatch.setattr(ThroughRelay, "post", losing)
    reports = envelopes(10)
    sent(site, reports, patience_s=60.0)
    assert len(lost) == len(reports)
    assert logged(site) == sorted(reports)
    assert len(site.gateway.rig.log.appended) == 2 * len(reports)


def test_a_report_that_is_not_delivered_is_an_error(site: RelaySite) -> None:
    late, good = envelopes(2, step=0), envelopes(3)
    with pytest.raises(TooLateError, match=r"the gateway refused 2 reports for good \(422\)"):
        sent(site, [*late, *good])
    assert logged(site) == sorted(good)
    with pytest.raises(SinkError, match="did not deliver 3 reports: status 401 of the gateway"):
        sent(site, good, token="a-token-that-is-not-known")
    site.relay.status, site.relay.body = HTTPStatus.ACCEPTED, b"thank you"  # the relay's own answer settles nothing
    with pytest.raises(SinkError, match="did not deliver 3 reports: status 202 of the relay"):
        sent(site, good)
    site.relay.close()
    with pytest.raises(SinkError, match=f"relay at {site.relay.url} did not deliver 3 reports: connection refused"):
        sent(site, good)
    assert logged(site) == sorted(good)
