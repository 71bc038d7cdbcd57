"""The survey file: accepted surveys, error messages for invalid surveys, and time arithmetic."""

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveys import Survey, SurveyError, load_survey, parse_survey

SAMPLES = sorted((Path(__file__).parents[2] / "surveys" / "samples").glob("*.toml"))
DOCUMENT = tomllib.loads("""
name = "s"
start = 2026-01-05T00:00:00Z
step_seconds = 60
window_steps = 3
lateness_steps = 1
collection = "smp"
[[attribute]]
name = "a"
values = ["x", "y", "z"]
level = [{ name = "l", mechanism = "L-OSUE", eps_inf = 2.0, eps_1 = 1.0 }]
[[attribute]]
name = "b"
size = 5
level = [{ name = "l", mechanism = "GRR", eps = 1 }]
""")

LEVEL = DOCUMENT["attribute"][1]["level"]
WIDE = [{"name": "l", "mechanism": "OUE", "eps": 1.0}]


def changed(path: str, value: object) -> dict[str, Any]:
    """The document with one key changed, or with the key removed if the value is None. A part of the path is a key or a list
    index."""
    document = copy.deepcopy(DOCUMENT)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner: Any = document
    for part in parents:
        inner = inner[part]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return document


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_sample_surveys_load(path: Path) -> None:
    survey = load_survey(path)
    assert all(m.k == a.k for a, ms in zip(survey.attributes, survey.mechanisms, strict=True) for m in ms)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("name", "a b", ["name", "'a b'", "letters, digits"]),
        ("name", None, ["name", "missing"]),
        ("start", "2026-01-05", ["start"]),
        ("step_seconds", 0, ["step_seconds", "greater than or equal to 1", "got 0"]),
        ("step_seconds", 1.5, ["step_seconds", "1.5"]),
        ("step_seconds", True, ["step_seconds", "True"]),
        ("window_steps", -1, ["window_steps", "-1"]),
        ("collection", "all", ["collection", "'smp'", "'all'"]),
        ("colection", "smp", ["colection", "did you mean collection?"]),
        ("attribute", [], ["attribute", "at least 1"]),
        ("attribute.0.values", ["x", "x"], ["attribute[0]", "different"]),
        ("attribute.0.values", ["x", "y\x1b[31m"], ["attribute[0].values[1]", "control characters"]),
        ("attribute.0.values", None, ["attribute[0]", "exactly one of", "none"]),
        ("start", tomllib.loads("t = 9999-12-31T23:59:59-05:00")["t"], ["start", "1971", "9999"]),
        ("start", tomllib.loads("t = 2026-01-05T00:00:00")["t"], ["start", "time zone"]),
        ("attribute.1", {"name": "b", "bins": [0.0, float("nan"), 5.0], "level": LEVEL}, ["attribute[1]", "finite"]),
        ("attribute.1", {"name": "b", "bins": [0.0, 1.0, float("inf")], "level": LEVEL}, ["attribute[1]", "finite"]),
        ("attribute.1", {"name": "b", "size": 2**24, "level": WIDE}, ["attribute[1].level[0]", "bytes", "2097152"]),
        ("attribute.1", {"name": "b", "size": 2**23 + 1, "level": LEVEL}, ["attribute[1].level[0]", "64 MiB", "table"]),
        ("attribute.1", {"name": "b", "size": 2**23, "level": LEVEL}, ["steps that are open", "128 MiB", "192 MiB"]),
        ("attribute.0.size", 3, ["attribute[0]", "values and size"]),
        ("attribute.1.size", 1, ["attribute[1].size", "got 1"]),
        ("attribute.1.name", "a", ["two attributes are named a"]),
        ("attribute.0.level.0.eps_1", 3.0, ["attribute[0].level[0]", "eps_1", "(0, 2)", "3.0"]),
        ("attribute.0.level.0.eps_1", float("nan"), ["attribute[0].level[0]", "eps_1", "nan"]),
        ("attribute.0.level.0.eps_inf", None, ["attribute[0].level[0]", "eps_inf"]),
        ("attribute.0.level.0.mechanism", "L-XUE", ["attribute[0].level[0]", "L-XUE", "L-OSUE"]),
        ("attribute.1.level.0.eps_inf", 2.0, ["attribute[1].level[0]", "eps_inf", "GRR"]),
        ("attribute.1.level.0.every_steps", 0, ["attribute[1].level[0].every_steps", "greater than or equal to 1", "got 0"]),
        (
            "attribute.1.level.0.every_steps",
            25,
            ["attribute[1].level[0]", "every_steps", "at most window_steps = 3", "got 25"],
        ),
        ("attribute.1.level.0.lifetime_reports", 0, ["attribute[1].level[0].lifetime_reports", "got 0"]),
        ("attribute.0.level.0.every_steps", 2, ["attribute[0].level[0]", "every_steps", "one-time", "L-OSUE", "memo"]),
        ("attribute.0.level.0.lifetime_reports", 2, ["attribute[0].level[0]", "lifetime_reports", "one-time"]),
        ("attribute.0.level.0.epsilon", 1.0, ["attribute[0].level[0].epsilon", "unknown key", "eps_inf"]),
    ],
)
def test_a_broken_survey_gives_one_line_with_key_and_value(path: str, value: object, words: list[str]) -> None:
    with pytest.raises(SurveyError) as caught:
        parse_survey(changed(path, value), "file.toml")
    message = str(caught.value)
    assert message.isprintable()
    assert all(word in message for word in ["file.toml", *words]), message


def test_files_that_are_not_surveys_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name = ")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    (tmp_path / "huge.toml").write_text("a = " + "9" * 5000)
    for name in ("missing.toml", "bad.toml", "binary.toml", "deep.toml", "huge.toml", "."):
        with pytest.raises(SurveyError, match=r"not TOML|cannot be read|nested"):
            load_survey(tmp_path / name)


def test_an_attribute_is_found_by_its_name() -> None:
    survey = parse_survey(DOCUMENT)
    assert [survey.index(name) for name in ("a", "b")] == [0, 1]
    with pytest.raises(ValueError, match="attribute must be one of a, b, got 'c'"):
        survey.index("c")


def test_the_fingerprint_depends_only_on_the_contents() -> None:
    base = parse_survey(DOCUMENT).fingerprint
    assert parse_survey(changed("attribute.1.level.0.eps", 1.0)).fingerprint == base  # the numbers 1 and 1.0 are equal
    assert parse_survey(dict(reversed(DOCUMENT.items()))).fingerprint == base
    elsewhere = tomllib.loads("t = 2026-01-05T01:00:00+01:00")["t"]
    assert parse_survey(changed("start", elsewhere)).fingerprint == base  # the same instant in another time zone
    for path, value in [("window_steps", 4), ("attribute.0.level.0.eps_1", 0.9), ("attribute.1.size", 6)]:
        assert parse_survey(changed(path, value)).fingerprint != base


def test_spl_divides_budgets_by_the_number_of_attributes() -> None:
    whole, split = parse_survey(DOCUMENT), parse_survey(changed("collection", "spl"))
    for one, half in zip(whole.mechanisms, split.mechanisms, strict=True):
        assert half[0].eps_1 == pytest.approx(one[0].eps_1 / 2)


def test_values_are_found_by_text_and_not_shown() -> None:
    document = changed("attribute.1", {"name": "b", "bins": [0, 10, 20.5], "level": DOCUMENT["attribute"][1]["level"]})
    listed, binned = parse_survey(document).attributes
    sized = parse_survey(DOCUMENT).attributes[1]
    assert [listed.index(v) for v in "xyz"] == [0, 1, 2]
    assert [binned.index(v) for v in ("0", "9.99", "10", "20.5")] == [0, 0, 1, 1]
    assert binned.labels == ("[0, 10)", "[10, 20.5]")
    fine = changed("attribute.1", {"name": "b", "bins": [1000000, 1000001, 1000002, 1000003], "level": LEVEL})
    assert len(set(parse_survey(fine).attributes[1].labels)) == 3
    assert sized.index("4") == 4
    for attribute, raw in [
        (listed, "secret"), (binned, "20.6"), (binned, "-1"), (binned, "nan"), (binned, "abc"),
        (sized, "5"), (sized, "-1"), (sized, "1.0"), (sized, "٣"), (sized, ""),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match="not a value of the attribute") as caught:
            attribute.index(raw)
        assert not raw or raw not in str(caught.value).replace(attribute.domain, "").replace(attribute.name, "")


@given(st.integers(-(10**6), 10**9))
def test_every_moment_belongs_to_exactly_one_step(offset_ms: int) -> None:
    survey: Survey = parse_survey(DOCUMENT)
    now = survey.start_ms + offset_ms
    step = survey.step_at(now)
    assert survey.opens_ms(step) <= now < survey.opens_ms(step + 1)
    assert not survey.too_old(step, now)
    assert not survey.too_early(step, now)


def test_too_old_and_too_early_are_exact_to_the_millisecond() -> None:
    survey = parse_survey(DOCUMENT)
    close = survey.start_ms + (5 + 1 + 1) * 60_000  # the end of step 5, plus one step of lateness
    assert survey.closes_ms(5) == close
    assert not survey.too_old(5, close - 1)
    assert survey.too_old(5, close)
    opens = survey.start_ms + 5 * 60_000
    assert survey.skew_ms == 60_000
    assert not survey.too_early(5, opens - 60_000)
    assert survey.too_early(5, opens - 60_001)
    assert parse_survey(changed("skew_seconds", 0)).too_early(5, opens - 1)
