"""Simulated devices send to a gateway: the sink delivers each envelope once, or says that it did not."""

from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus

import numpy as np
import pytest

from ldpstream.device.reports import Waiting
from ldpstream.device.routes import Answer, Direct, ThroughRelay
from ldpstream.producers import gateway_sink
from ldpstream.producers.gateway_sink import GatewaySink
from ldpstream.producers.sinks import SinkError, TooLateError
from ldpstream.runtime.settings import Settings
from ldpstream.services.sinks import WayError, sink_of
from ldpstream.surveys import seal
from tests.gateway.gateway_rig import COLLECTOR, STEP, TOKEN, Served
from tests.gateway.gateway_rig import envelopes as packed

from .relay_rig import RelaySite, relay_site, relay_survey

SURVEY = relay_survey()
PLACE = "gateway at its place"
Way = Direct | ThroughRelay


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[RelaySite]:
    with relay_site(SURVEY, monkeypatch, tokens=[TOKEN]) as found:
        yield found


@pytest.fixture
def gateway() -> Iterator[Served]:
    with closing(Served(tokens=[TOKEN])) as found:
        yield found


def envelopes(count: int, step: int = STEP) -> list[bytes]:
    rng = np.random.default_rng(1)
    return [seal(SURVEY, 0, 0, step, SURVEY.mechanisms[0][0].simulate(np.array([i]), rng)) for i in range(count)]


def relayed(site: RelaySite, token: str = TOKEN) -> ThroughRelay:
    return ThroughRelay(site.relay.device_side(), SURVEY, token)


def sent(way: Way, reports: list[bytes], patience_s: float = 0.0) -> None:
    with closing(GatewaySink(way, PLACE, patience_s)) as sink:
        for report in reports:
            sink.send(report)
        sink.flush()
        sink.flush()


def logged(gateway: Served) -> list[bytes]:
    return sorted(envelope for (envelope,) in gateway.rig.log.counted())


def test_each_report_travels_alone_and_counts_once(site: RelaySite) -> None:
    site.relay.times = 2
    reports = envelopes(30)
    sent(relayed(site), reports)
    assert logged(site.gateway) == sorted(reports)
    assert len(site.relay.seen) == len(reports)
    assert len({seen.port for seen in site.relay.seen}) == len(reports)
    assert len(site.gateway.rig.log.appended) == 2 * len(reports)


@pytest.mark.parametrize("kind", [Direct, ThroughRelay])
def test_an_envelope_whose_answer_is_lost_is_sent_again_and_counts_once(
    kind: type[Way], site: RelaySite, gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answers of all envelopes are lost."""
    monkeypatch.setattr(gateway_sink, "LONGEST_PAUSE_S", 0.01)
    post, lost = kind.post, set[str]()

    def losing(way: Way, report: Waiting) -> Answer:
        answer = post(way, report)  # type: ignore[arg-type]  # `post` is that of `kind`
        if report.key in lost:
            return answer
        lost.add(report.key)
        return Answer(0, from_gateway=False, reason="timeout")

    monkeypatch.setattr(kind, "post", losing)
    direct = kind is Direct
    reports, served = (packed(10, n=60), gateway) if direct else (envelopes(10), site.gateway)
    sent(Direct(gateway.url, COLLECTOR) if direct else relayed(site), reports, patience_s=60.0)
    assert len(lost) == len(reports)
    assert logged(served) == sorted(reports)
    assert len(served.rig.log.appended) == 2 * len(reports)


def test_what_a_relay_does_not_deliver_is_an_error(site: RelaySite) -> None:
    late, good = envelopes(2, step=0), envelopes(3)
    with pytest.raises(TooLateError, match=rf"{PLACE} did not accept 2 envelopes: step too old \(422\)"):
        sent(relayed(site), [*late, *good])
    assert logged(site.gateway) == sorted(good)
    with pytest.raises(SinkError, match=r"did not accept 3 envelopes: unauthorized \(401\)"):
        sent(relayed(site, "a-token-that-is-not-known"), good)
    site.relay.status, site.relay.body = HTTPStatus.ACCEPTED, b"thank you"  # the relay's own answer settles nothing
    with pytest.raises(SinkError, match=r"did not accept 3 envelopes: an answer of the relay \(202\)"):
        sent(relayed(site), good)
    site.relay.close()
    with pytest.raises(SinkError, match="did not accept 3 envelopes: connection refused"):
        sent(relayed(site), good)
    assert logged(site.gateway) == sorted(good)


def test_what_a_gateway_does_not_accept_is_an_error(gateway: Served) -> None:
    late, good, way = packed(2, step=0), packed(3), Direct(gateway.url, TOKEN)
    with pytest.raises(SinkError, match=r"did not accept 3 envelopes: unauthorized \(401\): [a-z]"):
        sent(Direct(gateway.url, None), good)
    with pytest.raises(TooLateError, match=r"did not accept 2 envelopes: step too old \(422\)"):
        sent(way, [*late, *good])
    assert logged(gateway) == sorted(good)
    gateway.rig.log.ready = False
    with pytest.raises(SinkError, match=r"did not accept 3 envelopes: log unavailable \(503\)"):
        sent(way, good)
    with pytest.raises(WayError, match="a gateway's URL must be http"):
        sink_of(SURVEY, Settings(), "nonsense", None, lambda _: True, print)
