"""All names on which users and other programs rely. A test fails if a name differs from `surface.json`.

python -m tests.ldpstream.surface      rewrites `surface.json` after an intended change
"""

import ast
import inspect
import json
import re
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import typer.main

from ldpstream.commands.cli import app
from ldpstream.gateway.http.app import openapi
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.publishing.process.metrics import METRICS
from ldpstream.runtime.settings import PREFIX, Settings
from ldpstream.surveys import load_survey
from ldpstream.surveys.envelope import REASONS, VERSION
from tests.faults.memory_store import MemoryResults

from .rooms import INSTALLED, sources, tree_of

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("surface.json")
PACKAGES = ("ldpstream", "ldpstream.device", "ldpstream.mechanisms", "ldpstream.surveys", "ldpstream.estimators")
METRIC_KINDS = {"Counter", "Gauge", "Histogram", "gauge"}


def surface() -> dict[str, Any]:
    """Sorted names by kind: Python, command line, settings, metrics, Redis keys, HTTP paths, JSON fields, file formats."""
    survey = load_survey(ROOT / "surveys" / "samples" / "demo.toml")
    return {
        "python": {name: _signatures(name) for name in PACKAGES},
        "commands": _commands(typer.main.get_command(app)),
        "settings": {PREFIX + name.upper(): repr(about.default) for name, about in Settings.model_fields.items()},
        "metrics": _metrics(),
        "redis keys": sorted(_strings(r"\{?ldpstream:[^\"]*")),
        "estimates over HTTP": _api(create_api(Served(survey, MemoryResults(), dict)).openapi()),
        "gateway": _api(openapi(False)),
        "publication": sorted(field.encode_name for field in msgspec.structs.fields(Publication)),
        "envelope": {"version": VERSION, "reasons": list(REASONS)},
    }


def _signatures(module: str) -> dict[str, str]:
    package = import_module(module)
    names = getattr(package, "__all__", None) or [
        name for name, what in vars(package).items() if getattr(what, "__module__", None) == module and not name.startswith("_")
    ]
    found = {}
    for name in sorted(names):
        what = getattr(package, name)
        if inspect.isclass(what):
            own = {a.name for a in inspect.classify_class_attrs(what) if a.defining_class.__module__ != "builtins"}
            members = (m for m in inspect.getmembers(what) if m[0] in own and not m[0].startswith("_"))
            found[name] = " ".join([m + _signature(v) for m, v in members])
        elif not isinstance(what, types.ModuleType):
            found[name] = _signature(what) if inspect.isroutine(what) else ""
    return found


def _signature(what: Any) -> str:
    try:
        return f"({', '.join(inspect.signature(what).parameters)})" if callable(what) else ""
    except ValueError:
        return ""


def _commands(command: Any, prefix: str = "") -> dict[str, list[str]]:
    found = {prefix or "ldpstream": sorted(option for p in command.params for option in (*p.opts, *p.secondary_opts))}
    for name, inner in getattr(command, "commands", {}).items():
        found |= _commands(inner, f"{prefix} {name}".strip())
    return dict(sorted(found.items()))


def _trees() -> list[ast.Module]:
    return [tree_of(path) for room in sorted(INSTALLED) for path in sorted(sources(room))]


def _metrics() -> dict[str, str]:
    """Returns the metrics that the sources define, each with its kind."""
    found = {}
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in METRIC_KINDS and node.args:
                name = _text(node.args[0]).removeprefix("ldpstream_")
                if re.fullmatch("[a-z_]+", name):
                    found[f"ldpstream_{name}"] = node.func.id.capitalize()
    return found | {f"ldpstream_{metric.name}": "Counter" if metric.counter else "Gauge" for metric in METRICS}


def _strings(pattern: str) -> set[str]:
    texts = {_text(node) for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    return {text for text in texts if re.match(pattern, text) and " " not in text}


def _text(node: ast.AST) -> str:
    """Returns a string of the source, with `*` for each inserted value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _api(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the paths with their parameters, and the fields of the responses."""
    paths = {
        f"{method} {path}": sorted(p.get("name", "?") for p in about.get("parameters", []))
        for path, methods in document["paths"].items()
        for method, about in methods.items()
        if isinstance(about, dict)
    }
    schemas = document.get("components", {}).get("schemas", {})
    return {"paths": paths, "fields": {name: sorted(about.get("properties", {})) for name, about in schemas.items()}}


def main() -> None:
    RECORDED.write_text(json.dumps(surface(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
