"""Tables of the kinds that people really have, from the folder of the real data sets, with their right readings."""

from pathlib import Path

import pytest

from ldpstream.planning.columns import Domain, Dropped, propose, read_columns
from ldpstream.producers.people_file import read_people
from ldpstream.producers.table_file import DataError
from ldpstream.surveys import SurveyError, load_survey

LEAST = 10
YES, SIDE, CHILDREN = ["no", "yes"], ["n", "s"], ["1", "2"]
AGES = [*range(20, 61, 5)]
COLUMNS: dict[str, dict[str, object]] = {  # the name of each asked column, with its values or bins
    "p01_versions.csv": {"app_version": ["3.1", "3.10", "3.10.1", "3.9"]},
    "p01b_versions_all_numeric.csv": {"app_version": ["3.1", "3.10", "3.2", "3.9"]},
    "p02_codes_exponent.csv": {"room": ["1A2", "1E2", "2B1", "7C"]},
    "p03_plus_codes.csv": {"calling_code": ["+1", "+44", "+49", "none given"]},
    "p04_other_case.csv": {"way": ["Bus", "Car", "Other"]},
    "p05_none_is_an_answer.csv": {"pet": ["Cat", "Dog"]},
    "p06_row_names.csv": {"smoker": YES, "side": SIDE},
    "p06b_excel_tail.csv": {"smoker": YES, "side": SIDE},
    "p07_semicolon_commas_in_questions.csv": {
        "Do_you_walk_cycle_or_drive": YES, "North_or_south": SIDE, "Children_if_any": CHILDREN
    },
    "p07b_tabs_commas_in_header.csv": {"Walk_cycle_drive": YES, "Side_town": SIDE, "Children_home": CHILDREN},
    "p07d_pipes.csv": {"smoker": YES, "side": SIDE},
    "p07e_sep_line.csv": {"smoker": YES, "side": SIDE},
    "p08_three_header_rows.csv": {"Q1": "the first text is in line 2", "Q2": ["no", "yes", "other"]},
    "p10_nfc_nfd.csv": {"city": ["Bern", "Zürich"]},
    "p11_sentinels.csv": {"minutes": [0, 50, 100, 200, 500, 1000, 2000, 5000, 10_000]},
    "p24_cyrillic_headers.csv": {"column_1": AGES, "column_2": ["Казань", "Москва"]},
    "p24b_one_japanese_header.csv": {"column_1": AGES, "smoker": YES},
    "p24c_long_grid_questions.csv": {"column_1": YES, "column_2": YES},
    "p24e_duplicate_unneeded.csv": {"column_1": YES, "column_2": YES, "smoker": YES},
}  # fmt: skip
REFUSED = {
    "p14_utf16.csv": "line 1: not a text in UTF-8; save the table as CSV",
    "p15_inch_marks.csv": "line 2: not CSV",
    "p15b_open_quote_in_line_101.csv": "line 101: not CSV",
    "p20_comments.csv": "line 3: has 2 columns, the header 1; remove titles and comments",
    "p25d_answers_float_steps.csv": "line 2: the step (column 2) must be an integer, such as 0 and not 0.0",
}
PEOPLE = {  # people, steps, answers at all of at most two steps
    "p25_answers_NA.csv": (400, 2, 800 - 234), "p25b_people_NA.csv": (400, 2, 2 * (400 - 127)),
    "p25c_answers_spaces.csv": (400, 2, 800), "p25e_answers_dates.csv": (400, 2, 800), "p25g_answers_case.csv": (400, 2, 800),
    "p25h_unnamed_column.csv": (400, 2, 800), "p25i_excel_tail.csv": (400, 2, 800), "p25j_empty_rows.csv": (400, 2, 800),
    "p27_steps_for_a_pipe.csv": (300, 2, 600),
}  # fmt: skip


@pytest.fixture(scope="module")
def field(data_folder: Path) -> Path:
    return data_folder / "field"


def keys(found: Domain | Dropped) -> object:
    return found.why if isinstance(found, Dropped) else found.keys.get("values", found.keys.get("bins"))


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_proposed_as_people_mean_them(name: str, field: Path) -> None:
    _, columns = read_columns(field / name)
    found = {column.name: keys(propose(column, LEAST)) for column in columns}
    assert found.keys() == COLUMNS[name].keys()
    for column, expected in COLUMNS[name].items():
        assert found[column] == expected or (isinstance(expected, str) and expected in str(found[column]))


def test_words_and_numbers_for_no_answer_are_named(field: Path) -> None:
    _, (pet,) = read_columns(field / "p05_none_is_an_answer.csv")
    assert dict(pet.missing) == {"None": 70}
    _, (pet,) = read_columns(field / "p05_none_is_an_answer.csv", missing=["NA"])
    assert keys(propose(pet, LEAST)) == ["Cat", "Dog", "None"]
    _, (minutes,) = read_columns(field / "p11_sentinels.csv")
    found = propose(minutes, LEAST)
    assert isinstance(found, Domain)
    assert found.hint.endswith("give --missing 7777,9999.")


@pytest.mark.parametrize(("name", "said"), REFUSED.items())
def test_unreadable_tables_are_one_line_that_says_what_to_do(name: str, said: str, field: Path) -> None:
    with pytest.raises(DataError) as refused:
        if name.startswith("p25"):
            read_people(field / name, load_survey(field / "p25_survey.toml"))
        else:
            read_columns(field / name)
    assert said in str(refused.value)


@pytest.mark.parametrize(("name", "expected"), PEOPLE.items())
def test_answers_of_people_are_read(name: str, expected: tuple[int, int, int], field: Path) -> None:
    survey = load_survey(field / "p25_survey.toml")
    source = read_people(field / name, survey, n_steps=2)
    values = [source.at(step, 0)[1] for step in range(source.n_steps)]
    assert (source.n_people, source.n_steps, sum(map(len, values))) == expected
    assert all((step < survey.attributes[0].index("other")).all() for step in values)  # no answer became "other"


def test_surveys_from_editors_are_read_or_refused_by_name(field: Path) -> None:
    assert load_survey(field / "p26_byte_order_mark.toml").name == "rides"
    with pytest.raises(SurveyError, match="texts that people can tell apart, got 'walk' and 'walk '"):
        load_survey(field / "p28_labels_that_look_equal.toml")
