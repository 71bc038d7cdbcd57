"""`python -m devices.conformance` checks the TypeScript device like a device of another author.

The reports' seed is fixed. With another seed, the check of a correct device would fail with probability at most 0.001. The
tests of `devices.conformance` are the controls: devices with one fault each, which fail the check.
"""

import subprocess
from pathlib import Path

import msgspec
from msgspec.structs import replace

from devices.conformance.calls import read_calls
from devices.conformance.conformance import check_device
from ldpstream.surveys import Cohort
from tests.producers.samples import level, make_survey

WAVE = {"name": "wave", "mechanism": "SW", "eps": 1.0}
WINDOW = {"name": "window", "mechanism": "GRR", "eps": 2.0, "every_steps": 3, "lifetime_reports": 2}


def test_the_reports_pass_the_conformance_check_and_the_audit(typescript: Path, tmp_path: Path) -> None:
    """The audit's lower bounds of the loss of the reports are below the survey's claims."""
    sets = {**level("L-SS", 3.0, 1.9), "memo_size": 2}
    survey = make_survey({"a": (6, [*(level(name, 3.0, 1.9) for name in ("L-OSUE", "L-OLH", "SS")), sets, WAVE, WINDOW])})
    survey = replace(survey, cohort=Cohort(name="version", values=("1.0", "1.1", "other"), least=10))
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
    with (tmp_path / "calls.jsonl").open("wb") as out:
        command = ["node", "build/test/emit.js", "calls", str(tmp_path / "survey.json"), "7800", "7"]
        subprocess.run(command, cwd=typescript, stdout=out, timeout=300, check=True)
    found = check_device(survey, read_calls(survey, tmp_path / "calls.jsonl"))
    assert found.failures == []
    assert len(found.bounds) == 11
    assert all(loss.bound is not None and loss.bound < loss.claimed for loss in found.bounds)
