"""Reads a sample of people's values, sets or numbers from a file."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ldpstream.advice.question import MAX_K, AdviceError
from ldpstream.mechanisms.arguments import FloatArray, IntArray
from ldpstream.mechanisms.sets import MAX_SET_VALUES, code_of
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.people_file import missing_words, split_cell
from ldpstream.producers.table_file import DELIMITERS, MISSING, number_text, open_table
from ldpstream.surveys.texts import plain

Tell = Callable[[str], None]


def read_sample(
    path: Path,
    column: str | None = None,
    k: int | None = None,
    missing: Sequence[str] = MISSING,
    tell: Tell = lambda _: None,
) -> tuple[IntArray, list[str] | None]:
    """The counts of a sample's values, and the values' labels if the values are not numbers.

    Args:
        path: a text file with a value on each line, or a table (`producers.table_file`).
        column: the column of a table; without a column, every line is a value.
        k: domain size; if left out, the largest number plus one, or the number of labels.
        missing: words for no answer. Empty cells and lines are no answer either.
        tell: receives a line about words for no answer.

    Returns:
        (k,) counts, and the labels in alphabetical order; None in place of the labels for integers.

    Raises:
        DataError: with `column`, if the file cannot be read or is not a table.
        AdviceError: if the file cannot be read, or is no sample of values. The message shows no value of the sample.
    """
    if k is not None and not 2 <= k <= MAX_K:
        raise AdviceError(f"k must be an integer in [2, {MAX_K}], got {k}")
    found = _cells(path, column, missing, tell)
    if column is None:
        _require_no_table(path, found)
    if len(found) < 2:
        raise AdviceError(f"{path}: needs at least two different values, got {len(found)}")
    if all(value.isascii() and value.isdigit() and len(value) < 10 for value in found):
        numbers = np.array([int(value) for value in found])
        limit = MAX_K if k is None else k
        if large := sum(n for number, n in zip(numbers, found.values(), strict=True) if number >= limit):
            said = f"numbers must be integers in [0, {limit})" + ("" if k is None else f" for k = {k}")
            raise AdviceError(f"{path}: {said}, got {plural(large, 'larger number')}; for other numbers give --range LOW HIGH")
        size = int(numbers.max()) + 1 if k is None else k
        counts = np.zeros(size, np.int64)
        np.add.at(counts, numbers, list(found.values()))
        return counts, None
    words = sum(not _is_number(value) for value in found)
    if words == 0:
        raise AdviceError(f"{path}: numbers must be integers in [0, {MAX_K}); for other numbers give --range LOW HIGH")
    if words == 1 < len(found) - 1:
        raise AdviceError(f"{path}: numbers and one word; if the word is a column's name, give --column")
    if 2 * len(found) > found.total():
        raise AdviceError(
            f"{path}: {plural(len(found), 'label', 'different labels')} of {plural(found.total(), 'person', 'people')}; "
            "labels are published in the survey, so there may be at most half as many labels as people"
        )
    labels = sorted(found)
    size = len(labels) if k is None else k
    if not len(labels) <= size <= MAX_K:
        raise AdviceError(f"{path}: k must be in [{len(labels)}, {MAX_K}], since the sample has that many labels, got {size}")
    counts = np.zeros(size, np.int64)
    counts[: len(labels)] = [found[label] for label in labels]
    return counts, labels


def read_sets(
    path: Path,
    column: str | None,
    k: int | None,
    choices: int | None,
    missing: Sequence[str] = MISSING,
    tell: Tell = lambda _: None,
) -> tuple[IntArray, list[str]]:
    """The codes of a sample's sets, and the values in alphabetical order.

    Args:
        path: a file as in `read_sample`. Semicolons separate the values of a set.
        k: number of values; if left out, that of the sample.
    """
    cells = _cells(path, column, missing, tell)
    sets = {cell: split_cell(cell) for cell in cells}
    labels = sorted({text for texts in sets.values() for text in texts})
    people = cells.total()
    if len(labels) < 2:
        raise AdviceError(f"{path}: needs at least two different values, got {len(labels)}")
    if 2 * len(labels) > people:
        raise AdviceError(
            f"{path}: {plural(len(labels), 'value', 'different values')} of {plural(people, 'person', 'people')}; "
            "values are published in the survey, so there may be at most half as many values as people"
        )
    if len(labels) > MAX_SET_VALUES:
        raise AdviceError(f"{path}: {len(labels)} different values, more than {MAX_SET_VALUES} of several answers")
    if not len(labels) <= (k or len(labels)) <= MAX_SET_VALUES:
        raise AdviceError(
            f"{path}: k must be in [{len(labels)}, {MAX_SET_VALUES}] with choices, since the sample has {len(labels)} values, "
            f"got {k}"
        )
    if twice := sum(n for cell, n in cells.items() if len(set(sets[cell])) < len(sets[cell])):
        raise AdviceError(f"{path}: {plural(twice, 'person has', 'people have')} a value twice")
    if choices is not None and (more := sum(n for cell, n in cells.items() if len(sets[cell]) > choices)):
        raise AdviceError(f"{path}: {plural(more, 'person has', 'people have')} more than choices = {choices} values")
    place = {label: i for i, label in enumerate(labels)}
    codes = np.array([code_of(place[text] for text in sets[cell]) for cell in cells], np.int64)
    return np.repeat(codes, list(cells.values())), labels


def read_numbers(path: Path, column: str | None, missing: Sequence[str], tell: Tell) -> FloatArray:
    """The numbers of a sample, (m,), from a file as in `read_sample`.

    Raises:
        DataError, AdviceError: as in `read_sample`, and if a cell is not a number.
    """
    cells = _cells(path, column, missing, tell)
    numbers = {cell: number_text(cell) for cell in cells}
    if wrong := sum(n for cell, n in cells.items() if numbers[cell] is None):
        raise AdviceError(f"{path}: {plural(wrong, 'cell is not a number', 'cells are not numbers')}")
    if not cells:
        raise AdviceError(f"{path}: has no number")
    return np.repeat([float(number) for number in numbers.values() if number is not None], list(cells.values()))


def _cells(path: Path, column: str | None, missing: Sequence[str], tell: Tell) -> Counter[str]:
    if column is None:
        cells, words = Counter(_lines(path)), {"", *(plain(word).casefold() for word in missing)}
    else:
        with open_table(path, missing) as table:
            place, words = table.find(column), table.missing
            cells = Counter(row[place] for row in table.rows())
    left = Counter({cell: n for cell, n in cells.items() if cell.casefold() in words and cell})
    if left:
        tell(f"{path}: {missing_words(left)}")
    return Counter({cell: n for cell, n in cells.items() if cell.casefold() not in words})


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from (plain(line) for line in file)
    except OSError as error:
        raise AdviceError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AdviceError(f"{path}: not a text file of values: UnicodeDecodeError") from None


def _require_no_table(path: Path, found: Counter[str]) -> None:
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
