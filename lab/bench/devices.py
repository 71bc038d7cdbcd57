"""The cost of a device by language: processor time, peak memory and wake-ups of a process that makes one report.

Each process opens a device, has the person's consent, makes the report of the present step, and settles it in local mode. It is
measured beside an empty process of its language. A wake-up is a voluntary context switch: the process waited, for example for
the disk, and was called again.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from deploy.local.cache import cache_dir
from ldpstream.output.terminal import table

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ROOT / "devices"
SURVEY = ROOT / "surveys" / "samples" / "usage.toml"
TYPESCRIPT = str(DEVICES / "typescript" / "build" / "src" / "node.js")
QUIET = {"CI": "", "DO_NOT_TRACK": ""}  # an empty variable does not switch devices off
PYTHON = f"""
from ldpstream import load_survey
from ldpstream.device import LOCAL, Activity, Device, Sender
device = Device(load_survey({str(SURVEY)!r}), "answers.device")
device.give_consent()
activity = Activity("usage.activity")
activity.seen()
activity.answer(device)
Sender(device, LOCAL).attempt()"""
NODE = f"""
import {{ readFileSync }} from "node:fs";
import {{ Activity, Device, FileStore, LOCAL, openSurvey, Sender }} from {json.dumps(TYPESCRIPT)};
const survey = await openSurvey(JSON.parse(readFileSync("survey.json", "utf8")));
const device = await Device.open(survey, new FileStore("answers"));
await device.giveConsent();
const activity = new Activity(new FileStore("activity"));
await activity.seen();
await activity.answer(device);
await new Sender(device, LOCAL).attempt();"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The smallest costs of several processes: seconds of the processor, and MiB of memory and wake-ups by GNU time."""

    program: str
    seconds: float
    peak_mib: float
    wake_ups: int


def programs() -> dict[str, list[list[str]]]:
    """Compiles the devices, and returns for each program the commands of one life; the last one is measured.

    The device in Kotlin has the unoptimized library of the tests. That in TypeScript must have been compiled before, by
    `npm ci --ignore-scripts && npm run build`.
    """
    built = cache_dir() / "rust"
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "--example", "count"]
    _run(cargo, DEVICES / "rust", CARGO_TARGET_DIR=str(built))
    _run(["go", "build", "-ldflags=-s -w", "-o", str(cache_dir() / "go-count"), "./examples/count"], DEVICES / "go")
    java = json.loads(_run([sys.executable, "-m", "tests.devices.kotlin"], ROOT))
    count = {
        "Rust": [str(built / "release" / "examples" / "count")],
        "Go": [str(cache_dir() / "go-count")],
        "Kotlin": [*java, "CountKt"],
    }
    arguments = [["survey.json", ".", "yes"], ["survey.json", ".", "run", "local"]]
    return {
        "empty Python": [[sys.executable, "-c", ""]],
        "Python": [[sys.executable, "-c", PYTHON]],
        "empty Node": [["node", "-e", ""]],
        "TypeScript": [["node", "--input-type=module", "-e", NODE]],
        "empty JVM": [["java", "-version"]],
        **{name: [[*command, *given] for given in arguments] for name, command in count.items()},
    }


def measure(runs: int) -> list[Cost]:
    survey = _run([sys.executable, "-m", "ldpstream", "canonical", str(SURVEY)], ROOT)
    found = {name: [_life(commands, survey) for _ in range(runs)] for name, commands in programs().items()}
    return [Cost(name, *(min(column) for column in zip(*rows, strict=True))) for name, rows in found.items()]


def _life(commands: list[list[str]], survey: str) -> tuple[float, float, int]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "survey.json").write_text(survey)
        for command in commands[:-1]:
            _run(command, Path(folder))
        timed = ["time", "--quiet", "--format=%M %w", "--output=used", *commands[-1]]  # itself small, as its memory counts
        process = subprocess.Popen(
            timed, cwd=folder, env=os.environ | QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            raise subprocess.CalledProcessError(status, commands[-1])
        peak_kib, waits = Path(folder, "used").read_text().split()
        return used.ru_utime + used.ru_stime, int(peak_kib) / 1024, int(waits)


def _run(command: list[str], folder: Path, **environment: str) -> str:
    return subprocess.run(
        command, cwd=folder, env=os.environ | QUIET | environment, capture_output=True, text=True, check=True
    ).stdout


def cost_table(rows: list[Cost]) -> Table:
    shown = table("A process that makes one report, minima", "program", "seconds", "peak memory, MiB", "wake-ups", texts=1)
    for row in rows:
        shown.add_row(row.program, f"{row.seconds:.3f}", f"{row.peak_mib:.0f}", str(row.wake_ups))
    return shown
