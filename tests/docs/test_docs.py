"""Checks that the documents' links, commands and settings exist, and that example bytes and numbers agree with the code."""

import math
import re
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from lab import results_page
from ldpstream.commands.cli import app
from ldpstream.gateway.http.problems import FINAL, RETRY_S, STATUS
from ldpstream.mechanisms import mechanism
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import load_survey, parse_survey
from ldpstream.surveys.envelope import REASONS, seal
from tests.docs import reference
from tests.docs.estimates_schema import SCHEMA, estimates_schema
from tests.docs.settings_table import settings_table
from tests.docs.tables import METRICS

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = {path.name: path.read_text() for path in DOCS}
GENERATED = (*results_page.PAGES, "papers.md", *(paper.file for paper in results_page.PAPERS.values()))
CHECKOUT_COMMANDS = sorted(
    {c for text in TEXTS.values() for c in re.findall(r"`python -m ((?:lab|devices)\.[a-z]+(?: [^`]+)?)`", text)}
)
FRONT = [(ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "devices/typescript/README.md")]
COMMANDS = sorted(
    {
        command
        for text in (*TEXTS.values(), *FRONT)
        for found in re.findall(r"`(ldpstream [a-z][^`]*)`|(?m:^ {4}(?:\.venv/bin/)?(ldpstream [a-z].*?)(?: +#.*)?$)", text)
        for command in found
        if command
    }
)
FOLDERS = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")


def anchors(text: str) -> set[str]:
    """Returns the anchors of a document's headings."""
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", [*DOCS, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_all_links_exist(path: Path) -> None:
    for target, _, anchor in (link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text())):
        found = path.parent / target if target else path
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text()), anchor


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([\w-]+)`|(?m:^    make ([\w-]+))", "\n".join(FRONT)))))
def test_every_make_target_exists(target: tuple[str, str]) -> None:
    assert re.search(rf"(?m)^(?:[\w-]+ )*{''.join(target)}(?: [\w-]+)*:", (ROOT / "Makefile").read_text())


def test_all_paths_exist() -> None:
    for path in re.findall(rf"`((?:{FOLDERS})/[\w/.]*)`|(?:src|srcset)=\"([^\"]+)\"", FRONT[0] + FRONT[1]):
        assert (ROOT / "".join(path)).exists(), path


def test_the_list_of_changes_describes_one_release() -> None:
    """Merges by union bring a deleted table of earlier changes back."""
    headings = re.findall(r"(?m)^#+ .+$", (ROOT / "CHANGELOG.md").read_text())
    assert headings == ["# Changes", "## 0.1.0 (unreleased)"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_exists(command: str) -> None:
    _, name, *rest = command.split()
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in rest if word.startswith("--"))


@pytest.mark.parametrize("command", CHECKOUT_COMMANDS)
def test_every_command_of_a_checkout_exists(command: str) -> None:
    module, *rest = command.split()
    names = rest[:1] if module == "lab.bench" else []  # `bench` is a group of commands
    shown = CliRunner().invoke(
        import_module(f"{module}.__main__").app, [*names, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    )
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in rest if word.startswith("--"))


@pytest.mark.parametrize("name", sorted({n for text in TEXTS.values() for n in re.findall(r"LDPSTREAM_[A-Z0-9_]+", text)}))
def test_every_setting_exists(name: str) -> None:
    field = name.removeprefix("LDPSTREAM_").lower()
    assert field in Settings.model_fields or field.removesuffix("_file") in Settings.model_fields


def test_the_example_envelope_is_the_codes() -> None:
    survey = parse_survey(tomllib.loads((ROOT / "surveys" / "samples" / "demo.toml").read_text()))
    assert survey.fingerprint.hex() == "c9fdd17dccc4845d"
    sealed = seal(survey, 0, 0, 7, np.array([5, 0, 3], survey.mechanisms[0][0].report_dtype))
    assert sealed.hex(" ") in TEXTS["wire_format.md"]
    assert all(reason in TEXTS["wire_format.md"].replace("\n", " ") for reason in (*REASONS, "unreadable batch"))


def test_the_numbers_in_choose_are_the_codes() -> None:
    m = mechanism("L-OSUE", k=100, eps_inf=2.0, eps_1=1.0)
    few, many = [f"{100 * m.variance(0.0, n) ** 0.5:.2g}" for n in (10_000, 1_000_000)]
    said = f"of a rare value is {few} percentage points for n = 10 000 people. It is {many} for a million people"
    assert said in TEXTS["choose.md"].replace("\n", " ")
    chances = [100 * mechanism("L-GRR", k=6, eps_inf=eps, eps_1=eps / 2).guess(math.inf) for eps in (4.0, 2.0)]
    assert "ε∞ = 4 gives {:.1f} %, ε∞ = 2 gives {:.1f} %".format(*chances) in TEXTS["choose.md"]
    ranked = {k: [mechanism(x, k=k, eps_inf=2.0, eps_1=1.0).variance() for x in ("L-GRR", "L-OSUE")] for k in (10, 11)}
    assert ranked[10][0] < ranked[10][1]  # k < 3e + 2 = 10.2
    assert ranked[11][0] > ranked[11][1]


def test_the_example_worked_by_hand_is_the_codes() -> None:
    m = mechanism("GRR", 4, eps=1.0)
    p, q = math.e / (math.e + 3), 1 / (math.e + 3)
    assert m.channel() == pytest.approx(np.full((4, 4), q) + (p - q) * np.eye(4))
    text = TEXTS["noise.md"].replace("\n", " ")
    assert "in 48 of 100 cases and each other answer in 17" in text
    assert (round(100 * p), int(100 * q), round(p, 3), round(q, 3)) == (48, 17, 0.475, 0.175)
    assert all(f"{one:.4f} × 500 = {500 * one:.0f} |" in text for one in (p, q))
    errors = [100 * m.variance(0.5, n) ** 0.5 for n in (1000, 100_000)]
    assert f"makes {errors[0]:.1f}. The 95 % interval is 1.96 times as wide on each side: 50 ± {1.96 * errors[0]:.0f} %" in text
    assert f"± {1.96 * errors[1]:.1f} %: a hundred times" in text
    assert f"right in 25 of 100 cases, and with your report in {100 * m.guess(1):.0f}" in text


@pytest.mark.parametrize("path", [path for path in DOCS if path.name != "README.md"], ids=lambda path: path.name)
def test_a_page_begins_with_its_readers(path: Path) -> None:
    """The first paragraph says for whom the page is, and what the reader can do afterwards."""
    assert re.match(r"# .+\n+For [a-z]", path.read_text())


def test_the_program_of_the_typescript_device_fits_its_survey() -> None:
    (program, *_) = re.findall(r"(?s)```js\n(.*?)```", (ROOT / "devices" / "typescript" / "README.md").read_text())
    survey = load_survey(ROOT / "surveys" / "samples" / "commute.toml")
    assert f'pin = "{survey.pin}"' in program
    ((name, level),) = re.findall(r"levels: \{ (\w+): \"(\w+)\" \}", program)
    attribute = survey.attributes[survey.index(name)]
    assert level in [one.name for one in attribute.levels]
    ((reported, value),) = re.findall(r"report\(\"(\w+)\", \"(\w+)\"\)", program)
    assert reported == name
    assert value in (attribute.values or ())


def test_the_notebook_example_runs() -> None:
    (code,) = [block for block in re.findall(r"(?:(?:    .*)?\n)+", TEXTS["estimates.md"]) if "import numpy" in block]
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)  # our own document
    assert names["estimate"].frequencies.shape == (100,)


@pytest.mark.parametrize("path", reference.pages(), ids=lambda path: path.name)
def test_the_generated_parts_of_the_reference_are_up_to_date(path: Path) -> None:
    """If this test fails, run `python -m tests.docs.reference`."""
    assert path.read_text() == reference.pages()[path]


def test_the_example_of_the_survey_file_is_a_survey() -> None:
    (example,) = re.findall(r"(?s)```toml\n(.*?)```", reference.survey_example())
    assert len(parse_survey(tomllib.loads(example)).attributes) == 5


def test_the_reference_is_complete() -> None:
    """Each part stands on one page, and no key or option lacks its meaning."""
    texts = {path.name: path.read_text() for path in reference.pages()}
    assert sorted(re.findall(r"<!-- begin (\w+) -->", "".join(texts.values()))) == sorted(reference.PARTS)
    assert settings_table().count("\n") == len(Settings.model_fields)
    for name in ("survey.md", "commands.md", "settings.md"):
        table = [line.split(" | ") for line in texts[name].splitlines() if line.startswith("| `")]
        assert table
        assert not [cells[0] for cells in table if "–" in (cells[-1].strip(" |") if name != "commands.md" else cells[1])]


def test_the_schema_of_the_estimates_is_the_codes() -> None:
    """If this test fails after a change of the publications, run `python -m tests.docs.estimates_schema`."""
    assert SCHEMA.read_text() == estimates_schema()
    assert "estimates.schema.json" in TEXTS["wire_format.md"]


def test_every_alert_has_a_documented_cause_and_remedy() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    sections = dict(re.findall(r"(?ms)^## (Ldpstream\w+)\n(.*?)(?=^#|\Z)", TEXTS["alerts.md"]))
    assert list(sections) == [rule["alert"] for rule in rules]
    for rule in rules:
        said = sections[rule["alert"]]
        assert said.startswith(rule["labels"]["severity"] + ".")
        assert all(word in said for word in ("*Cause:*", "*Remedy:*"))


def test_the_table_of_gateway_answers_is_the_codes() -> None:
    text = TEXTS["write_a_device.md"]
    rows = re.findall(r"(?m)^\| (\d{3}[\d, ]*) \| (.*?) \| (.*?) \|", text[text.index("| status | problems |") :])
    told = {cause: int(status) for statuses, causes, _ in rows for cause, status in _each(statuses, causes)}
    assert told == STATUS
    by_outcome = {outcome: [int(status) for status in statuses.split(", ")] for statuses, _, outcome in rows}
    assert by_outcome["never count by this or a later attempt"] == [FINAL]
    assert by_outcome["may be in the log"] == [500, 504]
    (waits,) = re.findall(r"`Retry-After` comes with (.*?)\.", text)
    assert sorted({STATUS[cause] for cause in RETRY_S}) == [int(status) for status in re.findall(r"\d+", waits)]


def _each(statuses: str, causes: str) -> list[tuple[str, str]]:
    """Returns each problem of a row with its status. The row must list exactly the statuses of its problems."""
    named = re.findall(r"`([a-z ]+)`", causes)
    assert {str(STATUS[cause]) for cause in named} == set(statuses.split(", ")) - {"202"}
    return [(cause, str(STATUS[cause])) for cause in named]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_metric_exists(name: str) -> None:
    documented = {metric for metrics in METRICS.values() for metric in metrics}
    named = set(re.findall(r"`(ldpstream_[a-z_]+)", TEXTS[name]))
    assert named <= documented | {f"{metric}_count" for metric in documented}


@pytest.mark.parametrize("path", [*DOCS, *ROOT.glob("*.md")], ids=lambda path: path.name)
def test_prose_is_wrapped(path: Path) -> None:
    prose = re.sub(r"(?ms)^```.*?^```", "", path.read_text()) if path.name not in GENERATED else ""
    assert not [line for line in prose.split("\n") if len(line) > 128 and not re.match(r"\||!\[|    ", line)]
