"""Reads people's true values from a table (`producers.table_file`), which has one of two forms.

One row for each person; the values stay the same at every step:

    mode,zone
    bus,17
    car,

Or one row for each person and step. The first column is the person, the second is called ``step``:

    person,step,mode,zone
    8f3a,0,bus,17
    8f3a,1,car,
    c071,1,bus,4

A step is an integer, or a date or time such as 2026-01-05 or 2026-01-05T08:00Z, without a time zone in UTC. A date gives the
step by the survey's clock. A person has at most one row for a step.

A column without a name is ignored, also before the person. Each attribute of the survey, except pairs, has a column with its
name. In a table of steps with three named columns, the third column is the only attribute, whatever its name. Other
columns are ignored; the cohorts of simulated people are drawn. A cell becomes a value as follows:

- A text is a listed value if both are equal, or if it looks like exactly one listed value (`surveys.texts.look`), in any case.
- Any other empty cell, or a word for no answer such as NA, is no answer.
- Any other cell becomes the value that a device reports for it (`Attribute.find`), or no answer if a device refuses it. A
  number may have another spelling: 1.0, +1 and 1e0 mean 1. 01 is no number.
- For an attribute with `choices`, a cell has the person's values, separated by semicolons. A lone semicolon is a person with
  none of the values.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.table_file import MISSING, DataError, PeopleTable, number_text, open_table
from ldpstream.producers.values import MAX_STEPS, ValueSource
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.questions import SEPARATOR
from ldpstream.surveys.texts import look, plain

CHANGED = {
    "nearest": ("number", "numbers", "outside the survey's {domain} became the nearest value, as on a device."),
    "unlisted": ("cell", "cells", "with a text that the survey does not list became {rest}, as on a device."),
    "respelt": (
        "cell is a listed value",
        "cells are listed values",
        "in another spelling. A device compares texts exactly: the app must convert them to the survey's spelling.",
    ),
    "refused": (
        "cell is not a value",
        "cells are not values",
        "of the survey ({domain}): no answer. A device refuses such values, and its silence can reveal them.",
    ),
}


class CellReader:
    """Turns cells of one attribute into values; the module's docstring gives the rules.

    Attributes:
        told: number of cells of each kind of `CHANGED`.
        words: number of cells with each word for no answer.
    """

    def __init__(self, attribute: Attribute, is_missing: Callable[[str], bool]) -> None:
        self.attribute, self.told, self.words = attribute, Counter[str](), Counter[str]()
        self._is_missing, self._texts = is_missing, set(attribute.values or ())
        self._listed_as: dict[str, str | None] = {}  # None for a spelling of several listed texts
        for text in attribute.values or ():
            key = look(text).casefold()
            self._listed_as[key] = None if key in self._listed_as else text
        self._known: dict[str, tuple[int | None, str]] = {}

    def value(self, cell: str) -> int | None:
        """Returns the value of a plain cell (with `choices`, the code of a set); None for no answer."""
        if cell not in self._known:
            self._known[cell] = self._value(cell)
        value, how = self._known[cell]
        self.told[how] += 1
        if how == "missing" and cell:
            self.words[cell] += 1
        return value

    def number(self, cell: str) -> float:
        """Returns the number in a plain cell with a value of an attribute with bins."""
        return float(number_text(cell) or cell)

    def _value(self, cell: str) -> tuple[int | None, str]:
        try:
            if self.attribute.values is None:
                if self._is_missing(cell):
                    return None, "missing"
                number = number_text(cell)
                value, inside = self.attribute.find(cell if number is None else number)
                return (value, "" if inside else "nearest") if number is not None else (None, "refused")
            if self._spelt(cell) is None and self._is_missing(cell):
                return None, "missing"
            if self.attribute.most is None:
                value, inside, same = self._listed(cell)
            else:
                found = [self._listed(part) for part in split_cell(cell)]
                value = self.attribute.set_code([part[:2] for part in found])
                inside, same = all(part[1] for part in found), all(part[2] for part in found)
            return value, "unlisted" if not inside else "" if same else "respelt"
        except ValueError:
            return None, "refused"

    def _spelt(self, text: str) -> str | None:
        """Returns the listed text that a text means; None if there is none, or more than one."""
        return text if text in self._texts else self._listed_as.get(look(text).casefold())

    def _listed(self, text: str) -> tuple[int, bool, bool]:
        spelt = self._spelt(text)
        value, inside = self.attribute.find(text if spelt is None else spelt)
        return value, inside, spelt in (None, text)


class FileValues:
    """Values that were read from a file, in memory.

    Args:
        columns: for every attribute the arrays (step, person, value, number) of its entries, each (n,): three int64 and one
            float64. The number is None for an attribute without bins.
        change: false if the values of step 0 stay the same at every step.
    """

    def __init__(
        self, n_people: int, n_steps: int, columns: list[tuple[IntArray, IntArray, IntArray, FloatArray | None]], change: bool
    ) -> None:
        self.n_people, self.n_steps, self._change = n_people, n_steps, change
        self._columns = []
        for steps, people, values, numbers in columns:
            order = np.argsort(steps, kind="stable")
            behind = None if numbers is None else numbers[order]
            self._columns.append((steps[order], people[order], values[order], behind))

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        _, people, values, _ = self._columns[attribute]
        at = self._entries(step, attribute)
        return people[at], values[at]

    def numbers(self, step: int, attribute: int) -> FloatArray | None:
        """See `ValueSource.numbers`."""
        numbers = self._columns[attribute][3]
        return None if numbers is None else numbers[self._entries(step, attribute)]

    def _entries(self, step: int, attribute: int) -> slice:
        integer("step", step, 0, self.n_steps - 1)
        first = step if self._change else 0
        return slice(*np.searchsorted(self._columns[attribute][0], [first, first + 1]).tolist())


def read_people(
    path: Path,
    survey: Survey,
    n_steps: int = 1,
    tell: Callable[[str], None] = lambda _: None,
    missing: Sequence[str] = MISSING,
) -> ValueSource:
    """Reads a table of people's values; the module's docstring gives the format.

    Args:
        n_steps: number of steps, for a table with one row for each person.
        tell: receives lines about the people, and about cells that were not used as they are.
        missing: words for no answer.

    Raises:
        DataError: if the file cannot be read or is no table, a column is missing or has no value, a step is out of range, a
            person has two rows for a step.
    """
    integer("n_steps", n_steps, 1, MAX_STEPS)
    with open_table(path, missing) as table:
        reader = _Reader(table, survey)
        for row in table.rows():
            reader.add(row)
    return reader.source(n_steps, tell)


class _Reader:
    def __init__(self, table: PeopleTable, survey: Survey) -> None:
        self._table, self._survey, self._step_place = table, survey, table.step_place or 0
        self._has_steps = table.step_place is not None
        asked = [
            attribute for attribute in survey.attributes if attribute.pair is None
        ]  # `WithPairs` derives the pairs' values
        first = self._step_place + 1 if self._has_steps else 0
        named = [i for i, name in enumerate(table.header) if name and i >= first]
        if self._has_steps and len(survey.attributes) == 1 and len(named) == 1:
            places = named
        else:
            try:
                places = [table.find(attribute.name, first) for attribute in asked]
            except DataError as error:
                hint = "" if self._has_steps else "; if the second column is the step, call it step"
                raise DataError(f"{error}{hint}") from None
        self._columns = [
            (i, CellReader(a, table.is_missing), array("q"), array("d")) for i, a in zip(places, asked, strict=True)
        ]
        self._person_ids: dict[str, int] = {}
        self._step_of: dict[str, int] = {}  # cache: each different text is parsed once
        self._lines, self._people, self._steps = array("q"), array("q"), array("q")  # one entry per row

    def add(self, row: list[str]) -> None:
        person, step = len(self._people), 0
        if self._has_steps:
            who, when = row[self._step_place - 1], row[self._step_place]
            if not who:
                self._table.refuse("the person is empty")
            person = self._person_ids.setdefault(who, len(self._person_ids))
            step = self._step_of[when] if when in self._step_of else self._step(when)
            self._lines.append(self._table.line)
        self._people.append(person)
        self._steps.append(step)
        for place, reader, values, numbers in self._columns:
            value = reader.value(row[place])
            values.append(-1 if value is None else value)
            if reader.attribute.bins is not None and value is not None:
                numbers.append(reader.number(row[place]))

    def _step(self, text: str) -> int:
        column = f"the step (column {self._step_place + 1})"
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            step = int(text)
        else:
            try:
                time = datetime.fromisoformat(text)
                time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
                step = self._survey.step_at(round(time.timestamp() * 1000))
            except (ValueError, OverflowError):
                self._table.refuse(f"{column} must be an integer, such as 0 and not 0.0, or a date such as 2026-01-05")
        if not 0 <= step < MAX_STEPS:
            start = f"{self._survey.start.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
            self._table.refuse(f"{column} must be from 0 to {MAX_STEPS - 1}; a date counts from the survey's start, {start}")
        self._step_of[text] = step
        return step

    def source(self, n_steps: int, tell: Callable[[str], None]) -> ValueSource:
        table, people, steps = self._table, int64(self._people), int64(self._steps)
        n_people = len(self._person_ids) if self._has_steps else len(people)
        persons = plural(n_people, "person", "people")
        if self._has_steps:
            self._require_one_row_a_step(people, steps)
            n_steps = int(steps.max(initial=0)) + 1
            tell(f"{table.path}: {persons} in {plural(n_steps, 'step')}.")
        else:
            at = "the only step" if n_steps == 1 else f"all {n_steps:,} steps"
            tell(f"{table.path}: {persons}, one in each row, with the same values at {at}.")
        found = {}
        for place, reader, cells, numbers in self._columns:
            values = int64(cells)
            given = values >= 0
            name, domain = reader.attribute.name, reader.attribute.domain
            if not given.any():
                raise DataError(f"{table.path}: no cell of column {place + 1} is a value of the attribute {name} ({domain})")
            if reader.words:
                tell(f"{name}: {missing_words(reader.words)}")
            for how, (one, many, said) in CHANGED.items():
                if n := reader.told[how]:
                    tell(f"{name}: {plural(n, one, many)} {said.format(domain=domain, rest=reader.attribute.catch_all)}")
            behind = None if reader.attribute.bins is None else np.array(numbers, np.float64)
            found[name] = steps[given], people[given], values[given], behind
        nothing = np.zeros(0, np.int64)
        columns = [found.get(a.name, (nothing, nothing, nothing, None)) for a in self._survey.attributes]
        if self._survey.cohort is not None:
            tell(f"{table.path}: everybody's cohort ({self._survey.cohort.name}) is drawn.")
        return FileValues(n_people, n_steps, columns, self._has_steps)

    def _require_one_row_a_step(self, people: IntArray, steps: IntArray) -> None:
        order = np.lexsort((steps, people))  # a stable sort keeps a person's rows for a step in the file's order
        again = (np.diff(people[order]) == 0) & (np.diff(steps[order]) == 0)
        if again.any():
            self._table.line = int(int64(self._lines)[order[1:][again]].min())
            self._table.refuse("a second row of the same person for the same step")


def missing_words(words: Counter[str]) -> str:
    """A sentence about the words that were taken as no answer."""
    count = plural(words.total(), "cell counts", "cells count")
    return f"{count} as no answer: {', '.join(sorted(words))}. The option --missing replaces the list of such words."


def split_cell(cell: str) -> list[str]:
    """Returns the texts of the values of a set in a file's cell; a lone separator is the empty set.

    >>> split_cell("chat; maps"), split_cell(";")
    (['chat', 'maps'], [])
    """
    return [part for part in (plain(text) for text in cell.split(SEPARATOR)) if part]


def int64(numbers: "array[int]") -> IntArray:
    return np.array(numbers, np.int64)
