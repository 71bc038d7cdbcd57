"""Tests of the command line as a user runs it: output, files, errors."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ldpstream import __version__
from ldpstream.services.rehearse import rehearse
from ldpstream.surveys import SurveyError, load_survey

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "surveys" / "samples" / "demo.toml"
MS_FIMU = ROOT / "surveys" / "samples" / "ms_fimu.toml"


Done = subprocess.CompletedProcess[str]


def ldpstream(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
    return subprocess.run(
        [sys.executable, "-m", "ldpstream", *map(str, arguments)],
        capture_output=True, text=True, timeout=900, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **(env or {})},
    )  # fmt: skip


@pytest.mark.parametrize("survey", [DEMO, MS_FIMU], ids=["demo", "ms_fimu"])
def test_check_and_ledger_print_every_attribute_and_level(survey: Path, tmp_path: Path) -> None:
    checked, ledger = ldpstream("check", survey), ldpstream("ledger", survey, "--json", tmp_path / "ledger.json")
    assert checked.returncode == ledger.returncode == 0
    for attribute in load_survey(survey).attributes:
        for level in attribute.levels:
            assert f"{attribute.name} (" in checked.stdout
            assert level.name in checked.stdout
            assert attribute.name in ledger.stdout
    chosen = "L-GRR" if survey == DEMO else "L-SS"
    assert f"Chosen for you: {chosen}: smallest variance" in checked.stdout
    rows = json.loads((tmp_path / "ledger.json").read_text())["ledger"]
    assert all(row["eps_t"] <= row["eps_inf"] + 1e-9 for row in rows)


def one_line(done: Done, *words: str) -> None:
    """Assert exit status 2, and one line on standard error that contains these words and no traceback."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert all(word in lines[0] for word in words), lines[0]


def test_labels_with_markup_are_printed_literally(tmp_path: Path) -> None:
    survey = tmp_path / "labels.toml"
    survey.write_text(DEMO.read_text().replace('"home"', '"[home]"').replace('"help"', '"[/b]"'))
    done = ldpstream("demo", "--survey", survey, "--users", "300", "--steps", "1")
    assert done.returncode == 0, done.stderr
    assert "[home]" in done.stdout
    assert "[/b]" in done.stdout


def test_a_rehearsal_replaces_the_rehearsal_that_it_overwrites(tmp_path: Path) -> None:
    """Otherwise agents would keep the earlier rehearsal, which is open."""
    out = tmp_path / "now.toml"
    assert rehearse(DEMO, out, 5, 1_800_000_000).replaces is None
    earlier = load_survey(out)
    assert rehearse(DEMO, out, 5, 1_800_000_001).replaces == earlier.fingerprint.hex()
    assert load_survey(out).replaces == earlier.fingerprint.hex()


def test_a_rehearsal_changes_start_and_step_only(tmp_path: Path) -> None:
    out = tmp_path / "now.toml"
    indented = tmp_path / "indented.toml"
    indented.write_text("\ufeff" + DEMO.read_text().replace("start =", "  start  ="))  # an editor's byte order mark
    survey = rehearse(indented, out, step_seconds=3, now_s=1_800_000_000.7)
    assert (survey.start_ms, survey.step_seconds) == (1_800_000_000_000, 3)
    original = load_survey(DEMO)
    with pytest.raises(SurveyError, match="survey itself"):
        rehearse(out, out, step_seconds=3, now_s=1_800_000_000.7)
    assert survey.attributes == original.attributes
    assert (survey.name, survey.window_steps) == ("demo-rehearsal", original.window_steps)


@pytest.mark.parametrize(("lateness", "made"), [(0, 2), (1, 2), (2, 2), (5, 5)])
def test_a_rehearsal_with_a_relay_requires_the_relay(tmp_path: Path, lateness: int, made: int) -> None:
    source, out = tmp_path / "survey.toml", tmp_path / "now.toml"
    source.write_text(DEMO.read_text().replace("lateness_steps = 1", f"lateness_steps = {lateness}"))
    survey = rehearse(source, out, 5, 1_800_000_000, relay=True)
    assert (survey.relay, survey.lateness_steps) == ("required", made)
    assert load_survey(out) == survey
    again = rehearse(out, tmp_path / "again.toml", 5, 1_800_000_000, relay=True)  # it requires one already
    assert (again.relay, again.lateness_steps) == ("required", made)
    assert rehearse(source, out, 5, 1_800_000_000).relay is None


# ---- the terminal


def test_the_command_prints_the_version_and_the_commit() -> None:
    git = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    done = ldpstream("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"ldpstream {__version__} \({git.stdout.strip() or 'unknown'}(-dirty)?\)\n", done.stdout)


@pytest.mark.parametrize("module", ["numpy", "ldpstream.commands.cli", "fastapi"])
def test_ctrl_c_during_the_start_prints_nothing(module: str) -> None:
    """The start includes a command's imports."""
    check, demo = ["check", str(DEMO)], ["demo", "--page", "--users", "1", "--steps", "1"]
    done = interrupted(module, "default", *(demo if module == "fastapi" else check))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def interrupted(*arguments: str) -> Done:
    command = [sys.executable, "-P", str(Path(__file__).with_name("interrupted_start.py")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT, check=False)


@pytest.mark.parametrize(("command", "status"), [("check none.toml", 2), ("check surveys/samples/demo.toml", 0)])
def test_closed_streams_do_not_change_the_status(command: str, status: int) -> None:
    words = [sys.executable, "-m", "ldpstream", *command.split()]
    done = subprocess.run(["sh", "-c", '"$@" >&- 2>&- <&-', "sh", *words], timeout=900, cwd=ROOT, check=False)
    assert done.returncode == status


def test_a_closed_pipe_causes_no_message() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ldpstream", "ledger", str(DEMO)]
    with open(writer, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=900, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_missing_package_is_one_line_with_the_command_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError(name='fastapi')")
    done = ldpstream("serve", DEMO, "--data", tmp_path / "data", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    said = "ldpstream serve needs fastapi, which is not installed: in your checkout, pip install '.[service]'\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_the_package_lists_and_lazily_loads_its_names() -> None:
    """Python loads each name on first use."""
    program = "import sys, ldpstream; names = set(dir(ldpstream)); assert 'numpy' not in sys.modules\n"
    program += "assert {n for n in names if n[0] != '_'} == set(ldpstream.__all__), names\n"
    program += "assert all(getattr(ldpstream, n) is not None for n in names)\n"
    program += "from ldpstream import *; assert mechanism is ldpstream.mechanism"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_the_help_loads_no_slow_module() -> None:
    """Neither the help of the whole command line nor that of any command loads NumPy, the mechanisms or a survey."""
    program = (
        "import sys\n"
        "from ldpstream.commands.cli import app\n"
        "from typer.main import get_command\n"
        "for name in ('', *get_command(app).commands):\n"
        "    try: app([*name.split(), '--help'], standalone_mode=False)\n"
        "    except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900, cwd=ROOT, check=True)
    assert "canonical" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "ldpstream.commands.cli" in loaded
    assert not loaded & {"numpy", "scipy", "faust", "ldpstream.mechanisms.base", "ldpstream.surveys.survey"}


@pytest.mark.parametrize("caught", ["()", "(SystemExit, KeyboardInterrupt)"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_demo_ends_at_a_signal(number: signal.Signals, caught: str) -> None:
    """Our handler ends the demo, also if a library replaces the handler's exception by its own, as compiled imports do.

    The default action of SIGTERM has status -15, and would not end process 1 of a container.
    """
    program = "import os, signal, sys, time; from ldpstream.services import demo; from ldpstream.__main__ import main\n"
    program += f"def run(*_):\n    try:\n        os.kill(os.getpid(), {int(number)})\n        while True: time.sleep(0.01)\n"
    program += f"    except {caught}: raise ImportError('a module failed to import') from None\n"
    program += "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if tests run in the background\n"
    program += "demo.Demo.run = run; sys.argv[1:] = ['demo', '--users', '10', '--no-page']; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 128 + number, done.stderr
    assert "Traceback" not in done.stderr
