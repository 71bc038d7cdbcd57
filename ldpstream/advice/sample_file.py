"""Reads a sample of people's values from a file and counts each value. Messages never show a person's value or a line of the
file.

Labels become public with the survey, so a file of people's records must not be accepted as a file of labels.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ldpstream.advice.question import MAX_K, AdviceError
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.table_file import TableFile

DELIMITERS = ",;\t|"
NO_VALUE = {"NA", "NaN", "nan", "NULL", "null", "None"}


def read_sample(path: Path, column: str | None = None, k: int | None = None) -> tuple[IntArray, list[str] | None]:
    """The counts of a sample's values, and the values' labels if the values are not numbers.

    Args:
        path: a text file with a value on each line (empty lines are skipped), or a CSV file with a header.
        column: the column of a CSV file (`producers.table_file`); without a column, every line is a value.
        k: domain size; if left out, the largest number plus one, or the number of labels.

    Returns:
        (k,) counts, and the labels in alphabetical order; None in place of the labels if all values are integers of at least 0.
        There are fewer than k labels if the sample lacks some labels.

    Raises:
        DataError: with `column`, if the file cannot be read or is not a table.
        AdviceError: if the file cannot be read or lacks the column; if the file has fewer than two values, or more values than
            the domain; if a number is not an integer of at least 0; if a word stands for a missing value; if there is one word
            among numbers, since the word may be a column's name; without `column`, if the lines look like rows of a table; if
            there are more than half as many labels as people, since such labels would name people.
    """
    try:
        if column is not None:
            found = Counter(value for value in _column(path, column) if value)
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                found = Counter(value for line in file if (value := line.strip()))
            _require_no_table(path, found)
    except OSError as error:
        raise AdviceError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise AdviceError(f"{path}: not a text file of values: {type(error).__name__}") from None
    if len(found) < 2:
        raise AdviceError(f"{path}: needs at least two different values, got {len(found)}")
    if all(value.isascii() and value.isdigit() and len(value) < 10 for value in found):
        numbers = np.array([int(value) for value in found])
        size = int(numbers.max()) + 1 if k is None else k
        _within(path, size, int(numbers.max()) + 1, "numbers are 0 … k-1")
        counts = np.zeros(size, np.int64)
        np.add.at(counts, numbers, list(found.values()))
        return counts, None
    if not NO_VALUE.isdisjoint(found):
        raise AdviceError(f"{path}: remove the words for a missing value ({', '.join(sorted(NO_VALUE.intersection(found)))})")
    words = sum(not _is_number(value) for value in found)
    if words == 0:
        raise AdviceError(f"{path}: numbers must be integers in [0, {MAX_K}); cut other numbers into bins")
    if words == 1 < len(found) - 1:
        raise AdviceError(f"{path}: numbers and one word; if the word is a column's name, give --column")
    if 2 * len(found) > found.total():
        raise AdviceError(
            f"{path}: {plural(len(found), 'label', 'different labels')} of {plural(found.total(), 'person', 'people')}; "
            "labels are published in the survey, so there may be at most half as many labels as people"
        )
    labels = sorted(found)
    size = len(labels) if k is None else k
    _within(path, size, len(labels), "the sample has that many labels")
    counts = np.zeros(size, np.int64)
    counts[: len(labels)] = [found[label] for label in labels]
    return counts, labels


def _column(path: Path, column: str) -> Iterator[str]:
    rows = TableFile(path).rows()
    header = [name.strip() for name in next(rows)]
    if column not in header:
        raise AdviceError(f"{path}: the first line names {plural(len(header), 'column')}, but not {column!r}")
    place = header.index(column)
    yield from (row[place].strip() for row in rows)


def _require_no_table(path: Path, found: Counter[str]) -> None:
    """Raises AdviceError if more than half of the lines have the same number of fields, at least two."""
    for delimiter in DELIMITERS:
        fields = Counter[int]()
        for line, times in found.items():
            fields[len(next(csv.reader([line], delimiter=delimiter)))] += times
        n_fields, times = max(((n, times) for n, times in fields.items() if n > 1), key=lambda x: x[1], default=(0, 0))
        if 2 * times > found.total():
            raise AdviceError(
                f"{path}: {times} of {found.total()} lines have {n_fields} fields separated by {delimiter!r}, like a table; "
                "give --column and a CSV file with a header"
            )


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _within(path: Path, k: int, needed: int, why: str) -> None:
    if k < needed or k > MAX_K:
        raise AdviceError(f"{path}: k must be in [{needed}, {MAX_K}], since {why}, got {k}")
