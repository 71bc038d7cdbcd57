"""Tests of files with one row for each person: which cells become which values, and what is said about the other cells."""

import traceback
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ldpstream.producers.device.device import value_index
from ldpstream.producers.people_file import load_people, open_data, value_of
from ldpstream.producers.table_file import DataError, number_text
from ldpstream.surveys import Attribute, Survey
from tests.small_survey import small_survey

SECRET = "8x7secret"
CITY = {"values": ["Berlin", "Köln", "1", "other"]}
SIZE, BINS = {"size": 4}, {"bins": [0.0, 10.0, 20.5]}


def survey(**domains: Mapping[str, object]) -> Survey:
    level = {"name": "all", "mechanism": "GRR", "eps": 1.0}
    return small_survey(*({"name": name, **domain, "level": [level]} for name, domain in domains.items()), collection="spl")


def attribute(domain: Mapping[str, object]) -> Attribute:
    return survey(a=domain).attributes[0]


@pytest.mark.parametrize(
    ("domain", "cell", "value", "how"),
    [
        (CITY, "Köln", 1, ""), (CITY, "1", 2, ""), (CITY, "1.0", 2, "respelt"), (CITY, "Ulm", 3, "unlisted"),
        (CITY, "other", 3, ""), (CITY | {"unlisted": "refuse"}, "Ulm", None, "refused"),
        (CITY | {"unlisted": "Berlin"}, "Ulm", 0, "unlisted"),
        ({"values": ["yes", "no"]}, "maybe", None, "refused"), ({"values": ["yes", "no"]}, "Yes", 0, "respelt"),
        ({"values": ["Yes", "yes"]}, "yes", 1, ""), ({"values": ["Yes", "yes"]}, "YES", None, "refused"),
        (SIZE, "3", 3, ""), (SIZE, "3.00", 3, ""), (SIZE, "9" * 15, 3, "nearest"),
        (SIZE, "7", 3, "nearest"), (SIZE, "-1", 0, "nearest"), (SIZE, "1.5", None, "refused"), (SIZE, "two", None, "refused"),
        (SIZE | {"outside": "refuse"}, "7", None, "refused"), (SIZE | {"outside": "refuse"}, "3", 3, ""),
        (BINS, "10", 1, ""), (BINS, "9.99", 0, ""), (BINS, "20.5", 1, ""), (BINS, "20.6", 1, "nearest"),
        (BINS, "-1e9", 0, "nearest"), (BINS, "x", None, "refused"), (BINS, "inf", None, "refused"),
        (SIZE, "02", None, "refused"), (BINS | {"outside": "refuse"}, "20.6", None, "refused"),
    ],
)  # fmt: skip
def test_a_cell_becomes_a_value(domain: Mapping[str, object], cell: str, value: int | None, how: str) -> None:
    asked = attribute(domain)
    assert value_of(asked, cell) == (value, how)
    if how != "respelt" and ("values" in domain or number_text(cell) == cell):
        on_a_device: int | None
        try:
            on_a_device = value_index(asked, cell)
        except ValueError:
            on_a_device = None
        assert on_a_device == value


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "people.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_row_is_a_person_with_the_same_values_at_all_steps(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffid;City ;kids;h cm\n7;Ulm;1.0;8\n\n7; Berlin ;NA;12,5\n8;;9;99\n")
    said: list[str] = []
    source = load_people(path, survey(City=CITY, kids=SIZE, h_cm=BINS), 3, said.append)
    assert (source.n_people, source.n_steps) == (3, 3)
    for step in range(3):
        found = [tuple(part.tolist() for part in source.at(step, a)) for a in range(3)]
        assert found == [([0, 1], [3, 0]), ([0, 2], [1, 3]), ([0, 2], [0, 1])]
        assert all(part.dtype == np.int64 for part in source.at(step, 0))
    assert said == [
        f"{path}: 3 people, one in each row, with the same values at all 3 steps.",
        "City: 1 text that the survey does not list became other, as on a device.",
        "kids: 1 number outside the survey's integers 0 … 3 became the nearest value, as on a device.",
        "h_cm: 1 number outside the survey's numbers 0 … 20.5 became the nearest value, as on a device.",
        "h_cm: 1 cell is not a value of the survey (numbers 0 … 20.5): these people do not answer the attribute. A device "
        "refuses such values, and its silence can reveal them.",
    ]


@pytest.mark.parametrize(
    ("header", "first_step", "n_steps"),
    [("person,step,kids", None, 2), ("person, Step ,kids", None, 2), ("who,day,kids", 0, 2), ("who,day,kids", None, 5)],
)
def test_a_file_has_steps_if_its_second_column_says_so(
    tmp_path: Path, header: str, first_step: int | None, n_steps: int
) -> None:
    path = write(tmp_path, f"{header}\na,0,1\na,1,2\n")
    source = open_data(path, survey(kids=SIZE), first_step, 5, lambda line: None)
    assert (source.n_people, source.n_steps) == (2 if n_steps == 5 else 1, n_steps)


KIDS = survey(kids=SIZE)
BAD = {
    "no header": (f"1,{SECRET}\n", "line 1: not a header, since column 1 is a number"),
    "addresses": (f"{SECRET}@x.org,kids\n", "line 1: not a header, since column 1 is an address"),
    "empty name": ("kids,,c\n1,2,3\n", "line 1: not a header, since column 2 is empty"),
    "same names": (f"kids,{SECRET},{SECRET}\n1,2,3\n", "line 1: columns 2 and 3 have the same name"),
    "no column": (f"a,{SECRET}\n1,2\n", "line 1: no column named kids; if the second column is a step, give --first-step"),
    "misspelt": ("a,kid\n1,2\n", "line 1: no column named kids; column 2 has a similar name"),
    "ragged": (f"a,kids\n1,2\n{SECRET},2,3\n", "line 3: has 3 columns, the header 2"),
    "no value": (f"a,kids\n1,{SECRET}\n", "no cell of column 2 is a value of the attribute kids (integers 0 … 3)"),
    "no row": ("a,kids\n", "no cell of column 2 is a value"),
    "quote": (f'a,kids\n1,"{SECRET}\n', "line 2: not CSV"),
    "not UTF-8": (b"a,kids\n1,2\n8x7secret,\xff\n", "line 3: not UTF-8"),
    "empty": ("\n\n", "is empty; the first line must name the columns"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_clear_error_without_its_contents(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        load_people(path, KIDS, 1, lambda line: None)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert message in text
    assert "\n" not in text
    assert SECRET not in "".join(traceback.format_exception(caught.value)).replace(str(path), "")


def test_numbers_of_any_spelling_have_one_text() -> None:
    assert {number_text(cell) for cell in ("100", "100.0", "+1e2", " 1.00e2 ")} == {"100"}
    assert number_text("0.12345678901234567890") == "0.1234567890123456789"
    assert number_text("1234567890123456") is None  # a card's number
    assert [number_text(cell) for cell in ("-0.0", ".5", "5.", "", ".", "-", "1,5", "1e999", "٣")] == [
        "0", "0.5", "5", None, None, None, None, None, None
    ]  # fmt: skip
