"""`ldpstream try` uses the ports of the settings, and tells why its service ended.

`tests/services/test_try.py` runs the whole pipeline.
"""

import re
import socket
from pathlib import Path

import pytest

from ldpstream.commands.arguments import DEMO_SURVEY
from ldpstream.commands.demo import serve_demo
from ldpstream.producers.values import MarkovValues
from ldpstream.runtime.settings import load_settings
from ldpstream.services.demo import Demo
from ldpstream.services.trial.child import Child, TrialError
from ldpstream.services.trial.ports import LOOPBACK, free_port
from ldpstream.services.trial.trial import Ports, chosen_port
from ldpstream.surveys import load_survey


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


def test_the_demo_says_if_it_takes_another_port_than_the_one_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    survey = load_survey(DEMO_SURVEY)
    demo = Demo(survey, MarkovValues(survey, 10, 1, 1), 1)
    port = free_port()
    monkeypatch.setenv("LDPSTREAM_PAGE_PORT", str(port))
    with socket.create_server((LOOPBACK, port)), serve_demo(survey, demo):
        pass
    said = capsys.readouterr().out
    other = re.findall(r"The live page: http://127\.0\.0\.1:(\d+)/", said)[0]
    assert f"Port {port}: Address already in use; the page uses port {other}." in said
    with serve_demo(survey, demo):
        pass
    assert capsys.readouterr().out == f"The live page: http://127.0.0.1:{port}/\n"
