"""`python -m devices.conformance` checks the TypeScript device like a device of another author.

The reports' seed is fixed. With another seed, the check of a correct device would fail with probability at most 0.001. The
tests of `devices.conformance` are the controls: devices with one fault each, which fail the check.
"""

import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from devices.conformance import listener
from devices.conformance.calls import read_calls
from devices.conformance.conformance import check_device
from devices.conformance.listener import LEAST, listening
from devices.conformance.recipes import check_recipes, write_histories
from devices.vectors.vectors import VECTORS
from ldpstream.surveys import Cohort, load_survey
from tests.producers.samples import level, make_survey, one_question

WAVE = {"name": "wave", "mechanism": "SW", "eps": 1.0}
WINDOW = {"name": "window", "mechanism": "GRR", "eps": 2.0, "every_steps": 3, "lifetime_reports": 2}


def emit(typescript: Path, *arguments: str) -> bytes:
    """Runs the program of `test/emit.ts` and returns its output."""
    command = ["node", str(typescript / "build" / "test" / "emit.js"), *arguments]
    return subprocess.run(command, capture_output=True, timeout=300, check=True).stdout


def test_the_reports_pass_the_conformance_check_and_the_audit(typescript: Path, tmp_path: Path) -> None:
    """The audit's lower bounds of the loss of the reports are below the survey's claims."""
    sets = {**level("L-SS", 3.0, 1.9), "memo_size": 2}
    survey = make_survey({"a": (6, [*(level(name, 3.0, 1.9) for name in ("L-OSUE", "L-OLH", "SS")), sets, WAVE, WINDOW])})
    survey = replace(survey, cohort=Cohort(name="version", values=("1.0", "1.1", "other"), least=10))
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
    (tmp_path / "calls.jsonl").write_bytes(emit(typescript, "calls", str(tmp_path / "survey.json"), "7800", "7"))
    found = check_device(survey, read_calls(survey, tmp_path / "calls.jsonl"))
    assert found.failures == []
    assert len(found.bounds) == 11
    assert all(loss.bound is not None and loss.bound < loss.claimed for loss in found.bounds)


def test_the_recipes_pass_the_conformance_check(typescript: Path, tmp_path: Path) -> None:
    survey = load_survey(VECTORS / "usage.toml")
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
    write_histories(survey, tmp_path / "histories.jsonl")
    answers = emit(typescript, "recipes", str(tmp_path / "survey.json"), str(tmp_path / "histories.jsonl"))
    (tmp_path / "answers.jsonl").write_bytes(answers)
    assert check_recipes(survey, tmp_path / "answers.jsonl")[1] == []


def test_the_sending_passes_the_conformance_check(typescript: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "RETRY_S", 0)
    survey = one_question("L-OSUE", k=300)  # no two reports are equal
    with listening(survey, "# toml\n", 0) as (sending, url):
        emit(typescript, "send", url, str(2 * LEAST))
        assert sending.verdict() == []
        assert sending.requests == 2 * LEAST
        assert sending.attempts >= 2 * (LEAST + LEAST * 5 // 6)  # more if an answer takes longer than the device waits
