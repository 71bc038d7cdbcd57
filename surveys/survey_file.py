"""Reads a survey from TOML, and explains what is wrong with it in one line."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from surveys.errors import did_you_mean
from surveys.survey import Attribute, Level, Survey, SurveyError


def parse_survey(document: dict[str, Any], source: str = "survey") -> Survey:
    """A survey from a parsed TOML document; error messages name `source` as the document's origin."""
    try:
        return Survey.model_validate(_tuples(document))
    except ValidationError as error:
        raise SurveyError(f"{source}: {_explain(error)}") from error


def load_survey(path: str | Path) -> Survey:
    """Reads and checks a survey file.

    Raises:
        SurveyError: if the file cannot be read, is not TOML, or is not a survey.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SurveyError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # the file is not UTF-8 or not TOML, or has excessive numbers or nesting
        raise SurveyError(f"{path}: not TOML: {error}") from None
    try:
        return parse_survey(document, str(path))
    except RecursionError:
        raise SurveyError(f"{path}: nested too deeply") from None


def _tuples(value: Any) -> Any:
    """The document with tuples in place of lists, as strict validation expects."""
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(_tuples(inner) for inner in value) if isinstance(value, list) else value


def _explain(error: ValidationError) -> str:
    # a misspelt key causes two errors: the key itself is unknown, and the key that was meant is missing
    first, *more = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    where = ""
    for part in first["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    message = first["msg"].removeprefix("Value error, ")
    given = first["input"]
    shown = f", got {given!r}" if isinstance(given, (str, int, float, bool)) else ""
    if first["type"] == "extra_forbidden":
        message, shown = _unknown_key(first["loc"]), ""
    elif first["type"] == "missing":
        message = "the key is missing"
    rest = f" (and {len(more)} more)" if more else ""
    return f"{where + ': ' if where else ''}{message}{shown}{rest}"


def _unknown_key(place: tuple[int | str, ...]) -> str:
    part: type[BaseModel] = Survey if len(place) == 1 else Attribute if len(place) == 3 else Level
    known = [field.alias or name for name, field in part.model_fields.items()]
    return "unknown key" + (did_you_mean(str(place[-1]), known) or f"; allowed are {', '.join(known)}")
