"""Writes the generated parts of the reference pages:  python -m tests.docs.reference

A part stands between the comments `begin NAME` and `end NAME` of its page, where NAME is the name of a function below. The
functions read the command line, the survey's types, the schemas, the API, the estimators, the settings and the alerts. The
meanings come from docstrings and help texts.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import typer
import yaml

import ldpstream.surveys.survey
from ldpstream.commands.cli import app
from ldpstream.planning.forecast import PeopleDocument
from ldpstream.promises.check_document import CheckedSurvey
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.catalogue import ESTIMATORS
from ldpstream.surveys import load_survey
from tests.docs.settings_table import settings_table

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
_PART = re.compile(r"(?ms)^(<!-- begin (\w+) -->\n\n).*?\n?^(<!-- end \2 -->)$")


def rows(heads: str, cells: Iterable[Iterable[str]]) -> str:
    """Returns a table. A line break in a cell becomes a blank, and a bar does not end the cell."""
    columns = heads.split(" | ")
    lines = [f"| {heads} |", "|---" * len(columns) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(_flat(cell) for cell in row) + " |" for row in cells)]) + "\n"


def _flat(cell: str) -> str:
    return " ".join(cell.split()).replace("``", "`").replace("|", "\\|") or "–"


def meanings(docstring: str) -> tuple[str, dict[str, str]]:
    """Returns a docstring's introduction, and the meaning of each name in its section `Attributes`."""
    introduction, _, listed = inspect.cleandoc(docstring).partition("\n\nAttributes:\n")
    told = re.findall(r"(?m)^    (\w[\w, ]*): ((?:.+)(?:\n {8}.+)*)", listed)
    return introduction, {
        name: " ".join(meaning.split()).removesuffix(".") for names, meaning in told for name in names.split(", ")
    }


def kind(schema: dict[str, Any]) -> str:
    """Returns the type and the range of a JSON Schema in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"] if one is not None)
    if "$ref" in schema:
        return f"[{schema['$ref'].rpartition('/')[2]}](#{schema['$ref'].rpartition('/')[2].lower()})"
    if schema.get("type") == "array":
        items: dict[str, Any] = schema.get("items") or schema["prefixItems"][0]
        return f"list of {kind(items)}{_range(schema, 'minItems', 'maxItems')}"
    if schema.get("type") in ("integer", "number"):
        return f"{schema['type']}{_range(schema, 'minimum', 'maximum')}"
    if schema.get("format") == "date-time":
        return "date and time"
    return {"string": "text", "boolean": "true or false", "object": "table"}.get(schema.get("type", ""), "any")


def _range(schema: dict[str, Any], low: str, high: str) -> str:
    least, most = (None if schema.get(key) is None else f"{schema[key]:,}".replace(",", " ") for key in (low, high))
    if least == most:
        return f" ({least})" if least else ""
    if least and most:
        return f", {least} to {most}"
    return f", at least {least}" if least else f", at most {most}" if most else ""


def _tables(
    document: dict[str, Any], names: Iterable[str], row: Callable[[str, str, dict[str, Any]], list[str]], heads: str
) -> str:
    """Returns a section with a table for each object of a JSON Schema."""
    parts = []
    for name in names:
        about = document["$defs"][name]
        introduction, told = meanings(about.get("description", ""))
        cells = [[*row(name, key, schema), _meaning(told, introduction, key)] for key, schema in about["properties"].items()]
        parts.append(f"## {name}\n\n{introduction.replace('``', '`')}\n\n{rows(heads, cells)}")
    return "\n".join(parts)


def _meaning(told: dict[str, str], introduction: str, key: str) -> str:
    return told.get(key) or told.get(f"{key}s") or ("see above" if f"`{key}`" in introduction else "")


# ---- the parts


def survey_keys() -> str:
    document = msgspec.json.schema(ldpstream.surveys.survey.Survey)
    tables = re.split(r"(?m)^    \[+(?=[a-z.]+\]+)", ldpstream.surveys.survey.__doc__ or "")
    examples = {"Survey": tables[0]}
    for part in tables[1:]:
        name = {"cohort": "Cohort", "attribute": "Attribute", "attribute.level": "Level"}[part.partition("]")[0]]
        examples[name] = examples.get(name, "") + part

    examples["Recipe"] = examples["Attribute"]

    def row(name: str, key: str, schema: dict[str, Any]) -> list[str]:
        found = re.search(rf"(?<![\w-]){key} = (\"[^\"]*\"|\[[^\]]*\]|\{{.*?\}}|[\w.:-]+)", examples[name])
        default = schema.get("default")
        shown = "required" if key in document["$defs"][name]["required"] else "–" if default in (None, {}) else f"`{default}`"
        return [f"`{key}`", kind(schema), shown.replace("False", "false"), f"`{found[1]}`" if found else ""]

    names = ("Survey", "Cohort", "Attribute", "Recipe", "Level")
    return _tables(document, names, row, "key | type | default | example | meaning")


def survey_example() -> str:
    example = re.findall(r"(?m)^(?:    .*)?\n", ldpstream.surveys.survey.__doc__ or "")
    return "```toml\n" + "".join(line[4:] or "\n" for line in example).strip("\n") + "\n```\n"


def check_document() -> str:
    return _documents(CheckedSurvey)


def people_document() -> str:
    return _documents(PeopleDocument)


def _documents(document: type[msgspec.Struct]) -> str:
    schema = msgspec.json.schema(document)
    for part in schema["$defs"].values():
        part["description"] = inspect.cleandoc(part["description"]).replace("None", "null")
    return _tables(schema, schema["$defs"], lambda _, key, one: [f"`{key}`", kind(one)], "key | type | meaning")


def commands() -> str:
    parts = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]  # a group
        arguments = [p for p in command.params if not p.opts[0].startswith("-")]
        usage = " ".join([f"ldpstream {name}", *(p.metavar or p.name.upper() for p in arguments), "[OPTIONS]"])
        cells = [[f"`{_option(p)}`", p.help or "", _default(p)] for p in command.params]
        help_text = textwrap.fill(" ".join(command.help.split()), 128, break_on_hyphens=False)
        parts.append(f"## ldpstream {name}\n\n{help_text}\n\n    {usage}\n\n{rows('option | meaning | default', cells)}")
    return "\n".join(parts)


def _option(parameter: Any) -> str:
    if not parameter.opts[0].startswith("-"):
        return str(parameter.metavar or parameter.name.upper())
    off = f" / {parameter.secondary_opts[0]}" if parameter.secondary_opts else ""
    kinds = {"str": "TEXT", "int": "N", "float": "X", "Path": "FILE"}
    named = parameter.metavar or kinds.get(parameter.type_descriptor.annotation.__name__, "VALUE")
    return f"{parameter.opts[0]}{'' if parameter.is_flag else f' {named}'}{off}"


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return str(parameter.show_default)
    if parameter.required:
        return "required"
    return "" if parameter.default in (None, False, ()) or not parameter.show_default else f"`{parameter.default}`"


def openapi() -> dict[str, Any]:
    results: Any = None  # no request needs them
    survey = load_survey(ROOT / "surveys" / "samples" / "commute.toml")
    return create_api(Served(survey, results, dict)).openapi()


def api_paths() -> str:
    return rows(
        "path | answer",
        (
            [f"`{path.replace('{attribute}', 'NAME')}`", about["get"]["description"]]
            for path, about in openapi()["paths"].items()
        ),
    )


def api_parameters() -> str:
    asked: dict[str, dict[str, Any]] = {}
    for path in openapi()["paths"].values():
        for parameter in path["get"].get("parameters", []):
            if parameter["in"] == "query":
                asked.setdefault(parameter["name"], parameter["schema"])
    return rows(
        "parameter | meaning | type | default",
        (
            [f"`{name}`", schema["description"], kind(schema), f"`{schema['default']}`" if "default" in schema else ""]
            for name, schema in asked.items()
        ),
    )


def estimators() -> str:
    return rows(
        "`estimator` | name | meaning | for | values | intervals, if the levels agree",
        (
            [f"`{row.name}`", row.label, row.meaning, row.mechanisms, _most(row.max_k), row.intervals]
            for row in ESTIMATORS
        ),
    )  # fmt: skip


def _most(k: int | None) -> str:
    return "any number" if k is None else f"at most {k:,}".replace(",", " ")


def settings() -> str:
    return "| variable | default | meaning |\n|---|---|---|\n" + settings_table()


def alerts() -> str:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    return rows(
        "alert | severity | says",
        (
            [
                f"[{rule['alert']}](#{rule['alert'].lower()})",
                rule["labels"]["severity"],
                re.sub(r"\{\{.*?\}\}", "…", rule["annotations"]["summary"]),
            ]
            for rule in rules
        ),
    )


PARTS = {
    part.__name__: part
    for part in (
        survey_example, survey_keys, check_document, people_document, commands, api_paths, api_parameters, estimators, settings,
        alerts,
    )
}  # fmt: skip


def pages() -> dict[Path, str]:
    """Returns every page of the reference with its parts made again."""
    return {
        path: _PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}\n{found[3]}", path.read_text(encoding="utf-8"))
        for path in sorted(REFERENCE.glob("*.md"))
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
