"""Checks and audits our own devices, and for each language a control: devices that lose their store after each step.

python -m devices.conformance.languages [LANGUAGE]…      exit status 1 if a device fails, or if a control passes

Each language needs its own tools. Run the command in a checkout; the devices answer `languages.toml`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import msgspec
import typer

from deploy.local.cache import cache_dir
from devices.conformance.calls import read_calls
from devices.conformance.conformance import Conformance, check_device
from lab.audit.spaced import MEMORY
from lab.terminal import activity
from ldpstream import load_survey
from ldpstream.commands.cli import run
from ldpstream.device import Device
from ldpstream.output.terminal import console, table
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.errors import UserError

DEVICES = Path(__file__).parents[1]
STEPS = 4
CONTROL_SHARE = 5  # the fault is large: fewer devices show it
BUILT = cache_dir() / "rust"
OPTIONS = ["--locked", "--quiet", "--release", "--target-dir", str(BUILT)]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Ask(NamedTuple):
    """One call of a device.

    Attributes:
        truth: index of the true value, or the list of the indices of a set.
        values: the same as texts for the device.
    """

    attribute: str
    truth: int | list[int]
    values: list[str]


class Opening(NamedTuple):
    """The calls between two starts of a device in a language without a program of its own that writes calls."""

    run: int
    step: int
    file: str
    asks: list[Ask]

    def line(self, ask: Ask, envelope: str | None, key: str | None) -> bytes:
        call = {"device": self.run // 2, "run": self.run % 2, "attribute": ask.attribute, "value": ask.truth, "step": self.step}
        return msgspec.json.encode(call | {"envelope": envelope} | ({} if envelope is None else {"key": key})) + b"\n"


def openings(survey: Survey, devices: int, forgets: bool) -> Iterator[Opening]:
    """Yields the calls that the programs `life` make: a value, another one, and again the first; repeats after a restart."""
    for one in range(devices):
        number = one // 2
        for step in range(STEPS):
            held = number + (STEPS // 2 <= step < STEPS - 1)
            asks = [ask(attribute, held) for attribute in survey.attributes]
            for _ in range(1 + number % 2):
                yield Opening(one, step, f"{one} {step}" if forgets else str(one), asks)


def ask(attribute: Attribute, held: int) -> Ask:
    if attribute.most is None:
        return Ask(attribute.name, held % attribute.k, [str(held % attribute.k)])
    chosen = [v for v in range(attribute.k - attribute.most) if held >> v & 1][: attribute.most]
    return Ask(attribute.name, chosen, [str(attribute.labels[v]) for v in chosen])


def python(survey: Survey, folder: Path, devices: int, forgets: bool) -> None:
    with (folder / "calls.jsonl").open("wb") as out:
        for opening in openings(survey, devices, forgets):
            device = Device(survey, folder / opening.file, consent="simulated")
            values = {one.attribute: one.values if isinstance(one.truth, list) else one.values[0] for one in opening.asks}
            made = device.answer(values, opening.step)
            keys = {one.envelope: one.key for one in device.waiting()}
            for one in opening.asks:
                envelope = made.get(one.attribute)
                out.write(opening.line(one, None if envelope is None else envelope.hex(), keys.get(envelope or b"")))


def c(survey: Survey, folder: Path, devices: int, forgets: bool) -> None:
    execute(["cargo", "build", *OPTIONS], DEVICES / "c")
    link = ["-L", str(BUILT / "release"), "-lldpstream_device", f"-Wl,-rpath,{BUILT}/release"]
    execute(["cc", "-I", "include", "example/driver.c", *link, "-o", str(folder / "driver")], DEVICES / "c")
    drive(folder / "driver", survey, folder, devices, forgets)


def drive(driver: Path, survey: Survey, folder: Path, devices: int, forgets: bool) -> None:
    """Runs `devices/c/example/driver.c`, which reads the steps from a clock that we set."""
    clock = folder / "clock.so"
    execute(["cc", "-shared", "-fPIC", "tests/cuts/power_cut.c", "-o", str(clock), "-ldl"], DEVICES / "rust")
    start = int(survey.start.timestamp())
    with (folder / "lines").open("w") as lines:
        for opening in openings(survey, devices, forgets):
            lines.write(f"clock\t{start + opening.step * survey.step_seconds}\n")
            lines.write(f"device\tsurvey.json\t{opening.file}\tsimulated\n")
            lines.writelines("\t".join(["report", one.attribute, *one.values]) + "\n" for one in opening.asks)
    with (folder / "lines").open() as lines, (folder / "told").open("w") as told:
        environment = os.environ | {"LD_PRELOAD": str(clock)}
        subprocess.run([driver], cwd=folder, env=environment, stdin=lines, stdout=told, check=True)
    with (folder / "told").open() as told, (folder / "calls.jsonl").open("wb") as out:
        for opening in openings(survey, devices, forgets):
            for one in opening.asks:
                envelope, _, key = next(told).strip().partition(" ")
                out.write(opening.line(one, None if envelope == "-" else envelope, key))


def program(folder_name: str, command: list[str]) -> Callable[[Survey, Path, int, bool], None]:
    """A language whose program `life` writes the calls itself."""

    def write(survey: Survey, folder: Path, devices: int, forgets: bool) -> None:
        options = ["--calls", str(folder / "calls.jsonl"), "--devices", str(devices), "--steps", str(STEPS)]
        execute([*command, str(folder / "survey.json"), *options, *(["--forget"] if forgets else [])], DEVICES / folder_name)

    return write


def typescript(survey: Survey, folder: Path, devices: int, forgets: bool) -> None:
    copy = shutil.copytree(
        DEVICES / "typescript", folder / "typescript", ignore=shutil.ignore_patterns("node_modules", "build")
    )
    shutil.copytree(DEVICES / "vectors", folder / "vectors")
    for script in (["ci", "--silent", "--no-audit", "--no-fund"], ["run", "--silent", "build"]):
        execute(["npm", *script], copy)
    with (folder / "calls.jsonl").open("wb") as out:
        seed = os.urandom(16).hex()
        command = ["node", "build/test/emit.js", "calls", str(folder / "survey.json"), str(devices), seed]
        subprocess.run([*command, *(["forget"] if forgets else [])], cwd=copy, stdout=out, check=True)


RUST = ["cargo", "run", *OPTIONS, "--no-default-features", "--features", "send"]
LANGUAGES: dict[str, Callable[[Survey, Path, int, bool], None]] = {
    "python": python,
    "typescript": typescript,
    "rust": program("rust", [*RUST, "--example", "life", "--"]),
    "c": c,
    "go": program("go", ["go", "run", "./examples/life"]),
}


def execute(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"{folder.name}: {' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}")


def checked(survey: Survey, language: str, devices: int, forgets: bool) -> Conformance:
    with TemporaryDirectory(prefix="ldpstream-languages-", dir=MEMORY if os.path.isdir(MEMORY) else None) as name:
        folder = Path(name)
        (folder / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
        LANGUAGES[language](survey, folder, devices, forgets)
        return check_device(survey, read_calls(survey, folder / "calls.jsonl"))


@app.command()
def languages_command(
    language: Annotated[list[str] | None, typer.Argument(help="languages to check", show_default="all")] = None,
    devices: Annotated[int, typer.Option(min=1000, max=10**6, help="number of devices of each language")] = 5000,
) -> None:
    """Check and audit our own devices. Exit status 1 if one fails, or if a control passes."""
    survey, wrong = load_survey(Path(__file__).with_name("languages.toml")), False
    for name in language or LANGUAGES:
        if name not in LANGUAGES:
            raise typer.BadParameter(f"must be one of {', '.join(LANGUAGES)}, got {name!r}", param_hint="LANGUAGE")
    shown = table(f"{devices:,} devices of each language", "language", "calls", "reports", "tests",
                  "bounds", "nearest to the claim", "failures", "failures of the control")  # fmt: skip
    for name in language or LANGUAGES:
        with activity() as progress:
            progress(name)
            found = checked(survey, name, devices, forgets=False)
            control = checked(survey, name, devices // CONTROL_SHARE, forgets=True)
        nearest = max(bound.bound / bound.claimed for bound in found.bounds if bound.bound is not None)
        wrong = wrong or not found.passed or control.passed
        tests, bounds, failures = sum(one.tests for one in found.tested), len(found.bounds), len(found.failures)
        sizes = (f"{n:,}" for n in (found.calls, found.reports, tests, bounds))
        shown.add_row(name, *sizes, f"{100 * nearest:.0f} %", str(failures), str(len(control.failures)))
    console.print(shown)
    if wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    run(app)
