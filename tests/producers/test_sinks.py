"""A Kafka sink without a broker. Tests with a broker are in tests/services/test_kafka_sink.py."""

import socket
import time

import pytest

from ldpstream.producers import kafka_sink
from ldpstream.producers.kafka_sink import KafkaSink
from ldpstream.producers.sinks import SinkError
from ldpstream.runtime.settings import Settings
from tests.services.rig import PATIENCE_S


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_sink, "CONNECT_MS", 500)


@pytest.mark.parametrize("listening", [False, True], ids=["nobody listens", "nobody answers"])
def test_an_unreachable_broker_is_one_clear_error(listening: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if listening:
            server.listen()
        begun = time.monotonic()
        with pytest.raises(SinkError, match=f"Kafka at {address} cannot be reached") as caught:
            KafkaSink(Settings(kafka=address), "topic")
        assert time.monotonic() - begun < PATIENCE_S
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
