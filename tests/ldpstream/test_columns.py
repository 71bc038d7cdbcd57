"""Tests of the proposal of a survey: each kind of column, and no value of few people in the survey."""

import csv
import tomllib
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from ldpstream.mechanisms.registry import choose
from ldpstream.planning.advise import AdviceError
from ldpstream.planning.columns import Column, Domain, Dropped, propose, read_columns
from ldpstream.planning.proposal import Proposal, propose_survey
from ldpstream.producers.table_file import DataError
from ldpstream.surveys import parse_survey

N = 400
START = datetime(2026, 1, 5, tzinfo=UTC)


def table(folder: Path, columns: dict[str, Iterable[object]]) -> Path:
    path = folder / "people.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def some(*values: object) -> list[object]:
    """These values in turn, for N people."""
    return [values[i % len(values)] for i in range(N)]


def rare(values: list[object], *few: object) -> list[object]:
    """The values, with the last ones replaced by the values of few people."""
    return [*values[: -len(few)], *few]


SPREAD = np.linspace(0, 1, N)
SPREAD_CODES = range(10_000, 10_000 + N)
KINDS: dict[str, tuple[list[object], object]] = {
    "texts": (some("b", "a, c", 'say "x"'), {"values": ["a, c", "b", 'say "x"']}),
    "rare texts": (rare(some("a", "b"), *["8x7secret"] * 9), {"values": ["a", "b", "other"], "unlisted": "other"}),
    "one text and others": (
        rare(some("a"), *(f"8x7secret{i}" for i in range(12))), {"values": ["a", "other"], "unlisted": "other"}
    ),
    "calling codes": (some("+1", "+44", "+49", "none given"), {"values": ["+1", "+44", "+49", "none given"]}),
    "postal codes": (some("01067", "01069"), {"values": ["01067", "01069"]}),
    "one spelling of each text": (some("Yes", "yes", "yes", "No", "NO", "No"), {"values": ["No", "yes"]}),
    "integers from 0": (some(0, "1.0", 1, 2), {"size": 3, "ordered": True}),
    "integers from -2": (some(-2, -1, 0, 1, 2), {"values": ["-2", "-1", "0", "1", "2"], "ordered": True}),
    "large counts are rare": (rare(some(1, 2, 3), 7, 9, 12), {"size": 4, "ordered": True}),
    "codes": (some(1, 2, 5), {"values": ["1", "2", "5"]}),
    "codes from 0": (some(0, 1, 5, 10), {"values": ["0", "1", "5", "10"]}),
    "codes with rare ones": (rare(some(10, 20, 30), 77), {"values": ["10", "20", "30", "other"], "unlisted": "other"}),
    "ratings": (some("0.5", "1.0", "1.50", "NA"), {"values": ["0.5", "1.0", "1.50"], "ordered": True}),
    "ages": ([round(18 + 70 * s) for s in SPREAD], {"bins": [20, 30, 40, 50, 60, 70, 80, 90]}),
    "temperatures": ([round(-4.2 + 9 * s, 2) for s in SPREAD], {"bins": [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5]}),
    "incomes": ([round(10 ** (3 + 3 * s), 2) for s in SPREAD],
                {"bins": [0, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000]}),
    "amounts far from 0": ([5000 + round(10 ** (3 * s)) for s in SPREAD], {"bins": [*range(5000, 5901, 100)]}),
    "an extreme number": (rare([round(18 + 70 * s) for s in SPREAD], 99_000), {"bins": [20, 30, 40, 50, 60, 70, 80, 90]}),
    "versions": (some("3.10", "3.1", "3.10.1"), {"values": ["3.1", "3.10", "3.10.1"]}),
    "versions of two numbers": (some("3.10", "3.1", "3.9"), {"values": ["3.1", "3.10", "3.9"]}),
    "one answer beside None": (some("None", "Dog"), "everybody has the same value, if None is no answer (--missing)"),
    "codes with exponents": (some("1E2", "2E3", "100"), {"values": ["100", "1E2", "2E3"]}),
    "Other": (rare(some("Bus", "Other"), "x", "other"), {"values": ["Bus", "Other"], "unlisted": "Other"}),
    "equal looks": (some("Zu\u0308rich", "Z\u00fcrich", "Z\u00fcrich\u200b", "Bern", "New York", "New\u00a0York"),
                    {"values": ["Bern", "New York", "Z\u00fcrich"]}),
    "constant": (some("x"), "everybody has the same value"),
    "empty": (some("", "NA", "null"), "all cells are empty"),
    "names": ([f"8x7secret{i}" for i in range(N)], "fewer than 10 people share most"),
    "row numbers": ([i + 1 for i in range(N)], "row numbers or identifiers"),
    "telephones": ([1_700_000_000 + 7919 * i for i in range(N)], "row numbers or identifiers"),
    "telephones of two lengths": ([980_000_000 + 79_190 * i for i in range(N)], "row numbers or identifiers"),
    "amounts": ([100_000 + 7919 * i for i in range(N)],
                {"bins": [0, 500_000, 1_000_000, 1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000]}),
    "decimal commas": ([f"{i},5" for i in range(N)], "numbers with a comma; write a decimal point"),
    "many digits": ([s / 3 for s in SPREAD],
                    {"bins": [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35]}),
    "mixed": (rare([round(900 * s, 1) for s in SPREAD], "8x7secret"), "numbers mixed with texts"),
    "nearly constant": (rare(some(5), 1, 2, 3), "fewer than 10 people differ"),
    "few values": (rare(some("", "NA"), *range(19)), "only 19 people have a value"),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "expected"), KINDS.values(), ids=KINDS)
def test_a_column_is_asked_for_or_dropped_with_a_reason(tmp_path: Path, cells: list[object], expected: object) -> None:
    n_people, (column,) = read_columns(table(tmp_path, {"column": cells}))
    assert n_people == N
    found = propose(column, least=10)
    assert "8x7secret" not in str(found)
    if isinstance(found, Dropped):
        assert isinstance(expected, str)
        assert expected in found.why
    else:
        assert found.keys == expected


@pytest.mark.parametrize(
    ("name", "values", "dropped"),
    [
        ("email", 3, True),
        ("user_id", 30, True),
        ("customerId", 30, True),
        ("idea", 30, False),
        ("region_id", 5, False),
        ("mobile", 2, False),
    ],
)
def test_a_column_whose_name_says_that_it_identifies_people_is_dropped(name: str, values: int, dropped: bool) -> None:
    found = propose(Column(name, name, Counter({f"v{i}": 20 for i in range(values)})), least=10)
    assert ("its name says" in found.why if isinstance(found, Dropped) else False) == dropped


@pytest.mark.parametrize("name", ["postcode", "ZIP", "postalCode", "shop_id"])
def test_codes_are_no_numbers(tmp_path: Path, name: str) -> None:
    found = [propose(read_columns(table(tmp_path, {name: cells}))[1][0], 10) for cells in (some(10115, 20095), SPREAD_CODES)]
    assert [one.keys if isinstance(one, Domain) else None for one in found] == [{"values": ["10115", "20095"]}, None]


@pytest.mark.parametrize(("code", "people", "hint"), [("9999", 20, "9999"), ("-9", 31, "-9"), ("9999", 9, ""), ("208", 31, "")])
def test_a_number_that_may_mean_no_answer_gets_a_hint(tmp_path: Path, code: str, people: int, hint: str) -> None:
    found = propose(read_columns(table(tmp_path, {"minutes": [*range(90, 210)] * 3 + [code] * people}))[1][0], least=10)
    assert isinstance(found, Domain)
    assert found.words.endswith(f"(if it means no answer, give --missing {hint})") == bool(hint)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n", "has a header and no rows"),
        ("8x7secret,b\nx,1\n8x7secret,2\n", "line 1: not a header, since the text of column 1 occurs again"),
        ("a,b\n1,2\n3\n", "line 3: has 1 column, the header 2"),
        ("person,step,mode\n1,2,3\n", "line 1: column 2 is the step; a sample has one row for each person"),
        ("8x7secret@x.org,b\n2,3\n", "line 1: not a header, since column 1 is an address"),
    ],
)
def test_an_unusable_sample_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "people.csv").write_text(content)
    with pytest.raises(DataError) as caught:
        read_columns(tmp_path / "people.csv")
    assert message in str(caught.value)
    assert "8x7secret" not in str(caught.value)


def proposed(path: Path) -> Proposal:
    return propose_survey(path, "people", START, eps_inf=2.0, least=10)


def test_the_proposed_survey_is_valid_and_names_nobody(tmp_path: Path) -> None:
    path = table(tmp_path, {
        "name": [f"8x7secret{i}" for i in range(N)],
        "city": rare(some("Ulm", "Köln", '"x"\\'), "8x7secret1", "8x7secret2"),
        "Household\x7fsize": rare(some(1, 2, "3.0"), 4711),  # TOML has no such character
    })  # fmt: skip
    found = proposed(path)
    assert "8x7secret" not in found.text
    assert "4711" not in found.text
    assert found.survey == parse_survey(tomllib.loads(found.text))
    assert [(a.name, a.values, a.size) for a in found.survey.attributes] == [
        ("city", ('"x"\\', "Köln", "Ulm", "other"), None), ("Household_size", None, 4)
    ]  # fmt: skip
    assert [column.name for column, _ in found.dropped] == ["name"]


def test_the_mechanism_is_the_one_of_auto(tmp_path: Path) -> None:
    path = table(tmp_path, {f"k{k}": some(*(f"v{i}" for i in range(k))) for k in (2, 5, 20)})
    memoized = [choose(k, eps_inf=2.0, eps_1=1.0, steps=24)[0].name for k in (2, 5, 20)]
    assert [asked.mechanism.name for asked in proposed(path).asked] == memoized
    fresh = [choose(k, eps=1.0)[0].name for k in (2, 5, 20)]
    assert [asked.mechanism.name for asked in propose_survey(path, "people", START, eps=1.0, least=10).asked] == fresh


def test_a_sample_without_a_suitable_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdviceError, match=r"no column is suitable: column 1: everybody has the same value; column 2: fewer"):
        proposed(table(tmp_path, {"a": some("x"), "b": [f"s{i}" for i in range(N)]}))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (some("8x7secret\x1b", "c"), "no survey can list its values: must not contain control characters"),
        (
            some("none of these;c", "c"),
            "no survey can list its values: values and numbers of choices must be texts that people can tell apart",
        ),
    ],
)
def test_a_column_whose_values_no_survey_can_list_is_dropped(tmp_path: Path, cells: list[object], said: str) -> None:
    ((_, dropped),) = proposed(table(tmp_path, {"a": some("x", "y"), "b": cells})).dropped
    assert said in dropped.why
    assert "8x7secret" not in dropped.why
    assert "none of" not in dropped.why


def test_words_for_no_answer_may_be_other_words(tmp_path: Path) -> None:
    path = table(tmp_path, {"pet": some("None", "Dog", "Cat", "NA"), "minutes": some(*range(90, 128), 7777, 9999)})
    _, columns = read_columns(path, missing=["NA", "7777", "9999"])
    assert [dict(column.missing) for column in columns] == [{"NA": 100}, {"7777": 10, "9999": 10}]
    found = [propose(column, 10) for column in columns]
    assert [domain.keys for domain in found if isinstance(domain, Domain)] == [
        {"values": ["Cat", "Dog", "None"]}, {"bins": [90, 95, 100, 105, 110, 115, 120, 125, 130]}
    ]  # fmt: skip


def test_columns_are_chosen_by_name_and_others_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("Comment,Comment,2019,,Kind of pet\n" + "x,y,1,1,a\nx,y,2,2,b\n" * 50)
    assert [column.name for column in read_columns(path, ["Kind of pet"])[1]] == ["Kind_of_pet"]
    with pytest.raises(DataError, match=r"line 1: none of its 5 columns is named kind"):
        read_columns(path, ["kind"])
