"""Renders the table of settings from the fields of `runtime.settings.Settings`."""

import ast
import inspect
from itertools import pairwise
from typing import Any

from pydantic import SecretStr

from ldpstream.runtime.settings import PREFIX, Settings


def settings_table() -> str:
    """Returns one row for each setting: variable, default and meaning."""
    meanings = _meanings()
    return "".join(
        f"| `{PREFIX}{name.upper()}` | {_shown(field.default)} | {meanings[name]} |\n"
        for name, field in Settings.model_fields.items()
    )


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
