"""Proposes how a survey asks for a column of a sample: as values, several values, integers from 0, bins, or not at all.

- A text or number is listed only if at least `least` people have it. It is listed as it is written in the sample: 3.10 is
  another value than 3.1. Texts that differ only in case, or that look alike, count as one. The value "other" stands for the
  rest, if there is one.
- `choices` is the largest number m for which at least `least` people have m or more of the values.
- At least `least` people are at or beyond each end of the bins, before rounding.

A column has several answers if a tenth of its non-empty cells, and at least `least` cells, have a semicolon.

The least count is a rule of disclosure control, without a formal guarantee.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from ldpstream.mechanisms.sets import MAX_SET_VALUES
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.people_file import split_cell
from ldpstream.producers.table_file import MISSING, DataError, number_text, open_table
from ldpstream.surveys.questions import OTHER, SEPARATOR
from ldpstream.surveys.texts import look

MAX_LISTED, MAX_NUMBERS = 500, 24  # largest number of values in a list of texts, and in a list of numbers
SEVERAL = 0.1  # least share of cells with a separator in a column with several answers
RARE_NUMBERS = 0.05  # largest share of people with rare numbers, if numbers are listed
MOSTLY_NUMBERS = 0.8
ORDERED = "; ordered: people with neighbouring numbers are similar (remove the key if the numbers are codes)"
BINS = 10  # wanted number of bins of equal width, by default
MAX_LABEL = 200
IDENTIFIERS = {
    "id", "uuid", "guid", "email", "mail", "phone", "mobile", "ssn", "iban", "passport", "imei", "surname", "lastname",
}  # fmt: skip
CODES = IDENTIFIERS | {"zip", "zipcode", "postcode", "postal", "plz", "postleitzahl", "code"}  # their numbers measure nothing
LONG = 7  # least digits of numbers such as telephone and customer numbers
NO_ANSWER = r"-[1-9]|-?[7-9]{2,9}"  # numbers that often stand for "no answer"


@dataclass
class Column:
    """A column of a sample.

    Attributes:
        name: name of the attribute.
        header: name of the column in the file.
        cells: number of people with each cell that is not missing, as it is written.
        missing: number of people with each word for no answer; "" for an empty cell.
        numbers: cell -> the number's text (`number_text`), for cells that are numbers.
    """

    name: str
    header: str
    cells: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, str] = field(default_factory=dict)

    @property
    def n_texts(self) -> int:
        """Number of people with a cell that is neither missing nor a number."""
        return sum(n for cell, n in self.cells.items() if cell not in self.numbers)

    def add(self, cell: str) -> None:
        if cell not in self.cells and (number := number_text(cell)) is not None:
            self.numbers[cell] = number
        self.cells[cell] += 1


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


def read_columns(path: Path, only: Sequence[str] = (), missing: Sequence[str] = MISSING) -> tuple[int, list[Column]]:
    """Returns the number of people and the columns of a sample with one row for each person.

    Args:
        only: names of the columns to return, in any order; empty for all columns with a name.
        missing: words for no answer.

    Raises:
        DataError: if the file is not a table (`open_table`) with a header and one row for each person, or lacks a named column.
    """
    with open_table(path, missing) as table:
        places = sorted({table.find(name) for name in only}) or [i for i, name in enumerate(table.header) if name]
        if table.step_place is not None:
            table.refuse(
                f"column {table.step_place + 1} is the step; a sample has one row for each person, such as the rows of one step"
            )
        table.require_names(places)
        columns = [Column(table.names[i], table.header[i]) for i in places]
        n_people = 0
        for row in table.rows():
            n_people += 1
            for place, column in zip(places, columns, strict=True):
                if table.is_missing(cell := row[place]):
                    column.missing[cell] += 1
                else:
                    column.add(cell)
    if n_people == 0:
        raise DataError(f"{path}: has a header and no rows; every row must be a person")
    for place, column in zip(places, columns, strict=True):
        if column.header in column.cells or column.header in column.missing:  # the name would be a person's value
            raise DataError(
                f"{path}, line 1: not a header, since the text of column {place + 1} occurs again in a later row; "
                "the first line must name the columns"
            )
    return n_people, columns


def propose(column: Column, least: int, bins: int = BINS) -> Domain | Dropped:
    """Returns the domain of a column's attribute, or the reason to drop the column.

    Args:
        bins: wanted number of bins of equal width.
    """
    n = column.cells.total()
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name).lower())
    if n == 0:
        return Dropped("all cells are empty")
    if len(column.cells) == 1:
        left = ", ".join(sorted(word for word in column.missing if word))
        return Dropped("everybody has the same value" + (f", if {left} is no answer (--missing)" if left else ""))
    if IDENTIFIERS.intersection(words) and len(column.cells) > (2 if len(words) == 1 else MAX_NUMBERS):
        return Dropped("its name says that it identifies people (if it does not, rename it)")
    if n < 2 * least:
        return Dropped(f"only {plural(n, 'person has', 'people have')} a value, fewer than twice the least count {least}")
    separated = sum(count for text, count in column.cells.items() if SEPARATOR in text)
    if separated >= max(least, SEVERAL * n):
        return _sets(column, least)
    if column.n_texts or CODES.intersection(words):
        return _texts(column, least)
    return _numbers(column, least, bins)


def spellings(cells: Counter[str]) -> dict[str, str]:
    """Returns for each text the most frequent of the texts that differ from it only in case, or look alike.

    >>> spellings(Counter({"Yes": 5, "yes": 3, "no": 4}))
    {'Yes': 'Yes', 'no': 'no', 'yes': 'Yes'}
    """
    chosen: dict[str, str] = {}
    ordered = sorted(cells.items(), key=lambda cell: (-cell[1], cell[0]))
    return {text: chosen.setdefault(look(text).casefold(), text) for text, _ in ordered}


def with_rest(kept: list[str], rare: bool) -> dict[str, Any]:
    """The keys of listed values. The value for all others is a listed "other" in any case, or a new one if there are others.

    >>> with_rest(["Bus", "Other"], True), with_rest(["Bus", "Car"], False)
    ({'values': ['Bus', 'Other'], 'unlisted': 'Other'}, {'values': ['Bus', 'Car']})
    """
    rest = next((text for text in kept if look(text).casefold() == OTHER), OTHER if rare else None)
    if rest is None:
        return {"values": kept}
    return {"values": kept if rest in kept else [*kept, rest], "unlisted": rest}


def _texts(column: Column, least: int) -> Domain | Dropped:
    n, cells, spelt = column.cells.total(), Counter[str](), spellings(column.cells)
    for text, count in column.cells.items():
        cells[spelt[text]] += count
    kept = sorted(text for text, count in cells.items() if count >= least)
    rare = n - sum(cells[text] for text in kept)
    if all(re.fullmatch(r"[+-]?\d+(,\d+)?", text) for text in column.cells) and any("," in text for text in column.cells):
        return Dropped("numbers with a comma; write a decimal point, and no separators of thousands")
    if 2 * rare > n or any(len(text) > MAX_LABEL for text in kept):
        if 0 < column.n_texts < (1 - MOSTLY_NUMBERS) * n:
            return Dropped("numbers mixed with texts; remove lines that are not a person")
        return Dropped(f"fewer than {least} people share most of its values: names, identifiers, dates or free text")
    merged = ""
    if len(cells) < len(column.cells):
        merged = "; texts that differ only in case, or look alike, are one value, which the app must write as here"
    return _listed(column, kept, rare, least, merged)


def _sets(column: Column, least: int) -> Domain | Dropped:
    parts = Counter[str]()
    for cell, count in column.cells.items():
        parts.update(dict.fromkeys(split_cell(cell), count))
    spelt = spellings(parts)
    sets = Counter[frozenset[str]]()
    for cell, count in column.cells.items():
        sets[frozenset(spelt[text] for text in split_cell(cell))] += count
    people = Counter[str]()
    for texts, count in sets.items():
        people.update(dict.fromkeys(texts, count))
    kept = sorted(text for text, count in people.items() if count >= least and len(text) <= MAX_LABEL)
    if len(kept) < 2:
        return Dropped(f"several answers, but at least {least} people share only {plural(len(kept), 'value')}")
    keys = with_rest(kept, len(kept) < len(people))
    values, rest = keys["values"], keys.get("unlisted")
    if len(values) > MAX_SET_VALUES:
        return Dropped(f"more than {MAX_SET_VALUES} values of several answers; ask for groups of values")
    sizes = Counter[int]()
    for texts, count in sets.items():
        sizes[len({text if text in kept else rest for text in texts})] += count
    most = max((m for m in sizes if sum(sizes[size] for size in sizes if size >= m) >= least), default=0)
    if most == 0:
        return Dropped(f"several answers, but fewer than {least} people have any")
    no_more = "; a device makes no report" if rest else ", nor"
    more = "" if most == len(values) else f"{no_more} of more than {plural(most, 'answer')}"
    return Domain(keys | {"choices": most}, f"{_listed_words(kept, keys, least)}{more}")


def _listed_words(kept: list[str], keys: dict[str, Any], least: int) -> str:
    rest = keys.get("unlisted")
    others = f'; "{rest}" stands for all others' if rest else "; a device makes no report of any other text"
    return f"{plural(len(kept), 'value')}, each of at least {least} people of the sample{others}"


def _listed(column: Column, kept: list[str], rare: int, least: int, more: str = "", ordered: bool = False) -> Domain | Dropped:
    if len(kept) > MAX_LISTED:
        return Dropped(f"more than {MAX_LISTED} values that at least {least} people share")
    keys = with_rest(kept, rare > 0)
    if len(keys["values"]) < 2 or (len(kept) == 1 and rare < least):
        return Dropped(f"at least {least} people share only one value")
    said = f"{_listed_words(kept, keys, least)}{more}{ORDERED if ordered else ''}"
    return Domain(keys | ({"ordered": True} if ordered else {}), said)


def _numbers(column: Column, least: int, bins: int) -> Domain | Dropped:
    counts, written = Counter[Decimal](), dict[Decimal, list[str]]()
    for cell, count in column.cells.items():
        number = Decimal(column.numbers[cell])
        counts[number] += count
        written.setdefault(number, []).append(cell)
    n, integers = column.cells.total(), all(number == int(number) for number in counts)
    ordered = sorted(counts)
    digits = {len(f"{abs(number):.0f}") for number in counts}
    alike = min(digits) >= LONG and max(digits) - min(digits) <= 1
    if integers and len(counts) == n and (alike or ordered[-1] - ordered[0] < 2 * n):
        return Dropped("different integers for everybody: row numbers or identifiers")
    twice = any(len(cells) > 1 for cells in written.values())
    if twice and not integers and len(counts) <= MAX_NUMBERS:  # versions or other codes, such as 3.1 and 3.10
        return _texts(column, least)
    unlike = _no_answer(counts, ordered, least)
    kept = [number for number in ordered if counts[number] >= least]
    rare = n - sum(counts[number] for number in kept)
    if 2 <= len(kept) <= MAX_NUMBERS and rare <= RARE_NUMBERS * n:
        run = sum(number == kept[0] + i for i, number in enumerate(kept))
        top = int(kept[0]) + run - 1 if kept[0] in (0, 1) else 0
        above = sum(count for number, count in counts.items() if number > top)
        if top > 0 and above <= RARE_NUMBERS * n and (kept[0] == 0 or above):  # numbers of things: large ones are rare
            said = f"integers 0 … {top}; a device reports the nearest for any other number{unlike}"
            return Domain({"size": top + 1} | ({"ordered": True} if top > 1 else {}), said + (ORDERED if top > 1 else ""))
        if twice:  # codes such as 100 and 1E2
            return _texts(column, least)
        steps = {b - a for a, b in pairwise(kept)}
        texts = [written[number][0] for number in kept]
        return _listed(column, texts, rare, least, unlike, ordered=len(kept) > 2 and len(steps) == 1 and not rare)
    lowest, highest = _rank(ordered, counts, least), _rank(ordered[::-1], counts, least)
    if lowest >= highest:
        return Dropped(f"fewer than {least} people differ from the most frequent values")
    middle = _rank(ordered, counts, (n + 1) // 2)
    skewed = lowest >= 0 and middle < highest / BINS
    edges = skewed_edges(lowest, highest, middle) if skewed else even_edges(lowest, highest, integers, bins)
    kind = f"{'integers' if integers else 'numbers'} in {plural(len(edges) - 1, 'bin')}"
    return Domain({"bins": edges}, f"{kind}; a device reports the nearest bin for a number outside{unlike}")


def _no_answer(counts: dict[Decimal, int], ordered: Sequence[Decimal], least: int) -> str:
    """A hint about an outer number such as 999 or -9: far from all others, or alone below 0."""
    for code, *others in (ordered[::-1], ordered):
        far = len(others) > 1 and (code < 0 <= min(others) or abs(code - others[0]) >= abs(others[0] - others[-1]))
        if far and counts[code] >= least and re.fullmatch(NO_ANSWER, f"{code:f}"):
            return f"; {code:f} is unlike all other numbers (if it means no answer, give --missing {code:f})"
    return ""


def _rank(ordered: Sequence[Decimal], counts: dict[Decimal, int], rank: int) -> Decimal:
    """The number of the person with this rank, at most the number of people."""
    seen = accumulate(counts[number] for number in ordered)
    return next(number for number, people in zip(ordered, seen, strict=True) if people >= rank)


def even_edges(lowest: Decimal, highest: Decimal, integers: bool, bins: int = BINS) -> list[int | float]:
    """Returns edges of at most `bins` + 1 equal bins that enclose the range, at multiples of 1, 2 or 5 times a power of ten.

    >>> even_edges(Decimal("18"), Decimal("87"), True)
    [10, 20, 30, 40, 50, 60, 70, 80, 90]
    """
    step = _round_up((highest - lowest) / bins)
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
