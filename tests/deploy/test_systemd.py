"""The unit that runs the service on one machine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "ldpstream.service"


def test_the_command_and_its_options_exist() -> None:
    (line,) = re.findall(r"(?m)^ExecStart=\S+/ldpstream (.*)$", UNIT.read_text())
    name, *rest = line.split()
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    assert all(word in shown.output for word in rest if word.startswith("--"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit_and_gives_it_few_rights(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ldpstream/bin/ldpstream", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = subprocess.run(["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True, check=True)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert float(exposure) < 2  # on a scale from 0 to 10
