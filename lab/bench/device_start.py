"""The cost of the device to the program that embeds it: modules, import time and peak memory of fresh interpreters."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from ldpstream.output.terminal import table

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = "from ldpstream.device import Device; from ldpstream.surveys import load_survey"
SURVEY = ROOT / "surveys" / "samples" / "ms_fimu.toml"
OPENED = f"{IMPORTS}; device = Device(load_survey({str(SURVEY)!r}), 'new.device', consent='simulated')"
REPORT = f"{OPENED}; device.report('visit_duration', 'Duration 3h', 0)"
PROGRAMS = {
    "nothing": "", "NumPy": "import numpy", "the package": "import ldpstream.device", "the device": IMPORTS,
    "the device, and one report": REPORT, "the command line": "import ldpstream.commands.cli",
}  # fmt: skip
MEASURE = """
import sys, time
begin = time.perf_counter()
{program}
elapsed_s = time.perf_counter() - begin
with open("/proc/self/status") as status:
    (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM:"))
print("[%d, %r, %s]" % (len(sys.modules), elapsed_s, peak))
"""


@dataclass(frozen=True, slots=True)
class StartRow:
    """The cost of one program: wall-clock seconds without the start of the interpreter, and peak resident memory (VmHWM)."""

    program: str
    modules: int
    seconds: float
    peak_mib: float


def measure(runs: int) -> list[StartRow]:
    found: dict[str, list[tuple[int, float, int]]] = {name: [] for name in PROGRAMS}
    for _ in range(runs):
        for name, program in PROGRAMS.items():
            found[name].append(_run(program))
    return [
        StartRow(name, modules[0], min(seconds), min(peak_kib) / 1024)
        for name, rows in found.items()
        for modules, seconds, peak_kib in [tuple(zip(*rows, strict=True))]
    ]


def _run(program: str) -> tuple[int, float, int]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{MEASURE.format(program=program)}"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True)
    modules, seconds, peak_kib = json.loads(done.stdout)
    return modules, seconds, peak_kib


def start_table(rows: list[StartRow]) -> Table:
    shown = table("Fresh interpreters, minima", "what is loaded", "modules", "seconds", "peak memory, MiB", texts=1)
    for row in rows:
        shown.add_row(row.program, str(row.modules), f"{row.seconds:.3f}", f"{row.peak_mib:.0f}")
    return shown
