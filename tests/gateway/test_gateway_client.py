"""Tests the gateway's client, with gateways on real sockets."""

import http.client
import random
import threading
import time

import pytest

from ldpstream.engines.gateway_log import MAX_BATCH, MAX_BATCH_BYTES
from ldpstream.producers.gateway_sink import GatewaySink
from ldpstream.producers.sinks import SinkError, TooLateError
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES

from .gateway_rig import COLLECTOR, NOW, STEP, SURVEY, TOKEN, MakeServed, Served, envelopes


def sent(one: Served) -> list[bytes]:
    return [envelope for batch in one.rig.log.appended for envelope in batch]


def test_the_sink_posts_batches_within_the_limits(served: MakeServed) -> None:
    one = served(tokens=[TOKEN])
    sink = GatewaySink(one.url, COLLECTOR)
    small, large = envelopes(40), envelopes(12, n=60_000)
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
    assert one.rig.log.counted() == batches
    assert len(one.rig.log.appended) > len(batches)


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
    with pytest.raises(SinkError, match=r"step too old \(422\): the service would never count some"):
        post(GatewaySink(one.url, TOKEN), [*envelopes(1), *envelopes(2, step=0)])
    assert sent(one) == []
    late, good = GatewaySink(one.url, TOKEN), envelopes(2)
    with pytest.raises(TooLateError, match="step too old"):
        post(late, envelopes(2, step=0))
    post(late, good)  # the sink still works
    assert sent(one) == good
    one.rig.log.ready = False
    with pytest.raises(SinkError, match=r"log unavailable \(503\)"):
        post(GatewaySink(one.url, TOKEN, patience_s=0.0), envelopes(2))
    assert sent(one) == good
    with pytest.raises(SinkError, match=r"gateway at http://127\.0\.0\.1:9 did not accept the reports"):
        post(GatewaySink("http://127.0.0.1:9", patience_s=0.0), envelopes(1))
    wrong = (
        "nonsense",
        "ftp://host",
        "http://host:port",
        "http://",
        "http://:80/path",
        "http://a..b",
        "http://a b",
        "http://a/é",
    )
    for url in wrong:
        with pytest.raises(SinkError, match="URL must be http"):
            GatewaySink(url)


def post(sink: GatewaySink, batch: list[bytes]) -> None:
    for envelope in batch:
        sink.send(envelope)
    try:
        sink.flush()
    finally:
        sink.close()
