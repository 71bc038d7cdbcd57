"""Proposes how a survey asks for a column of a sample: as values, several values, integers from 0, bins, or not at all.

- A text or number is listed only if at least `least` people have it. Texts that differ only in case count as one. The value
  "other" stands for the rest, if there is one.
- `choices` is the largest number m for which at least `least` people have m or more of the values.
- At least `least` people are at or beyond each end of the bins, before rounding.

A column has several answers if a tenth of its non-empty cells, and at least `least` cells, have a semicolon. The user can also
name such columns.

The least count is a rule of disclosure control, without a formal guarantee.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from ldpstream.mechanisms.sets import MAX_SET_VALUES
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.table_file import (
    DataError,
    TableFile,
    attribute_name,
    has_steps,
    is_missing,
    number_text,
    require_names,
)
from ldpstream.producers.values import split_cell
from ldpstream.surveys.questions import OTHER, SEPARATOR

MAX_LISTED, MAX_NUMBERS = 500, 24  # largest number of values in a list of texts, and in a list of numbers
SEVERAL = 0.1  # least share of cells with a separator in a column with several answers
RARE_NUMBERS = 0.05  # largest share of people with rare numbers, if numbers are listed
MOSTLY_NUMBERS = 0.8
ORDERED = "; ordered: people with neighbouring numbers are similar (remove the key if the numbers are codes)"
BINS = 10  # wanted number of bins of equal width
MAX_LABEL = 200
IDENTIFIERS = {
    "id",
    "uuid",
    "guid",
    "email",
    "mail",
    "phone",
    "mobile",
    "ssn",
    "iban",
    "passport",
    "imei",
    "surname",
    "lastname",
}
CODES = {"zip", "zipcode", "postcode", "postalcode", "postal", "post", "plz", "postleitzahl", "code"}  # codes of digits


@dataclass
class Column:
    """A column of a sample.

    Attributes:
        cells: number of people with each cell that is not missing.
        first_text: line of the first cell that is neither missing nor a number; 0 if there is none.
    """

    name: str
    cells: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    first_text: int = 0
    n_texts: int = 0


@dataclass(frozen=True)
class Domain:
    """The domain of an attribute, as a survey states it.

    Attributes:
        keys: the keys of the survey that state the values, such as `size`.
        words: the domain in words that may be public.
    """

    keys: dict[str, Any]
    words: str


@dataclass(frozen=True)
class Dropped:
    """A column that the survey does not ask for, and the reason."""

    why: str


def read_columns(path: Path, only: Sequence[str] = (), drop: Sequence[str] = ()) -> tuple[int, list[Column]]:
    """Returns the number of people and the columns of a sample with one row for each person.

    Args:
        only: names of the columns to return, in any order; empty for all columns.

    Raises:
        DataError: if the file is not a CSV file in UTF-8 with a header and one row for each person, or lacks a named column.
    """
    table = TableFile(path)
    rows = table.rows()
    header = next(rows)
    require_names(table, header)
    if has_steps(header):
        table.refuse("the second column is the step; a sample has one row for each person, such as the rows of one step")
    columns = [Column(attribute_name(name)) for name in header]
    n_people = 0
    for row in rows:
        n_people += 1
        for column, cell in zip(columns, row):
            _add(column, cell.strip(), table.line)
    if n_people == 0:
        raise DataError(f"{path}: has a header and no rows; every row must be a person")
    for i, (name, column) in enumerate(zip(header, columns), 1):
        if name.strip() in column.cells:  # the name would be a person's value
            raise DataError(
                f"{path}, line 1: not a header, since the text of column {i} occurs again in a later row; "
                "the first line must name the columns"
            )
    names = [{name.strip(), column.name} for name, column in zip(header, columns, strict=True)]
    for name in (*only, *drop):
        if not any(name in known for known in names):
            raise DataError(f"{path}: line 1 names {plural(len(names), 'column')}, but not {name!r}")
    chosen = [not known.isdisjoint(only or known) and known.isdisjoint(drop) for known in names]
    return n_people, [column for column, wanted in zip(columns, chosen, strict=True) if wanted]


def _add(column: Column, cell: str, line: int) -> None:
    if is_missing(cell):
        column.missing += 1
        return
    number = number_text(cell)
    if number is None:
        column.first_text = column.first_text or line
        column.n_texts += 1
    column.cells[number or cell] += 1


def propose(column: Column, least: int, several: Collection[str] = ()) -> Domain | Dropped:
    """Returns the domain of a column's attribute, or the reason to drop the column.

    Args:
        several: names of columns with several answers, beside those that are recognised.
    """
    n = column.cells.total()
    words = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name).lower()))
    if n == 0:
        return Dropped("all cells are empty")
    if len(column.cells) == 1:
        return Dropped("everybody has the same value")
    if words & IDENTIFIERS and len(column.cells) > MAX_NUMBERS:
        return Dropped("its name says that it identifies people")
    if n < 2 * least:
        return Dropped(f"only {plural(n, 'person has', 'people have')} a value, fewer than twice the least count {least}")
    separated = sum(count for text, count in column.cells.items() if SEPARATOR in text)
    if column.name in several or separated >= max(least, SEVERAL * n):
        return _sets(column, least)
    if column.n_texts == 0 and not words & CODES:
        return _numbers(column, least)
    return _texts(column, least)


def one_spelling(cells: Counter[str]) -> Counter[str]:
    """Counts texts that differ only in case as the most frequent of them.

    >>> one_spelling(Counter({"Yes": 5, "yes": 3, "no": 4}))
    Counter({'Yes': 8, 'no': 4})
    """
    spelled: dict[str, str] = {}
    merged = Counter[str]()
    for text, count in sorted(cells.items(), key=lambda cell: (-cell[1], cell[0])):
        merged[spelled.setdefault(text.casefold(), text)] += count
    return merged


def _texts(column: Column, least: int) -> Domain | Dropped:
    n, cells = column.cells.total(), one_spelling(column.cells)
    kept = sorted(text for text, count in cells.items() if count >= least)
    rare = n - sum(cells[text] for text in kept)
    if all(re.fullmatch(r"[+-]?\d+(,\d+)?", text) for text in column.cells) and any("," in text for text in column.cells):
        return Dropped("numbers with a comma; write a decimal point, and no separators of thousands")
    if 2 * rare > n or any(len(text) > MAX_LABEL for text in kept):
        if 0 < column.n_texts < (1 - MOSTLY_NUMBERS) * n:
            return Dropped(f"numbers mixed with texts; the first text is in line {column.first_text}")
        return Dropped(f"fewer than {least} people share most of its values: names, identifiers, dates or free text")
    merged = ""
    if len(cells) < len(column.cells):
        merged = "; texts that differ only in case are one value, which the app must write as here"
    return _listed(kept, rare, least, merged)


def _sets(column: Column, least: int) -> Domain | Dropped:
    people = Counter[str]()
    for cell, count in column.cells.items():
        people.update(dict.fromkeys(split_cell(cell), count))
    kept = sorted(text for text, count in people.items() if count >= least and len(text) <= MAX_LABEL)
    if len(kept) < 2:
        return Dropped(f"several answers, but at least {least} people share only {plural(len(kept), 'value')}")
    values = kept if len(kept) == len(people) or OTHER in kept else [*kept, OTHER]
    if len(values) > MAX_SET_VALUES:
        return Dropped(f"more than {MAX_SET_VALUES} values of several answers; ask for groups of values")
    sizes = Counter[int]()
    for cell, count in column.cells.items():
        sizes[len({text if text in kept else OTHER for text in split_cell(cell)})] += count
    most = max((m for m in sizes if sum(sizes[size] for size in sizes if size >= m) >= least), default=0)
    if most == 0:
        return Dropped(f"several answers, but fewer than {least} people have any")
    said = f"{plural(len(kept), 'value')}, each of at least {least} people of the sample"
    rest = f'; "{OTHER}" stands for all others' if OTHER in values else "; a device makes no report of any other text"
    no_more = "; a device makes no report" if OTHER in values else ", nor"
    more = "" if most == len(values) else f"{no_more} of more than {plural(most, 'answer')}"
    return Domain({"values": values, "choices": most}, f"{said}{rest}{more}")


def _listed(kept: list[str], rare: int, least: int, more: str = "", ordered: bool = False) -> Domain | Dropped:
    if len(kept) > MAX_LISTED:
        return Dropped(f"more than {MAX_LISTED} values that at least {least} people share")
    values = kept if not rare or OTHER in kept else [*kept, OTHER]
    if len(values) < 2 or (len(kept) == 1 and rare < least):
        return Dropped(f"at least {least} people share only one value")
    rest = f'; "{OTHER}" stands for all others' if OTHER in values else "; a device makes no report of any other text"
    said = f"{plural(len(kept), 'value')}, each of at least {least} people of the sample{rest}{more}"
    return Domain({"values": values} | ({"ordered": True} if ordered else {}), said + (ORDERED if ordered else ""))


def _numbers(column: Column, least: int) -> Domain | Dropped:
    counts = {Decimal(text): count for text, count in column.cells.items()}
    n, integers = column.cells.total(), all(number == int(number) for number in counts)
    ordered = sorted(counts)
    if integers and len(counts) == n and (ordered[-1] - ordered[0] < 2 * n or _equal_lengths(column)):
        return Dropped("different integers for everybody: row numbers or identifiers")
    kept = [number for number in ordered if counts[number] >= least]
    rare = n - sum(counts[number] for number in kept)
    if 2 <= len(kept) <= MAX_NUMBERS and rare <= RARE_NUMBERS * n:
        top = _end_of_run(kept)
        above = sum(count for number, count in counts.items() if number > top)
        if top > 0 and above <= RARE_NUMBERS * n and (kept[0] == 0 or above):  # numbers of things: large ones are rare
            said = f"integers 0 … {top}; a device reports the nearest for any other number"
            return Domain({"size": top + 1} | ({"ordered": True} if top > 1 else {}), said + (ORDERED if top > 1 else ""))
        steps = {b - a for a, b in pairwise(kept)}
        return _listed([f"{number:f}" for number in kept], rare, least, ordered=len(kept) > 2 and len(steps) == 1 and not rare)
    lowest, highest = _rank(ordered, counts, least), _rank(ordered[::-1], counts, least)
    if lowest >= highest:
        return Dropped(f"fewer than {least} people differ from the most frequent values")
    middle = _rank(ordered, counts, (n + 1) // 2)
    skewed = lowest >= 0 and middle - lowest < (highest - lowest) / BINS
    edges = skewed_edges(lowest, highest, middle) if skewed else even_edges(lowest, highest, integers)
    kind = "integers" if integers else "numbers"
    return Domain(
        {"bins": edges}, f"{kind} in {plural(len(edges) - 1, 'bin')}; a device reports the nearest bin for a number outside"
    )


def _end_of_run(kept: Sequence[Decimal]) -> int:
    first = kept[0]
    if first not in (0, 1):
        return -1
    return int(first) + sum(number == first + i for i, number in enumerate(kept)) - 1


def _equal_lengths(column: Column) -> bool:
    lengths = {len(text) for text in column.cells}
    return len(lengths) == 1 and lengths.pop() >= 7


def _rank(ordered: Sequence[Decimal], counts: dict[Decimal, int], rank: int) -> Decimal:
    seen = 0
    for number in ordered:
        seen += counts[number]
        if seen >= rank:
            return number
    raise AssertionError("the rank is at most the number of people")


def even_edges(lowest: Decimal, highest: Decimal, integers: bool) -> list[int | float]:
    """Returns edges of at most 11 equal bins that enclose the range, at multiples of 1, 2 or 5 times a power of ten.

    >>> even_edges(Decimal("18"), Decimal("87"), True)
    [10, 20, 30, 40, 50, 60, 70, 80, 90]
    """
    step = _round_up((highest - lowest) / BINS)
    if integers:
        step = max(step, Decimal(1))
    first, last = math.floor(lowest / step), math.ceil(highest / step)
    last = max(last, first + 2)
    return [rounded(i * step) for i in range(first, last + 1)]


def skewed_edges(lowest: Decimal, highest: Decimal, middle: Decimal) -> list[int | float]:
    """Returns the edge 0 and consecutive edges of the series …, 1, 2, 5, 10, 20, 50, … that enclose the range.

    The range is of numbers from 0 on that are mostly small.

    >>> skewed_edges(Decimal("0"), Decimal("930"), Decimal("21"))
    [0, 5, 10, 20, 50, 100, 200, 500, 1000]
    """
    smallest = max(lowest, middle / 10) or highest / 1000
    edges = [_round_up(smallest)]
    while edges[-1] < highest or len(edges) < 2:
        edges.append(_round_up(edges[-1] * Decimal("1.5")))
    return [0, *map(rounded, edges)]


def _round_up(number: Decimal) -> Decimal:
    unit = Decimal(1).scaleb(number.adjusted())
    return next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= number)


def rounded(number: Decimal) -> int | float:
    return int(number) if number == int(number) else float(number)
