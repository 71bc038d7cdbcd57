"""A file with one row for each person, as a source of values that stay the same at every step.

The file is CSV with a header, as `producers.table_file` reads it. Each attribute of the survey, except pairs, has a column with
the attribute's name. A column may give the cohort; others are ignored. A cell becomes a value of its attribute:

- An empty cell, or a word such as NA that the survey does not list, is not a value: the person does not answer the attribute.
- A number may have another spelling: 1.0, +1 and 1e0 mean 1. If the survey lists the text 1, but not the cell's own text, such
  a cell means the text 1. For an attribute with `size` or `bins`, a cell that is no number is not a value; 01 is no number.
- A text that differs only in case from exactly one listed value is this value, unless it is a word for a missing value.
- Any other cell becomes the value that a device reports for it (`Attribute.find`), or none if a device refuses it.
- For an attribute with `choices`, a cell has the person's listed values, separated by semicolons, in the survey's spelling. A
  lone semicolon is a person with none of the values.
"""

from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ldpstream.mechanisms.arguments import IntArray, integer
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.cohort_column import with_cohorts
from ldpstream.producers.table_file import (
    DataError,
    TableFile,
    find_column,
    has_steps,
    is_missing,
    number_text,
    require_names,
)
from ldpstream.producers.values import MAX_STEPS, ValueSource, find_cell, int64, load_values
from ldpstream.surveys import Attribute, Survey

CHANGED = {
    "nearest": ("number", "numbers", "outside the survey's {domain} became the nearest value, as on a device."),
    "unlisted": ("text", "texts", "that the survey does not list became {rest}, as on a device."),
    "respelt": (
        "cell is a listed value",
        "cells are listed values",
        "in another spelling. A device compares texts exactly: the app must convert them to the survey's spelling.",
    ),
    "refused": (
        "cell is not a value",
        "cells are not values",
        "of the survey ({domain}): these people do not answer the attribute. A device refuses such values, and its silence "
        "can reveal them.",
    ),
}


class UnchangingValues:
    """Values of people that stay the same at every step.

    Args:
        columns: for every attribute the arrays (person, value) of the people with a value, each (n,) int64.
    """

    def __init__(self, n_people: int, n_steps: int, columns: list[tuple[IntArray, IntArray]]) -> None:
        self.n_people, self.n_steps = n_people, n_steps
        self._columns = columns

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        integer("step", step, 0, self.n_steps - 1)
        return self._columns[attribute]


def open_data(path: Path, survey: Survey, first_step: int | None, n_steps: int, tell: Callable[[str], None]) -> ValueSource:
    """Reads a file of values with steps, or with one row for each person; also the people's cohorts.

    Args:
        path: the file; it has steps if `first_step` is given, or if its second column is called ``step``.
        first_step: the file's number for the survey's step 0; None for 0.
        n_steps: number of steps, for a file with one row for each person.
        tell: receives lines about the people, and about the cells that were not used as they are.

    Raises:
        DataError: as for `load_values` or `load_people`, and `with_cohorts`.
    """
    steps = first_step is not None or has_steps(TableFile(path).header())
    source: ValueSource = (
        load_values(path, survey, first_step or 0, tell) if steps else load_people(path, survey, n_steps, tell)
    )
    return source if survey.cohort is None else with_cohorts(source, path, survey.cohort, steps, tell)


def load_people(path: Path, survey: Survey, n_steps: int, tell: Callable[[str], None]) -> UnchangingValues:
    """Reads a file with one row for each person; the module's docstring gives the format.

    Raises:
        DataError: if the file cannot be read, has no proper header, or a column is missing or has no value.
    """
    integer("n_steps", n_steps, 1, MAX_STEPS)
    table = TableFile(path)
    rows = table.rows()
    header = next(rows)
    require_names(table, header)
    asked = [attribute for attribute in survey.attributes if attribute.pair is None]  # `WithPairs` derives the pairs' values
    try:
        columns = [_Column(attribute, find_column(table, header, attribute.name)) for attribute in asked]
    except DataError as error:
        raise DataError(f"{error}; if the second column is a step, give --first-step") from None
    n_people = 0
    for person, row in enumerate(rows):
        n_people = person + 1
        for column in columns:
            column.add(person, row[column.place])
    people = plural(n_people, "person", "people")
    at = "the only step" if n_steps == 1 else f"all {n_steps:,} steps"
    tell(f"{path}: {people}, one in each row, with the same values at {at}.")
    for column in columns:
        name, domain = column.attribute.name, column.attribute.domain
        if not column.people:
            raise DataError(f"{path}: no cell of column {column.place + 1} is a value of the attribute {name} ({domain})")
        for how, (one, many, said) in CHANGED.items():
            if n := column.changed[how]:
                tell(f"{name}: {plural(n, one, many)} {said.format(domain=domain, rest=column.attribute.catch_all)}")
    nothing = np.zeros(0, np.int64)
    found = {column.attribute.name: (int64(column.people), int64(column.values)) for column in columns}
    return UnchangingValues(n_people, n_steps, [found.get(a.name, (nothing, nothing)) for a in survey.attributes])


class _Column:
    def __init__(self, attribute: Attribute, place: int) -> None:
        self.attribute, self.place = attribute, place
        self.people, self.values = array("q"), array("q")
        self.changed = Counter[str]()
        self._known: dict[str, tuple[int | None, str]] = {}

    def add(self, person: int, cell: str) -> None:
        cell = cell.strip()
        if is_missing(cell) and cell not in (self.attribute.values or ()):
            return
        if cell not in self._known:
            self._known[cell] = value_of(self.attribute, cell)
        value, how = self._known[cell]
        self.changed[how] += 1
        if value is None:
            return
        self.people.append(person)
        self.values.append(value)


def value_of(attribute: Attribute, cell: str) -> tuple[int | None, str]:
    if attribute.most is not None:
        try:
            code, inside = find_cell(attribute, cell)
        except ValueError:
            return None, "refused"
        return code, "" if inside else "unlisted"
    number = number_text(cell)
    given = cell if attribute.values is not None else number
    if attribute.values is not None and cell not in attribute.values:
        spellings = [text for text in attribute.values if text.casefold() == cell.casefold()]
        known = [number] if number in attribute.values else spellings
        given = known[0] if len(known) == 1 else cell
    try:
        if given is None:
            return None, "refused"
        index, inside = attribute.find(given)
    except ValueError:
        return None, "refused"
    if not inside:
        return index, "unlisted" if attribute.values is not None else "nearest"
    return index, "respelt" if attribute.values is not None and given != cell else ""
