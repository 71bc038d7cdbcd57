"""`ldpstream try` uses the ports of the settings, and replaces a port that is taken.

`tests/services/test_try.py` runs the whole pipeline.
"""

import socket

import pytest

from ldpstream.runtime.settings import load_settings
from ldpstream.services.trial.ports import LOOPBACK, free_port
from ldpstream.services.trial.trial import chosen_port, ports_of


@pytest.mark.parametrize(
    ("settings", "ports"),
    [({}, (8080, 8081)), ({"PAGE_PORT": "18080", "GATEWAY_PORT": "18081"}, (18080, 18081)), ({"PAGE_PORT": "0"}, (8080, 8081))],
)
def test_the_ports_are_those_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], ports: tuple[int, int]
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"LDPSTREAM_{name}", value)
    assert ports_of(load_settings()) == ports


def test_a_taken_port_is_replaced_and_told() -> None:
    told = list[str]()
    port = free_port()
    assert chosen_port("the page", port, told.append) == port
    assert not told
    with socket.create_server((LOOPBACK, port)):
        other = chosen_port("the page", port, told.append)
    assert other != port
    assert told == [f"Port {port} is taken: the page uses port {other}."]
