"""The first program of docs/reference/write_a_device.md is a correct device: its draws, its reports and its sending."""

import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devices.conformance import listener
from devices.conformance.listener import LEAST, listening
from ldpstream.surveys import check_envelope
from tests.small_survey import small_survey

ROOT = Path(__file__).parents[2]
ASKED = {"name": "mode", "values": ["car", "bus", "walk"], "level": [{"name": "all", "mechanism": "GRR", "eps": 1.0}]}


def test_the_first_program_is_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, made = (ROOT / "docs" / "reference" / "write_a_device.md").read_text(), dict[str, Any]()
    section = page.partition("## A first device\n")[2].partition("\n## ")[0]
    exec(textwrap.dedent("\n".join(re.findall(r"(?m)^(?:    .*|)$", section))), made)  # the program of our own page
    device_of, survey = made["Device"], small_survey(ASKED, lateness_steps=1)
    document = msgspec.to_builtins(survey.device_survey)
    device = device_of(document, survey.pin, tmp_path / "device")
    assert device.report("bus", survey.start_ms - 1) is None
    sent = {step: device.report("bus", survey.opens_ms(step)) for step in (0, 1, 300, 70_000)}
    for step, (envelope, _) in sent.items():
        assert check_envelope(survey, bytes.fromhex(envelope), survey.opens_ms(step)).step == step
        assert device_of(document, survey.pin, tmp_path / "device").report("car", survey.opens_ms(step)) == sent[step]
    monkeypatch.setattr(listener, "RETRY_S", 0)
    with listening(survey, "# toml\n", 0) as (sending, url):
        for i in range(LEAST):
            report = device_of(document, survey.pin, tmp_path / str(i)).report("bus", int(1000 * made["time"].time()))
            assert made["send"](url, *report)
        assert sending.verdict() == []
    for vectors in msgspec.json.decode((ROOT / "devices" / "vectors" / "draws.json").read_bytes()):
        if (of := vectors["parameters"])["mechanism"] == "GRR":
            device.values, device.level, device.coin = range(of["k"]), of, of["coins"]["report"]["keep"]
            for case in vectors["cases"]:
                drawn = iter(bytes.fromhex(case["random"]))
                monkeypatch.setattr(made["secrets"], "token_bytes", lambda n, drawn=drawn: bytes(next(drawn) for _ in range(n)))
                assert device.row(case["value"]).hex() == case["report"]
    document["mechanisms"][0][0]["coins"]["report"]["keep"] = {"digits": "10", "inverted": True}
    with pytest.raises(ValueError, match="could lose more"):
        device_of(document, survey.pin, tmp_path / "louder")
