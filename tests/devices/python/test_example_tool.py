"""The example tool counts its own use end to end: consent, preview, journal, and a gateway that may be away."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from devices.example import tool
from ldpstream.device import Device
from ldpstream.runtime.clock import now_ms
from ldpstream.surveys import load_survey
from tests.gateway.gateway_rig import Served

SURVEY = load_survey(tool.SURVEY)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with closing(Served(survey=SURVEY, tokens=[], now_ms=now_ms)) as served:
        for switch in ("CI", "DO_NOT_TRACK"):
            monkeypatch.delenv(switch, raising=False)
        monkeypatch.setattr(tool, "GATEWAY", served.url)
        monkeypatch.setattr(tool, "HOME", tmp_path / "home")
        yield served


def test_the_tool_counts_its_use_only_with_consent(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (text := tmp_path / "text").write_text("one two three")

    def said(*arguments: str) -> str:
        assert tool.main(list(arguments)) == 0
        return capsys.readouterr().out

    def kept() -> list[str]:
        return sorted(path.name for path in tool.HOME.iterdir())

    counted = served.rig.log.counted
    assert said(str(text)) == f"       3 {text}\n"
    assert kept() == []
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    assert said("telemetry", "on") == "Switched off by DO_NOT_TRACK.\n"
    assert kept() == []
    monkeypatch.delenv("DO_NOT_TRACK")
    assert "Purpose: Decide what to improve in the tool." in said("telemetry")
    assert not counted()
    assert said("telemetry", "on") == "Your consent: given.\n"
    for _ in range(2):
        assert said(str(text)) == f"       3 {text}\n"
        assert len(counted()) == 1  # one report in a week
    shown = said("telemetry")
    assert "a random answer: a guess of" in shown
    assert f"answered  {counted()[0][0].hex()}" in shown.partition("What left:")[2]
    assert said("telemetry", "off") == "Your consent: withdrawn.\n"
    assert kept() == ["usage.device"]
    assert said(str(text)) == f"       3 {text}\n"
    assert len(counted()) == 1
    monkeypatch.setattr(tool, "GATEWAY", "http://127.0.0.1:9")
    said("telemetry", "on")
    assert said(str(text)) == f"       3 {text}\n"
    assert len(Device(SURVEY, tool.HOME / "usage.device").waiting()) == 1
    assert tool.main(["telemetry", "maybe"]) == 2
