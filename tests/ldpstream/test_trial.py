"""`ldpstream try` uses the ports of the settings, and tells why its service ended.

`tests/services/test_try.py` runs the whole pipeline.
"""

import socket
from pathlib import Path

import pytest

from ldpstream.commands.arguments import DEMO_SURVEY
from ldpstream.runtime.settings import load_settings
from ldpstream.services.trial.child import Child, TrialError
from ldpstream.services.trial.ports import LOOPBACK, free_port
from ldpstream.services.trial.trial import Ports, chosen_port


def test_a_process_that_ends_early_says_so_and_is_gone(tmp_path: Path) -> None:
    child = Child(["serve", "nowhere.toml"], {}, tmp_path)
    with pytest.raises(TrialError, match=r"^serve ended unexpectedly; its log ends: ldpstream: nowhere\.toml: cannot be read"):
        child.wait_until(lambda: False)
    (tmp_path / "demo.toml").write_text(DEMO_SURVEY.read_text())
    waits = Child(["agent", "demo.toml"], {"KAFKA": f"{LOOPBACK}:{free_port()}"}, tmp_path)
    waits.wait_until(lambda: "waiting for Kafka" in waits.log.read_text())
    waits.close()
    with pytest.raises(TrialError, match="agent ended"):
        waits.check()


@pytest.mark.parametrize(
    ("settings", "ports"),
    [
        ({}, Ports(8080, 8081)),
        ({"PAGE_PORT": "18080", "GATEWAY_PORT": "18081"}, Ports(18080, 18081)),
        ({"PAGE_PORT": "0"}, Ports()),
    ],
)
def test_the_ports_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], ports: Ports) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"LDPSTREAM_{name}", value)
    assert Ports.of(load_settings()) == ports


def test_a_taken_port_is_replaced_and_told() -> None:
    told = list[str]()
    port = free_port()
    assert chosen_port("the page", port, told.append) == port
    assert not told
    with socket.create_server((LOOPBACK, port)):
        other = chosen_port("the page", port, told.append)
    assert other != port
    assert told == [f"Port {port} is taken: the page uses port {other}."]
