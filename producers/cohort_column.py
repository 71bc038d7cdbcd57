"""Reads the people's cohorts from a column of their file of values.

A cell that is none of the survey's cohorts becomes the cohort "other", if the survey lists this cohort. In a file with steps,
all rows of a person must have the same cohort.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ldpstream.mechanisms.arguments import IntArray
from ldpstream.producers.table_file import TableFile, attribute_name, find_column
from ldpstream.producers.values import ValueSource
from ldpstream.surveys import Cohort
from ldpstream.surveys.questions import OTHER


class PeopleInCohorts:
    """People's values, and their cohorts.

    Args:
        cohorts: (n_people,) int64, the index of each person's cohort.
    """

    def __init__(self, source: ValueSource, cohorts: IntArray) -> None:
        self.n_people, self.n_steps, self.cohorts = source.n_people, source.n_steps, cohorts
        self._source = source

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        return self._source.at(step, attribute)


def with_cohorts(source: ValueSource, path: Path, cohort: Cohort, steps: bool, tell: Callable[[str], None]) -> ValueSource:
    """Adds the cohorts of the file's people to their values. Without a column of cohorts, returns the source unchanged.

    Args:
        path: the file.
        steps: True if each row is one person at one step, False if each row is one person.
        tell: receives a line if the file has no column of cohorts.

    Raises:
        DataError: if the file cannot be read, a cell gives no cohort, a person has two cohorts, or several columns have the
            cohort's name.
    """
    table = TableFile(path)
    rows = table.rows()
    header = next(rows)
    if cohort.name not in {name for column in header for name in (column.strip(), attribute_name(column))}:
        tell(f"{path}: no column named {cohort.name}; everybody's cohort is drawn.")
        return source
    column = find_column(table, header, cohort.name)
    places = {name: i for i, name in enumerate(cohort.values)}
    found: dict[str | int, int] = {}
    for number, row in enumerate(rows):
        place = places.get(row[column].strip(), places.get(OTHER))
        if place is None:
            table.refuse(f"not a cohort of the survey ({cohort.name}: {', '.join(cohort.values)})")
        if found.setdefault(row[0] if steps else number, place) != place:
            table.refuse(f"another {cohort.name} than in an earlier row of this person; a simulated person keeps one cohort")
    return PeopleInCohorts(source, np.array(list(found.values()), np.int64))
