"""Renders the table of settings in docs/reference/settings.md from the fields of `runtime.settings.Settings`.

python -m tests.docs.settings_table      rewrites the table; run this command after a change of a setting
"""

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ldpstream.runtime.settings import PREFIX, Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
_TABLE = re.compile(r"(?<=\| variable \| default \| meaning \|\n\|---\|---\|---\|\n)(?:\|.*\n)*")


def settings_table() -> str:
    """Returns one row for each setting: variable, default and meaning."""
    meanings = _meanings()
    return "".join(
        f"| `{PREFIX}{name.upper()}` | {_shown(field.default)} | {meanings[name]} |\n"
        for name, field in Settings.model_fields.items()
    )


def written_table() -> str:
    """Returns the table's rows from the document."""
    (found,) = _TABLE.findall(DOCUMENT.read_text(encoding="utf-8"))
    return str(found)


def _meanings() -> dict[str, str]:
    """Returns the docstring below each field, in one line. (If Pydantic read the docstrings, processes would start later.)"""
    (settings,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(settings, ast.ClassDef)
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(settings.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _shown(default: Any) -> str:
    value = default.get_secret_value() if isinstance(default, SecretStr) else default
    return "–" if value in (None, "") else f"`{value}`"


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(_TABLE.sub(lambda _: settings_table(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
