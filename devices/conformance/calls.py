"""The file that a foreign device's test program writes: one JSON object per line, for one call of the device.

    {"device": "17", "attribute": "mode", "value": 3, "step": 12, "envelope": "9701c408…", "key": "3q2-7wAAAAAAAAAAAAAAAA"}
    {"device": "17", "attribute": "mode", "value": 3, "step": 13, "envelope": null}

The lines of one device are in the order of its calls. `docs/reference/conformance.md` explains the fields.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ldpstream.mechanisms.sets import code_of
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.errors import UserError

MAX_STEP = 2**53  # the largest integer that every JSON library keeps


class ConformanceError(UserError):
    """The check cannot give a verdict."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    device: str | int
    attribute: str
    value: int | list[int]
    step: int
    envelope: str | None
    key: str | None = None
    level: str | None = None
    cohort: str | None = None
    run: int = 0


class Call(NamedTuple):
    """One call of a device.

    Attributes:
        device: the identity that the program gave to the device.
        attribute: index of the attribute in the survey.
        value: index of the true value; for an attribute with `choices`, the code of the true set.
        envelope: the envelope that the device returned; None if the device made no report.
        level, cohort: the indices of the level and cohort that the program chose.
        run: number of the run; a device has a fresh store in another run.
    """

    place: str
    device: str | int
    attribute: int
    value: int
    step: int
    envelope: bytes | None
    key: str | None
    level: int = 0
    cohort: int = 0
    run: int = 0


def read_calls(survey: Survey, path: Path) -> Iterator[Call]:
    """Yields the calls of a file, or of all files of a folder whose names end in ``.jsonl``, sorted by name.

    Raises:
        ConformanceError: if a file cannot be read or a line is not a call. The message never shows a true value.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise ConformanceError(f"{path}: has no files that end in .jsonl")
    decode = msgspec.json.Decoder(_Line).decode
    for file in files:
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    place = f"{file} line {number}"
                    try:
                        yield _call(survey, place, decode(line))
                    except (ValueError, msgspec.MsgspecError) as error:
                        raise ConformanceError(f"{place}: {error}") from None
        except OSError as error:
            raise ConformanceError(f"{file}: cannot be read: {error.strerror}") from error


def _call(survey: Survey, place: str, line: _Line) -> Call:
    attribute = survey.index(line.attribute)
    value = _value(survey.attributes[attribute], line.value)
    if not 0 <= line.step <= MAX_STEP:
        raise ValueError(f"step must be 0 to {MAX_STEP}, got {line.step}")
    chosen = _level(survey, attribute, line.level), survey.cohort_index(line.cohort), line.run
    if line.envelope is None:
        return Call(place, line.device, attribute, value, line.step, None, None, *chosen)
    if line.key is None:
        raise ValueError("a call with an envelope needs its key")
    try:
        envelope = bytes.fromhex(line.envelope)
    except ValueError:
        raise ValueError("envelope must be hexadecimal digits, or null for no report") from None
    return Call(place, line.device, attribute, value, line.step, envelope, line.key, *chosen)


def _value(asked: Attribute, given: int | list[int]) -> int:
    if asked.most is None:
        if isinstance(given, list) or not 0 <= given < asked.k:
            raise ValueError(f"value must be the index of a value of {asked.name}, 0 to {asked.k - 1}")
        return given
    n = asked.k - asked.most
    if (
        not isinstance(given, list)
        or len(set(given)) < len(given)
        or len(given) > asked.most
        or any(not 0 <= v < n for v in given)
    ):
        raise ValueError(
            f"value must be a list of at most {asked.most} different indices of values of {asked.name}, 0 to {n - 1}"
        )
    return code_of(given)


def _level(survey: Survey, attribute: int, name: str | None) -> int:
    names = [level.name for level in survey.attributes[attribute].levels]
    if name is None and len(names) == 1:
        return 0
    if name not in names:
        raise ValueError(f"level must be the level that the program chose, one of {', '.join(names)}, got {name!r}")
    return names.index(name)
