"""The devices for programs, in Go and Rust, pass the vectors and the check; so does that in Kotlin, whose core is in Rust.

The draws of the device in Go were written from docs/reference/write_a_device.md and wire_format.md alone: their author had not
seen our code, so these are sufficient. The reports' seed is fixed. With another seed, the check of a correct device would fail
with probability at most 0.001. Planted faults are the controls.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from deploy.local.cache import cache_dir
from devices.conformance import languages, listener
from devices.conformance.calls import read_calls
from devices.conformance.conformance import check_device
from devices.conformance.listener import LEAST, listening
from devices.conformance.recipes import check_recipes, write_histories
from devices.conformance.rules import check_rules
from ldpstream import load_survey
from ldpstream.publishing.estimates.publication import publication_key
from ldpstream.publishing.schedule import MARGIN_MS
from ldpstream.runtime.clock import now_ms
from ldpstream.services.demo import EmbeddedService
from ldpstream.surveys import Cohort, Survey
from tests.conftest import give_up
from tests.deploy.conftest import wanted
from tests.gateway.gateway_rig import Served
from tests.producers.samples import level, make_survey, one_question

from .kotlin import DEVICES, bindings, java, rust_environment
from .ten_lines import FRAMES, block, ten_lines

ROOT = DEVICES.parent
VECTORS = DEVICES / "vectors"


LISTED = (
    "surveys parameters forged hashes draws envelopes devices recipes words values ledger claims wallets signatures "
    "relay_lives relay_requests"
)
RUST_OPTIONS = ["--locked", "--quiet", "--no-default-features", "--features", "send,async,signed,relay"]


NO_SWITCH = {"CI": "", "DO_NOT_TRACK": ""}  # an empty variable does not switch devices off


class Language(NamedTuple):
    """A device, the commands in its folder, and a fault.

    Attributes:
        ready: finds out whether the machine can build the device.
        build: builds a program that counts its own use; `{built}` stands for its file.
        built: this file, in the cache; for Kotlin the program's class.
        test: runs the vectors, and prints the number of cases of each file of `LISTED`.
        life: runs the program that writes calls or sends reports; `{survey}` stands for the file of the device survey.
        fault: a file, a text in it, and the text of a device that draws a fresh memo for each report; without it, the program
            has an option for such a fault.
    """

    source: Path
    environment: dict[str, str]
    ready: list[str]
    build: list[str]
    built: str
    test: list[str]
    life: list[str]
    fault: tuple[str, str, str] | None = None


GO = Language(
    source=DEVICES / "go",
    environment={"GOTOOLCHAIN": "local", "GOPROXY": "off", "CGO_ENABLED": "0"} | NO_SWITCH,  # no network
    ready=["go", "list", "./..."],
    build=["go", "build", "-o", "{built}", "./examples/count"],
    built="go/count",
    test=["go", "test", "-count=1", "-vet=off", "-v", "./..."],
    life=["go", "run", "./examples/life", "{survey}"],
    fault=("report.go", "if !known {", "if known || !known {"),
)
RUST = Language(
    source=DEVICES / "rust",
    environment=NO_SWITCH,
    ready=["cargo", "fetch", "--locked"],
    build=["cargo", "build", *RUST_OPTIONS, "--example", "count"],
    built="rust/debug/examples/count",
    test=["cargo", "test", *RUST_OPTIONS, "--tests", "--", "--nocapture", "--test-threads=1"],
    life=["cargo", "run", *RUST_OPTIONS, "--example", "life", "--", "{survey}"],
    fault=("src/device.rs", "if !known {", "if known || !known {"),
)
KOTLIN = Language(
    source=DEVICES / "kotlin", environment=NO_SWITCH, ready=[], build=[], built="CountKt", test=[], life=["LifeKt", "{survey}"]
)
TYPESCRIPT = KOTLIN._replace(source=DEVICES / "typescript", built="", life=["node", "build/test/emit.js", "{survey}"])


def output(command: list[str], folder: Path, typed: str = "", **environment: str) -> str:
    """Runs a command, and returns its output. A failure of the command fails the test."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, input=typed, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


class Program(NamedTuple):
    """A device's folder, and one for the files of a test."""

    language: Language
    folder: Path
    files: Path

    def with_fault(self) -> "Program":
        if self.language.fault is None:
            return self._replace(language=self.language._replace(life=[*self.language.life, "--fault", "yes"]))
        name, text, fault = self.language.fault
        copied = shutil.copytree(self.folder, self.files / "faulty", ignore=shutil.ignore_patterns("target"))
        source = (copied / name).read_text()
        assert source.count(text) == 1
        (copied / name).write_text(source.replace(text, fault))
        return self._replace(folder=copied)

    def live(self, survey: Survey, *arguments: str) -> None:
        path = self.files / "survey.json"
        path.write_bytes(msgspec.json.encode(survey.device_survey))
        command = [part.format(survey=path) for part in self.language.life]
        output([*command, *arguments], self.folder, **self.language.environment)


def require_tools(*tools: str) -> None:
    if lacking := [tool for tool in tools if shutil.which(tool) is None]:
        give_up(f"no {' and no '.join(lacking)} on this machine")


def require_packages(folder: Path, ready: list[str], **environment: str) -> None:
    """Fetches the packages of a program, and finds out whether its compiler is new enough."""
    done = subprocess.run(ready, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        give_up(f"this machine cannot build the device: {done.stderr[-500:]}")


@pytest.fixture(params=[GO, RUST, KOTLIN], ids=["Go", "Rust", "Kotlin"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Program:
    language: Language = request.param
    if language is KOTLIN:
        return Program(language._replace(life=[*wanted(java), *language.life]), language.source, tmp_path)
    if language is TYPESCRIPT:
        return Program(language, request.getfixturevalue("typescript"), tmp_path)
    require_tools(language.test[0])
    require_packages(language.source, language.ready, **language.environment)
    return Program(language, language.source, tmp_path)


@pytest.fixture(scope="module", autouse=True)
def rust_folders() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rust_environment().items():
            patch.setenv(name, value)
        yield


@pytest.mark.parametrize("program", [GO, RUST], ids=["Go", "Rust"], indirect=True)
def test_the_device_passes_all_vectors(program: Program) -> None:
    told = output(program.language.test, program.folder, VECTORS=str(VECTORS), **program.language.environment)
    for name in LISTED.split():
        number = len(msgspec.json.decode((VECTORS / f"{name}.json").read_bytes()))
        assert f"{number} {name}" in told


@pytest.mark.parametrize("memos", [True, False], ids=["correct", "a fresh memo for each report"])
def test_the_check_passes_the_device_and_finds_a_fault(program: Program, memos: bool) -> None:
    survey = make_survey({"a": (4, [level("L-GRR")])})
    survey = replace(survey, cohort=Cohort(name="version", values=("1.0", "1.1", "other"), least=10))
    if not memos:
        program = program.with_fault()
    calls = program.files / "calls.jsonl"
    program.live(survey, "--seed", "7", "--devices", "2000", "--calls", str(calls))
    found = check_device(survey, read_calls(survey, calls))
    assert bool(found.failures) is not memos, found.failures


@pytest.mark.parametrize("program", [GO, RUST, TYPESCRIPT], ids=["Go", "Rust", "TypeScript"], indirect=True)
def test_the_recipes_pass_the_check(program: Program, tmp_path: Path) -> None:
    survey, histories, answers = load_survey(VECTORS / "usage.toml"), tmp_path / "histories", tmp_path / "answers"
    write_histories(survey, histories)
    program.live(survey, "--histories", str(histories), "--answers", str(answers))
    assert check_recipes(survey, answers) == (350, [])


@pytest.mark.parametrize("program", [GO, RUST, KOTLIN, TYPESCRIPT], ids=["Go", "Rust", "Kotlin", "TypeScript"], indirect=True)
def test_the_sending_passes_the_check(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "RETRY_S", 0)
    survey = one_question("L-OSUE", k=300)  # no two reports are equal
    with listening(survey, "# toml\n", 0) as (sending, url):
        program.live(survey, "--gateway", url, "--devices", str(2 * LEAST))
        assert sending.verdict() == []
        assert sending.requests == 2 * LEAST


def counting(language: Language, folder: Path) -> str:
    """Builds a program that counts its own use in the folder."""
    require_packages(language.source, language.ready, **language.environment)
    built = cache_dir() / language.built
    output([part.format(built=built) for part in language.build], language.source, **language.environment)
    return str(shutil.copy(built, folder / language.source.name))


def test_a_program_counts_its_own_use_with_consent(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks, sends nothing before the answer, shows what would leave and what left, and stops at a withdrawal."""
    monkeypatch.setattr(listener, "RETRY_S", 0)
    if program.language.built == KOTLIN.built:
        count = [*program.language.life[:-2], KOTLIN.built]
    else:
        count = [counting(program.language, tmp_path)]
    survey = load_survey(ROOT / "surveys" / "samples" / "usage.toml")
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))

    def run(*arguments: str, **environment: str) -> str:
        return output([*count, "survey.json", ".", *arguments], tmp_path, **NO_SWITCH | environment)

    with listening(survey, "# toml\n", 0) as (sending, url):
        assert f"Questions: {survey.attributes[0].name}" in run("ask")
        run("run", url)
        assert (run("journal"), sending.attempts) == ("", 0)  # nothing before the consent
        run("yes", DO_NOT_TRACK="1")
        run("run", url)
        assert sending.attempts == 0  # a consent while devices are switched off is none
        run("yes")
        run("run", url, DO_NOT_TRACK="1")
        assert '"days":{}' in (tmp_path / "usage.activity").read_text()  # the log is off, too
        assert "leaves with the next attempt" in run("preview") or survey.collection == "smp"
        run("run", url)
        left = run("journal").splitlines()
        assert len(left) == sending.requests >= 1
        run("no")
        run("run", url)
        assert (run("journal"), sending.requests) == ("", len(left))


def test_each_error_and_a_second_start_in_kotlin(tmp_path: Path) -> None:
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(one_question("L-OSUE", k=300).device_survey))
    output([*wanted(java), "ErrorsKt", "survey.json", "."], tmp_path, **NO_SWITCH)


def test_a_store_stays_if_a_program_changes_from_rust_to_go_and_back(tmp_path: Path) -> None:
    require_tools("cargo", "go")
    rust, go = (counting(language, tmp_path) for language in (RUST, GO))
    survey = load_survey(ROOT / "surveys" / "samples" / "usage.toml")
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))

    def run(*command: str) -> str:
        return output([command[0], "survey.json", ".", *command[1:]], tmp_path, **NO_SWITCH)

    run(rust, "yes")
    run(rust, "run", "local")
    for one, other in ((rust, go), (go, rust)):
        assert run(other, "preview") == run(one, "preview")
        run(other, "run", "local")
        assert run(other, "journal") == run(one, "journal") != ""


# ---- C and C++

C = DEVICES / "c"
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]


@pytest.fixture(scope="module")
def c_programs(tmp_path_factory: pytest.TempPathFactory, rust_folders: None) -> Path:
    """A folder with the library and the compiled examples."""
    require_tools("cargo", "gcc", "g++")
    folder = tmp_path_factory.mktemp("devices")
    require_packages(C, RUST.ready)
    output(["cargo", "build", "--locked", "--quiet"], C)
    shutil.copy(cache_dir() / "rust" / "debug" / "libldpstream_device.so", folder)
    link = ["-I", str(C / "include"), "-L", str(folder), "-lldpstream_device", f"-Wl,-rpath,{folder}"]
    output(["gcc", "-std=c11", *WARNINGS, str(C / "example" / "errors.c"), *link, "-o", "errors"], folder)
    output(["gcc", "-std=c11", *WARNINGS, str(C / "example" / "driver.c"), *link, "-o", "driver"], folder)
    output(["g++", "-std=c++17", *WARNINGS, str(C / "example" / "count.cpp"), *link, "-o", "count"], folder)
    return folder


def test_the_header_and_each_error_in_c(c_programs: Path, tmp_path: Path) -> None:
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(one_question("L-OSUE", k=300).device_survey))
    output([str(c_programs / "errors"), "survey.json", "person.device", "zone", "7"], tmp_path, **NO_SWITCH)


def test_a_device_in_c_survives_a_cut_at_every_change_of_its_disk(c_programs: Path) -> None:
    cuts = ["cargo", "test", *RUST_OPTIONS, "--test", "cuts"]
    output(cuts, RUST.source, LIFE_PROGRAM=str(c_programs / "driver"), **NO_SWITCH)


def test_the_calls_for_the_audit_of_devices_in_python_and_c_keep_every_rule(c_programs: Path, tmp_path: Path) -> None:
    survey = load_survey(ROOT / "devices" / "conformance" / "languages.toml")
    for write in (languages.python, partial(languages.drive, c_programs / "driver")):
        with TemporaryDirectory(dir=tmp_path) as folder:
            (Path(folder) / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
            write(survey, Path(folder), 40, False)
            observed = check_rules(survey, read_calls(survey, Path(folder) / "calls.jsonl"))
        assert (observed.faults, observed.calls) == ([], 40 * 3 // 2 * languages.STEPS * len(survey.attributes))


def test_a_program_in_cpp_sends_while_its_event_loop_runs(
    c_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "RETRY_S", 0)
    survey = one_question("L-OSUE", k=300)  # no two reports are equal
    (tmp_path / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
    with listening(survey, "# toml\n", 0) as (sending, url):
        host, port = url.removeprefix("http://").rsplit(":", 1)
        for number in range(LEAST):
            command = [str(c_programs / "count"), "survey.json", f"{number}.device", host, port, "zone", "7"]
            told = output(command, tmp_path, "y", **NO_SWITCH)
            for text in ("Purpose: ", "an example, which chance draws anew; nothing leaves now", "counted\nzone of step"):
                assert text in told
        assert sending.verdict() == []
        assert sending.requests == LEAST


def test_the_library_refuses_a_survey_that_needs_a_log_or_a_relay(c_programs: Path, tmp_path: Path) -> None:
    computed = load_survey(ROOT / "surveys" / "samples" / "usage.toml")
    relayed = replace(one_question("L-OSUE"), relay="required", lateness_steps=2)
    for survey, error in ((computed, "UnknownSurvey"), (relayed, "RelayRequired")):
        (tmp_path / "survey.json").write_bytes(msgspec.json.encode(survey.device_survey))
        command = [str(c_programs / "count"), "survey.json", "a.device", "127.0.0.1", "1", "zone", "7"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, error in done.stderr) == (2, True)


# ---- the page "Your language"


def program_of_the_page(language: str, folder: Path, request: pytest.FixtureRequest) -> list[str]:
    """Compiles the program of the page in a language, and returns the command that runs it."""
    if language == "kotlin":
        return [*wanted(java), "TenLinesKt"]
    source, program = folder / f"ten_lines.{'mjs' if language == 'ts' else language}", folder / "program"
    source.write_text(ten_lines(language))
    if language == "py":
        return [sys.executable, str(source)]
    if language == "ts":
        (packages := folder / "node_modules" / "@ldpstream").mkdir(parents=True)
        (packages / "device").symlink_to(request.getfixturevalue("typescript"))
        return ["node", str(source)]
    command, cwd = ["go", "build", "-o", str(program), str(source)], GO.source
    if language == "rs":
        output(["cargo", "build", *RUST_OPTIONS], RUST.source)
        debug = cache_dir() / "rust" / "debug"
        extern = ["--extern", f"ldpstream_device={debug / 'libldpstream_device.rlib'}", "-L", f"dependency={debug / 'deps'}"]
        command, cwd = ["rustc", "--edition", "2024", str(source), *extern, "-o", str(program)], RUST.source
    elif language == "c":
        library = request.getfixturevalue("c_programs")
        link = ["-I", str(C / "include"), "-L", str(library), "-lldpstream_device", f"-Wl,-rpath,{library}"]
        command, cwd = ["gcc", *WARNINGS, str(source), *link, "-o", str(program)], folder
    require_tools(command[0])
    output(command, cwd, **GO.environment)
    return [str(program)]


def test_the_page_s_programs_in_all_languages_report_into_one_published_histogram(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    survey = load_survey(FRAMES / "commute.toml")
    service, gateway = EmbeddedService(survey), Served(survey=survey, now_ms=now_ms)
    with closing(gateway):
        for number, language in enumerate(["py", "ts", "go", "rs", "c", "kotlin"]):
            (folder := tmp_path / language).mkdir()
            shutil.copy(FRAMES / "commute.toml", folder)
            (folder / "commute.json").write_bytes(msgspec.json.encode(survey.device_survey))
            command = program_of_the_page(language, folder, request)
            assert output(command, folder, **NO_SWITCH, PIN=survey.device_survey.pin, GATEWAY=gateway.url) == ""
            counted = gateway.rig.log.counted()
            assert len(counted) == number + 1, language
    service.now_ms = now_ms()
    for (envelope,) in counted:
        service.append(envelope)
    step = survey.step_at(service.now_ms)
    service.now_ms = survey.closes_ms(step) + MARGIN_MS
    published = {one.key: one for one in service.estimate()}
    assert published[publication_key("mode", "window", step)].reports == len(counted)  # also if a day ended meanwhile


def test_the_generator_gives_each_call_of_the_page_in_swift(tmp_path: Path) -> None:
    wanted(lambda: bindings("swift", tmp_path))
    habits = DEVICES / "swift" / "Sources" / "LdpstreamDevice" / "Habits.swift"
    known = (tmp_path / "LdpstreamDevice.swift").read_text() + habits.read_text()
    for name in set(re.findall(r"(\w+)\(", block("swift"))) - {"agrees", "Data", "URL"}:
        assert re.search(rf"(func `?|class |struct ){name}\b", known), name
