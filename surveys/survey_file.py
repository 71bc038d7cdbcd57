"""Reads a survey from TOML, and explains what is wrong with it in one line."""

import re
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import msgspec

from ldpstream.surveys.errors import did_you_mean
from ldpstream.surveys.questions import ANY, LABEL, NAME, Attribute, Calibration, Cohort, Level, Measure, Outside, Recipe
from ldpstream.surveys.survey import HEX, Collection, Relay, Survey, SurveyError

_PATTERNS = {
    NAME: "must be 1 to 64 letters, digits, dots, underscores or hyphens",
    LABEL: "must not contain control characters",
    HEX: "must be a fingerprint: 16 lower-case hexadecimal digits, as `ldpstream check` prints them",
}
_CHOICES = {
    "collection": get_args(Collection), "calibration": get_args(Calibration), "outside": get_args(Outside),
    "relay": get_args(Relay), "measure": get_args(Measure), "choices": (ANY, "a whole number"),
}  # fmt: skip
MAX_CHARACTERS = 4 * 2**20  # of a survey's text; with escapes, it fits a record of the survey's topic
MAX_PARTS = 16  # of a key such as a.b.c
_TEXTS = re.compile(r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*')  # texts and comments
_LONG_KEY = re.compile(rf"(?<![\w-])[\w-]++(?>\s*\.\s*[\w-]++){{{MAX_PARTS}}}")
_WORDS = {
    "int": "an integer", "float": "a number", "str": "a text", "array": "a list", "object": "a table",
    "datetime": "a date and time without quotes (2026-01-05T00:00:00Z)",
}  # fmt: skip


def parse_survey(document: dict[str, Any], source: str = "survey") -> Survey:
    """A survey from a parsed TOML document.

    Args:
        source: the origin of the document, for error messages.

    Raises:
        SurveyError: if the document is not a survey.
    """
    try:
        return msgspec.convert(document, Survey, builtin_types=(datetime,))
    except msgspec.ValidationError as error:
        raise SurveyError(f"{source}: {_explain(str(error), document)}") from error


def toml_document(text: str) -> dict[str, Any]:
    """Parses TOML of bounded size: the parser's time and memory grow with the square of the parts of a key.

    Raises:
        ValueError: if the text is not TOML or exceeds a limit.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"a survey has at most {MAX_CHARACTERS >> 20} Mi characters")
    if _LONG_KEY.search(_TEXTS.sub("x", text)):  # a text may be a part of a key
        raise ValueError(f"a key has at most {MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def load_survey(path: str | Path) -> Survey:
    """Reads and checks a survey file.

    Raises:
        SurveyError: if the file cannot be read, is not TOML, or is not a survey.
    """
    return read_survey(path)[0]


def read_survey(path: str | Path) -> tuple[Survey, str]:
    """Like `load_survey`, and also returns the file's text, without a byte order mark."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(4 * MAX_CHARACTERS + 1)
    except OSError as error:
        raise SurveyError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        kind = "UTF-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else f"not UTF-8 ({error.reason} in byte {error.start})"
        raise SurveyError(f"{path}: is {kind}; save the survey as UTF-8") from None
    try:
        document = toml_document(text)
    except ValueError as error:  # also excessive numbers
        hint = "; write each of several tables as [[attribute]] and [[attribute.level]]" if "twice" in str(error) else ""
        if not re.search(r"^\s*(\[|[\w\"'.-]+\s*=)", text, re.MULTILINE):
            hint = "; no line has a key and a value. `ldpstream init --from FILE` proposes a survey for a table of people"
        raise SurveyError(f"{path}: not TOML: {error}{hint}") from None
    try:
        return parse_survey(document, str(path)), text
    except RecursionError:
        raise SurveyError(f"{path}: nested too deeply") from None


def _explain(message: str, document: dict[str, Any]) -> str:
    located = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    message, where = located.groups() if located else (message, "")
    path = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", where)]
    if key := re.fullmatch(r"Object (?:contains unknown|missing required) field `(.*)`", message, re.DOTALL):
        named = key[1] if key[1].isprintable() else repr(key[1])
        where = f"{where}.{named}" if where else named
        return f"{where}: {'the key is missing' if 'missing' in message else _unknown_key(path, key[1])}"
    given: Any = document
    for part in path:
        given = given[part]
    if message.startswith("Invalid enum value"):
        message = f"must be one of {', '.join(map(repr, _CHOICES[str(path[-1])]))}"
    for pattern, allowed in _PATTERNS.items():
        if message.endswith(f"matching regex {pattern!r}"):
            message = allowed
    if isinstance(given, int) and given.bit_length() > 256:  # Python writes no number of more than 4300 digits
        message = f"{re.sub(', got `.*`$', '', message)}, got a number of {given.bit_length():,} bits"
    elif isinstance(given, (str, int, float)):
        message = f"{re.sub(', got `.*`$', '', message)}, got {given!r}"
    message = message.replace("Expected", "must be").replace(" | null", "")
    message = re.sub("`(.*?)`", lambda word: " or ".join(_WORDS.get(part, part) for part in word[1].split(" | ")), message)
    return f"{where}: {message}" if where else message


def _unknown_key(path: list[int | str], key: str) -> str:
    parts: dict[int | str, type[msgspec.Struct]] = {"level": Level, "recipe": Recipe, "cohort": Cohort, "attribute": Attribute}
    part = next((parts[name] for name in parts if name in path), Survey)
    known = [field.encode_name for field in msgspec.structs.fields(part)]
    return "unknown key" + (did_you_mean(key, known) or f"; allowed are {', '.join(known)}")
