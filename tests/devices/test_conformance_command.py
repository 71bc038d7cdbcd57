"""The file of calls, and the command `python -m devices.conformance`."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from deploy.local.children import start_child
from devices.conformance.__main__ import app
from devices.conformance.calls import ConformanceError, _Line, read_calls
from devices.conformance.listener import ANSWERS, LEAST
from devices.conformance.rules import read_key
from ldpstream.gateway.http.problems import STATUS
from ldpstream.surveys import parse_survey
from tests.producers.samples import one_question
from tests.small_survey import START, small_text

from .faulty_devices import FreshMemo
from .foreign_device import ForeignDevice, calls

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
QUESTION = one_question("L-GRR")


def line(**changes: Any) -> str:
    made = {"device": "d", "attribute": "zone", "value": 0, "step": 0, "envelope": "00", "key": "k"} | changes
    return json.dumps(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: Input data was truncated"),
        (line(attribute="b"), "line 1: attribute must be one of zone, got 'b'"),
        (line(value=10), "line 1: value must be the index of a value of zone, 0 to 9"),
        (line(value="x"), "line 1: Expected `int | array`, got `str`"),
        (line(step=-1), "line 1: step must be 0 to"),
        (line(envelope="0g"), "line 1: envelope must be hexadecimal digits, or null for no report"),
        (line(key=None), "line 1: a call with an envelope needs its key"),
        (line(envelop="00"), "line 1: Object contains unknown field `envelop`"),
        (line(level="b"), "line 1: level must be the level that the program chose, one of L-GRR, got 'b'"),
        (line(cohort="b"), "line 1: survey"),
        (line(envelope=None, key=None) + "\n[]", "line 2: Expected `object`, got `array`"),
    ],
)
def test_a_wrong_line_is_one_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl").write_text(text)
    with pytest.raises(ConformanceError, match=r"calls\.jsonl") as caught:
        list(read_calls(QUESTION, tmp_path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_or_an_empty_folder_is_one_error(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "no.jsonl", "No such file"), (tmp_path, "no files that end in .jsonl")):
        with pytest.raises(ConformanceError, match=message):
            list(read_calls(QUESTION, path))


STANDARD = {"name": "standard", "mechanism": "L-GRR", "eps_inf": 3.0, "eps_1": 1.9}
SURVEY = small_text({"name": "zone", "size": 4, "level": [STANDARD]}, name="sample", window_steps=3, lateness_steps=1)


def written(folder: Path, kind: type[ForeignDevice], n: int) -> list[str]:
    """Writes the survey and a device's calls, in two files; returns the command's arguments."""
    (folder / "survey.toml").write_text(SURVEY)
    survey = parse_survey(tomllib.loads(SURVEY))
    assert survey.start == START
    made = [
        json.dumps({
            "device": call.device, "attribute": "zone", "value": call.value, "step": call.step,
            "envelope": None if call.envelope is None else call.envelope.hex(), **({"key": call.key} if call.key else {}),
            "run": call.run,
        })
        for call in calls(survey, kind, n)
    ]  # fmt: skip
    (folder / "calls").mkdir()
    for name, part in (("1.jsonl", made[: len(made) // 2]), ("2.jsonl", made[len(made) // 2 :])):
        (folder / "calls" / name).write_text("\n".join(part) + "\n")
    return [str(folder / "survey.toml"), str(folder / "calls"), "--json", str(folder / "found.json")]


@pytest.mark.parametrize(("kind", "status"), [(ForeignDevice, 0), (FreshMemo, 1)])
def test_the_command_tells_the_verdict(kind: type[ForeignDevice], status: int, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, written(tmp_path, kind, 1200), env={"COLUMNS": "200"})
    assert shown.exit_code == status, shown.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["passed"] is (status == 0)
    assert found["calls"] == 4800
    last = shown.output.rstrip().splitlines()[-1]
    assert last.startswith("passed" if status == 0 else "failed")
    assert "a correct device fails with probability at most 0.001" in last
    assert all(failure in shown.output for failure in found["failures"])


def test_the_page_describes_the_file_and_the_answers() -> None:
    text = PAGE.read_text(encoding="utf-8")
    fields = list(msgspec.structs.fields(_Line))
    assert re.findall(r"(?m)^\| `(\w+)` \|", text) == [field.name for field in fields]
    for example in re.findall(r"(?m)^    (\{.*\})$", text[: text.index("## The recipes")]):
        call = msgspec.json.decode(example, type=_Line)
        assert call.key is None or read_key(call.key) is not None
    told = {"accepted": "202", "no answer": "no answer"} | {cause: str(status) for cause, status in STATUS.items()}
    assert ", ".join(told[answer] for answer in ANSWERS) in text.replace("\n", " ")
    assert f"at least {LEAST} requests" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("more", "relayed", "told"),
    [([], False, "FILE"), (["calls.jsonl", "--listen", "0"], False, "FILE"), (["--listen", "0"], True, "requires a relay")],
)
def test_the_command_needs_a_file_or_a_port_and_checks_no_relay(
    more: list[str], relayed: bool, told: str, tmp_path: Path
) -> None:
    survey = re.sub("(?m)^lateness_steps = .*$", 'lateness_steps = 2\nrelay = "required"', SURVEY) if relayed else SURVEY
    (tmp_path / "survey.toml").write_text(survey)
    shown = CliRunner().invoke(app, [str(tmp_path / "survey.toml"), *more])
    assert (shown.exit_code, told in shown.output) == (2, True)


def test_the_gateway_of_the_command_ends_with_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "survey.toml").write_text(SURVEY)
    command = [sys.executable, "-m", "devices.conformance", str(tmp_path / "survey.toml"), "--listen", "0"]
    with start_child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3].rstrip(",")
        process.terminate() if url.startswith("http://127.0.0.1:") else process.kill()
        output, error = process.communicate(timeout=120)
    assert (process.returncode, output) == (2, "")
    assert error == "ldpstream: no fault found, but too few requests for a verdict: 0, needs 12\n"
