"""The recipes of a device: the values that follow from histories of use.

The check writes histories. The device's program makes the calls of each history on a log of its own, at the times of the calls,
and answers each question with the values that the device would report:

    {"device": "a year", "ms": 1767605400000}                                    seen
    {"device": "a year", "ms": 1767605400000, "event": "export"}                 used
    {"device": "a year", "ms": 1767605400000, "event": "build", "seconds": 12}   took
    {"device": "a year", "step": 5}                                              which values at step 5?

The program writes each line again, and adds `values` to the questions: numbers by attribute, null for an infinite number.
"""

import math
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from random import Random
from unittest import mock

import msgspec
from msgspec.structs import replace

from devices.conformance.calls import ConformanceError
from devices.conformance.rules import Fault, Faults
from devices.vectors.recipes import HISTORIES, START, activity_in_memory
from ldpstream.device.values import index_of
from ldpstream.surveys import Survey

DAY_MS, PEOPLE, DAYS, SEED = 86_400_000, 40, 200, 1


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call, or a question with its answer."""

    device: str
    ms: int | None = None
    event: str | None = None
    seconds: float | None = None
    step: int | None = None
    values: dict[str, float | None] | None = None


def histories(survey: Survey) -> Iterator[Line]:
    """Yields the histories of a survey, with the values of our own device."""
    events = sorted({a.recipe.of for a in survey.attributes if a.recipe and a.recipe.of}) or ["export"]
    if not any(attribute.recipe for attribute in survey.attributes):
        raise ConformanceError(f"{survey.name} has no attribute with a recipe")
    for device, calls in [*_written(survey, events), *_drawn(survey, events)]:
        yield from calls
        after = {survey.step_at(call.ms or 0) for call in calls}
        steps = sorted({step for step in after | {max(after) + 1} if 0 <= step < 10**6})[-12:]
        yield from _answered(survey, device, calls, steps)


def _written(survey: Survey, events: list[str]) -> Iterator[tuple[str, list[Line]]]:
    """The histories of the test vectors, moved to the survey's start, with its events."""
    for device, calls in HISTORIES.items():
        of = {name: events[i % len(events)] for i, name in enumerate(sorted({event for _, event, _ in calls} - {""}))}
        later = survey.start_ms - round(1000 * START.timestamp())
        moved = [ms + later if ms > DAY_MS else ms for ms, *_ in calls]  # the others are of a clock at 1970
        lines = zip(moved, calls, strict=True)
        yield device, [Line(device, ms, of.get(event), seconds) for ms, (_, event, seconds) in lines]


def _drawn(survey: Survey, events: list[str]) -> Iterator[tuple[str, list[Line]]]:
    """People who begin before or after the start, come on some days, and make pauses. A clock may jump for a day."""
    random = Random(SEED)
    for person in range(PEOPLE):
        device, often, away, calls = f"person {person}", random.random() ** 2, 0, list[Line]()
        for day in range(random.randint(-60, 20), DAYS):
            away = random.randint(5, 60) if random.random() < 0.05 else max(0, away - 1)
            if away or (calls and random.random() >= often):
                continue
            jump = random.choice((-400, 400)) if random.random() < 0.02 else 0
            for _ in range(random.randint(1, 3)):
                ms = survey.start_ms + (day + jump) * DAY_MS + random.randrange(DAY_MS)
                event = random.choice([None, *events])
                calls.append(Line(device, ms, event, random.choice((None, 0.5, 7, 90.25, 4000)) if event else None))
        yield device, calls


def _answered(survey: Survey, device: str, calls: list[Line], steps: list[int]) -> Iterator[Line]:
    with activity_in_memory() as activity, mock.patch("time.time_ns") as clock:
        for call in calls:
            clock.return_value = (call.ms or 0) * 1_000_000
            if call.event is None:
                activity.seen()
            elif call.seconds is None:
                activity.used(call.event)
            else:
                activity.took(call.event, call.seconds)
        for step in steps:
            values = {name: None if math.isinf(x) else float(x) for name, x in activity.values(survey, step).items()}
            yield Line(device, step=step, values=values)


def write_histories(survey: Survey, path: Path) -> None:
    lines = [msgspec.json.encode(replace(line, values=None)) for line in histories(survey)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def check_recipes(survey: Survey, path: Path) -> tuple[int, list[Fault]]:
    """Returns the number of answers, and the faults of a device's answers.

    Raises:
        ConformanceError: if the file cannot be read, or is not that of `write_histories` with the answers.
    """
    faults, answers = Faults(), 0
    try:
        given = path.read_bytes().splitlines()
    except OSError as error:
        raise ConformanceError(f"{path}: cannot be read: {error.strerror}") from error
    for number, (right, text) in enumerate(zip_longest(histories(survey), given), 1):
        place = f"{path} line {number}"
        try:
            line = msgspec.json.decode(text or b"", type=Line)
        except msgspec.MsgspecError as error:
            raise ConformanceError(f"{place}: {error}") from None
        if right is None or replace(right, values=line.values) != line or (right.values is None) != (line.values is None):
            raise ConformanceError(f"{place}: is not the line of --histories, with `values` if it is a question")
        if right.values is None or line.values is None:
            continue
        answers += 1
        for attribute in survey.attributes:
            if attribute.recipe is not None:
                due, found = (_place(survey, attribute.name, values) for values in (right.values, line.values))
                if due != found:
                    faults.add(
                        f"{attribute.name} ({attribute.recipe.measure}) must follow from the calls before the step",
                        f"{place}: {found}, must be {due}",
                    )
        if extra := set(line.values) - set(right.values):
            faults.add(f"there must be no value of {', '.join(sorted(extra))} at this step", place)
    return answers, faults.all()


def _place(survey: Survey, name: str, values: dict[str, float | None]) -> str:
    if name not in values:
        return "no value"
    number = values[name]
    try:
        return f"value {index_of(survey, name, math.inf if number is None else number)}"
    except ValueError:
        return "not a value"
