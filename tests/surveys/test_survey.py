"""The survey file: accepted surveys, error messages for invalid surveys, and time arithmetic."""

import copy
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as structs_replace

from ldpstream.device.values import value_index
from ldpstream.surveys import Attribute, Survey, SurveyError, load_survey, parse_survey
from ldpstream.surveys.differences import Difference, differences
from ldpstream.surveys.survey_file import read_survey

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

COHORT = {"name": "version", "values": ["1.0", "1.1"], "least": 1000}
LEVEL = DOCUMENT["attribute"][1]["level"]

HASHED = [{"name": "l", "mechanism": "OLH", "eps": 12.0}]


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
        ("na\x1bme", 1, ["na\\x1bme", "unknown key"]),
        ("step_seconds", 0, ["step_seconds", "an integer >= 1", "got 0"]),
        ("step_seconds", True, ["step_seconds", "True"]),
        ("collection", "all", ["collection", "'smp'", "'all'"]),
        ("attribute", [], ["attribute", "a list of length >= 1"]),
        ("attribute", {}, ["attribute", "a list, got a table"]),
        ("attribute.0.values", ["x", 3], ["attribute[0].values[1]", "a text, got 3"]),
        ("attribute.0.level.0.calibration", "x", ["attribute[0].level[0].calibration", "'exact', 'paper'", "got 'x'"]),
        ("attribute.0.values", ["x", "y\x1b[31m"], ["attribute[0].values[1]", "control characters"]),
        ("attribute.0.values", None, ["attribute[0]", "exactly one of", "none"]),
        ("start", tomllib.loads("t = 9999-12-31T23:59:59-05:00")["t"], ["start", "1971", "9999"]),
        ("start", tomllib.loads("t = 2026-01-05T00:00:00")["t"], ["start", "timezone"]),
        ("attribute.1", {"name": "b", "bins": [0.0, float("nan"), 5.0], "level": LEVEL}, ["attribute[1]", "finite"]),
        ("attribute.1", {"name": "b", "size": 100_000, "level": HASHED}, ["steps that are open", "128 MiB", "181 MiB"]),
        ("attribute.1.size", 100_001, ["attribute[1].size", "<= 100000", "got 100001"]),
        ("attribute.0.values", [f"{i}" for i in range(100_001)], ["attribute[0].values", "length <= 100000"]),
        ("attribute.1", {"name": "b", "bins": [*range(100_002)], "level": LEVEL}, ["attribute[1].bins", "length <= 100001"]),
        ("attribute.0.values", ["walk", "walk "], ["attribute[0]", "people can tell apart", "'walk' and 'walk '"]),
        ("attribute.0.values", ["\u00fc", "u\u0308"], ["tell apart", "'\\xfc' and 'u\\u0308'"]),
        ("attribute.0.values", ["Car", "\u0421ar"], ["tell apart", "'\\u0421ar'"]),
        ("attribute.0.size", 3, ["attribute[0]", "values and size"]),
        ("attribute.1.size", 1, ["attribute[1].size", "got 1"]),
        ("attribute.1.name", "a", ["names of attributes", "got 'a' and 'a'"]),
        ("attribute.0.level.0.eps_1", 3.0, ["attribute[0].level[0]", "eps_1", "(0, 2)", "3.0"]),
        ("attribute.0.level.0.eps_inf", None, ["attribute[0].level[0]", "eps_inf"]),
        ("attribute.0.level.0.mechanism", "L-XUE", ["attribute[0].level[0]", "L-XUE", "L-OSUE"]),
        ("attribute.1.level.0.eps_inf", 2.0, ["attribute[1].level[0]", "eps_inf", "GRR"]),
        ("attribute.1.level.0.every_steps", 0, ["attribute[1].level[0].every_steps", "an integer >= 1", "got 0"]),
        ("attribute.1.level.0.every_steps", 25, ["level[0]", "every_steps", "at most window_steps = 3", "got 25"]),
        ("attribute.1.level", LEVEL[0], ["attribute[1].level", "must be a list, got a table"]),
        ("attribute.1.unlisted", "other", ["unlisted is not for an attribute with size; give outside"]),
        ("attribute.0.outside", "nearest", ["outside is not for an attribute with values; give unlisted"]),
        ("attribute.0.unlisted", "other", ["unlisted must be one of the values, or 'refuse', got 'other'"]),
        ("attribute.1.level.0.lifetime_reports", 0, ["attribute[1].level[0].lifetime_reports", "got 0"]),
        ("attribute.0.level.0.every_steps", 2, ["attribute[0].level[0]", "every_steps", "one-time", "L-OSUE", "memo"]),
        ("ends", 0, ["ends", ">= 1", "got 0"]),
        ("ends", tomllib.loads("t = 2026-01-06T00:00:00")["t"], ["ends", "timezone"]),
        ("ends", tomllib.loads("t = 2026-01-05T00:00:59Z")["t"], ["ends", "one step after start", "00:00:59"]),
        ("ends", 2**53, ["ends", "before the year 9000", "got 9007199254740992"]),
        ("ends", tomllib.loads("t = 0001-01-01T00:00:00+14:00")["t"], ["ends", "between the years 1971 and 8999"]),
        ("cohort", {**COHORT, "values": ["1.0"]}, ["cohort.values", "length >= 2"]),
        ("cohort", {**COHORT, "values": [f"{i}" for i in range(65)]}, ["cohort.values", "length <= 64"]),
        ("cohort", {**COHORT, "values": ["1.0", "1.0"]}, ["cohort", "people can tell apart"]),
        ("cohort", {**COHORT, "values": ["1.0", 1.1]}, ["cohort.values[1]", "a text", "got 1.1"]),
        ("cohort", {**COHORT, "least": 0}, ["cohort.least", "an integer >= 1", "got 0"]),
        ("cohort", {**COHORT, "name": "b"}, ["cohort.name", "name of an attribute", "'b'"]),
        ("cohort", {**COHORT, "leest": 5}, ["cohort.leest", "unknown key", "did you mean least?"]),
        ("cohort", [COHORT], ["cohort", "a table, got a list"]),
        ("relay", "optional", ["relay", "'required'", "got 'optional'"]),
        ("relay", "required", ["lateness_steps", "at least 2", "got 1", "relay"]),
        ("skew_seconds", 10**400, ["skew_seconds", "<= 1000000000"]),
        *(("owner", text, ["owner", "control characters"]) for text in ("a\x1b[31m", "\u202egnissim", "\uffff")),
        ("crowd", 1000, ["crowd needs relay", "got crowd = 1000"]),
        ("crowd", 1, ["crowd", ">= 2", "got 1"]),
        ("crowd", 10**10, ["crowd", "<= 1000000000"]),
        ("retention_steps", 0, ["retention_steps", ">= 1", "got 0"]),
        ("replaces", "CD834F94B66F32B5", ["replaces", "16 lower-case hexadecimal digits", "got 'CD83"]),
        ("attribute.0.aliases", {"w": "v"}, ["attribute[0]", "aliases", "'v'", "one of the values"]),
        ("attribute.0.aliases", {"y": "x"}, ["attribute[0]", "aliases", "'y'"]),
        ("attribute.0.aliases", {"v": "x", "w": "x"}, ["attribute[0]", "two values cannot become one"]),
        ("attribute.0.level.0.epsilon", 1.0, ["attribute[0].level[0].epsilon", "unknown key", "eps_inf"]),
    ],
)
def test_a_broken_survey_gives_one_line_with_key_and_value(path: str, value: object, words: list[str]) -> None:
    with pytest.raises(SurveyError) as caught:
        parse_survey(changed(path, value), "file.toml")
    message = str(caught.value)
    assert message.isprintable()
    assert all(word in message for word in ["file.toml", *words]), message


def test_the_fingerprint_depends_only_on_the_contents() -> None:
    base = parse_survey(DOCUMENT).fingerprint
    assert parse_survey(changed("attribute.1.level.0.eps", 1.0)).fingerprint == base  # the numbers 1 and 1.0 are equal
    assert parse_survey(dict(reversed(DOCUMENT.items()))).fingerprint == base
    elsewhere = tomllib.loads("t = 2026-01-05T01:00:00+01:00")["t"]
    assert parse_survey(changed("start", elsewhere)).fingerprint == base  # the same instant in another time zone
    for path, value in [("window_steps", 4), ("attribute.0.level.0.eps_1", 0.9), ("attribute.1.size", 6)]:
        assert parse_survey(changed(path, value)).fingerprint != base


def test_a_key_at_its_default_does_not_change_the_fingerprint() -> None:
    base = parse_survey(DOCUMENT)
    defaults = [("skew_seconds", min(60, DOCUMENT["step_seconds"])), ("attribute.0.level.0.calibration", "exact"),
                ("attribute.1.level.0.every_steps", 1)]  # fmt: skip
    for path, value in defaults:
        assert parse_survey(changed(path, value)).canonical == base.canonical
    others = [("skew_seconds", 7), ("attribute.0.level.0.calibration", "paper"), ("attribute.1.level.0.every_steps", 2),
              ("attribute.1.level.0.lifetime_reports", 9)]  # fmt: skip
    for path, value in others:
        text = parse_survey(changed(path, value)).canonical
        assert f'"{path.rpartition(".")[2]}":{json.dumps(value)}' in text
        assert path.rpartition(".")[2] not in base.canonical


def test_the_last_step_ends_at_or_before_the_end() -> None:
    def ending(time: str) -> Survey:
        return parse_survey(changed("ends", tomllib.loads(f"t = {time}")["t"]))

    survey = ending("2026-01-05T00:10:00Z")
    assert survey.n_steps == 10
    assert survey.opens_ms(10) == survey.start_ms + 600_000
    assert [survey.ended(step) for step in (-1, 9, 10, 11)] == [False, False, True, True]
    assert not parse_survey(DOCUMENT).ended(2**62)
    for same in (ending("2026-01-05T00:10:59.999Z"), ending("2026-01-05T01:10:00+01:00"), parse_survey(changed("ends", 10))):
        assert same.canonical == survey.canonical
    assert '"ends":10,' in survey.canonical
    assert ending("2026-01-05T00:09:59.999Z").n_steps == 9
    assert survey.fingerprint != parse_survey(DOCUMENT).fingerprint
    assert (survey.steps_a_year, parse_survey(DOCUMENT).steps_a_year) == (10, 365 * 24 * 60)


def test_the_canonical_text_resolves_every_choice() -> None:
    """The expected text is written by hand from RFC 8785: sorted keys, no spaces, the shortest numbers, UTF-8."""
    level = [{"name": "auto", "mechanism": "auto", "eps_inf": 2.0, "eps_1": 1.0},
             {"name": "hash", "mechanism": "OLH", "eps": 1e-7}, {"name": "set", "mechanism": "SS", "eps": 0.5}]  # fmt: skip
    survey = parse_survey(DOCUMENT | {"attribute": [
        {"name": "a", "level": level, "values": ["ü€😀", '"\\']},
        {"name": "b", "bins": [-0.0, 0.1, 1e21, 1.5e300], "level": level[:1]},
    ]})  # fmt: skip
    assert json.loads(survey.canonical)["attribute"][0]["level"][1]["g"] == 2
    expected = (
        '{"attribute":[{"level":[{"coins":{"memo":{"keep":{"no":0.119203}},"report":{"keep":{"no":0.196612}}},'
        '"eps_1":1,"eps_inf":2,"k":2,"mechanism":"L-GRR","name":"auto","row_bytes":1},'
        '{"coins":{"report":{"keep":{"yes":0.5}}},"digits":1,"eps":1e-7,'
        '"field":{"characteristic":2,"degree":1,"polynomial":[0,1]},"functions":2,"g":2,"k":2,"mechanism":"OLH","name":"hash",'
        '"row_bytes":2,"stride":1},'
        '{"coins":{"report":{"with_value":{"no":0.377541}}},"eps":0.5,"k":2,"mechanism":"SS","name":"set","omega":1,'
        '"row_bytes":1}],"name":"a","values":["ü€😀","\\"\\\\"]},'
        '{"bins":[0,0.1,1e+21,1.5e+300],"level":[{"coins":{"memo":{"keep":{"no":0.213014}},"report":{"keep":{"no":0.309883}}},'
        '"eps_1":1,"eps_inf":2,"k":3,"mechanism":"L-GRR","name":"auto","row_bytes":1}],"name":"b","outside":"nearest"}],'
    )
    assert survey.canonical.startswith(expected)
    assert survey.fingerprint == hashlib.sha256(survey.canonical.encode()).digest()[:8]


def test_an_ordered_attribute_has_edges_if_its_values_are_numbers() -> None:
    """The order changes no fingerprint: devices need not know it."""
    plain = parse_survey(copy.deepcopy(DOCUMENT))
    assert [(a.in_order, a.edges) for a in plain.attributes] == [(False, None), (False, None)]
    ordered = parse_survey(changed("attribute.0.ordered", True))
    assert (ordered.attributes[0].in_order, ordered.attributes[0].edges) == (True, None)
    ordered = parse_survey(changed("attribute.1.ordered", True))
    assert (ordered.attributes[1].in_order, ordered.attributes[1].edges) == (True, (-0.5, 0.5, 1.5, 2.5, 3.5, 4.5))
    assert ordered.fingerprint == plain.fingerprint
    bins = {"name": "b", "bins": [0, 1, 3], "level": LEVEL}
    binned = parse_survey(changed("attribute.1", bins)).attributes[1]
    assert (binned.in_order, binned.edges) == (True, (0, 1, 3))
    with pytest.raises(SurveyError, match="ordered"):
        parse_survey(changed("attribute.1.ordered", 1))


def test_spl_divides_budgets_by_the_number_of_attributes() -> None:
    whole, split = parse_survey(DOCUMENT), parse_survey(changed("collection", "spl"))
    for one, half in zip(whole.mechanisms, split.mechanisms, strict=True):
        assert half[0].eps_1 == pytest.approx(one[0].eps_1 / 2)


def test_values_are_found_by_text_and_not_shown() -> None:
    document = changed("attribute.1", {"name": "b", "bins": [0, 10, 20.5], "level": DOCUMENT["attribute"][1]["level"]})
    (listed, binned), sized = parse_survey(document).attributes, parse_survey(DOCUMENT).attributes[1]
    assert [binned.index(v) for v in ("0", "9.99", "10", "20.5")] == [0, 0, 1, 1]
    assert binned.labels == ("0 to 10", "10 to 20.5")
    with_unit = parse_survey(changed("attribute.1", document["attribute"][1] | {"unit": "km"}))
    assert with_unit.attributes[1].labels == ("0 to 10 km", "10 to 20.5 km")
    assert with_unit.fingerprint == parse_survey(document).fingerprint
    fine = changed("attribute.1", {"name": "b", "bins": [1000000, 1000001, 1000002, 1000003], "level": LEVEL})
    assert len(set(parse_survey(fine).attributes[1].labels)) == 3
    strict = structs_replace(binned, outside="refuse"), structs_replace(sized, outside="refuse")
    for attribute, raw in [
        (listed, "secret"), (strict[0], "20.6"), (strict[0], "-1"), (binned, "nan"), (binned, "abc"), (binned, "inf"),
        (strict[1], "5"), (strict[1], "-1"), (sized, "1.5"), (sized, "٣"), (sized, ""),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match="not a value of the attribute") as caught:
            attribute.index(raw)
        assert not raw or raw not in str(caught.value).replace(attribute.domain, "").replace(attribute.name, "")


def rest(**keys: Any) -> Attribute:
    return parse_survey(changed("attribute.1", {"name": "b", "level": LEVEL} | keys)).attributes[1]


@pytest.mark.parametrize(
    ("keys", "asked", "expected", "in_text"),
    [
        ({"values": ["a", "other"]}, ["x", "", "a"], [1, 1, 0], {"unlisted": "other"}),
        ({"values": ["a", "other"], "unlisted": "a"}, ["x", "other"], [0, 1], {"unlisted": "a"}),
        ({"values": ["a", "other"], "unlisted": "refuse"}, ["x", "other"], [None, 1], {}),
        ({"values": ["a", "b"]}, ["x", "b"], [None, 1], {}),
        ({"bins": [0, 1, 2]}, [-1, 2.5, 1e400, -(10**400), float("nan")], [0, 1, 1, 0, None], {"outside": "nearest"}),
        ({"bins": [0, 1, 2], "outside": "nearest"}, [-1, 2], [0, 1], {"outside": "nearest"}),
        ({"bins": [0, 1, 2], "outside": "refuse"}, [-1, 2.5, 1e400, 2], [None, None, None, 1], {}),
        ({"size": 3}, [-1, 3, 10**400, "9" * 5000, 2.0, 1.5], [0, 2, 2, 2, 2, None], {"outside": "nearest"}),
        ({"size": 3, "outside": "refuse"}, [-1, 3, 2], [None, None, 2], {}),
    ],
)
def test_a_device_reports_values_outside_as_the_survey_says(
    keys: dict[str, Any], asked: list[Any], expected: list[int | None], in_text: dict[str, str]
) -> None:
    """By default a device reports every value, if possible. The canonical text states the rule for values outside."""
    attribute = rest(**keys)

    def reported(value: Any) -> int | None:
        try:
            return value_index(attribute, value)
        except ValueError:
            return None

    assert [reported(value) for value in asked] == expected
    said = json.loads(parse_survey(changed("attribute.1", {"name": "b", "level": LEVEL} | keys)).canonical)["attribute"][1]
    assert {key: said[key] for key in ("outside", "unlisted") if key in said} == in_text
    assert ("reports" in attribute.rest) == bool(in_text)
    assert ("silence" in attribute.rest) == (not in_text)


N = 1_000_000  # for so many digits, a pattern that tries every division of them would take hours
LONG_TEXTS: dict[str, tuple[str, int | None]] = {  # devices/typescript/test/survey.test.ts has the same texts
    "digits and a letter": ("1" * N + "x", None),
    "exponent and a letter": ("1e" + "1" * N + "x", None),
    "spaces and a letter": (" " * N + "7" + " " * N + "x", None),
    "points": ("." * N, None),
    "zeros in front": ("0" * N + "7", 7),
    "spaces": (" " * N + "7" + " " * N, 7),
    "zeros and an exponent": ("7" + "0" * N + f"e-{N}", 7),
    "infinite": ("9" * N, 9),
    "infinite by the exponent": ("7e" + "9" * N, 9),
}


@pytest.mark.parametrize(("text", "index"), LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_a_text_may_have_very_many_digits(text: str, index: int | None) -> None:
    attribute = rest(size=10)
    if index is not None:
        assert value_index(attribute, text) == index
    else:
        with pytest.raises(ValueError, match="not a value of the attribute b") as caught:
            value_index(attribute, text)
        assert len(str(caught.value)) < 100


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


def test_the_cohort_is_in_the_canonical_text_only_if_there_is_one() -> None:
    plain, survey = parse_survey(DOCUMENT), parse_survey(changed("cohort", COHORT))
    assert "cohort" not in plain.canonical
    assert json.loads(survey.canonical) == json.loads(plain.canonical) | {"cohort": COHORT}
    assert (plain.n_cohorts, survey.n_cohorts) == (1, 2)
    assert (plain.cohort_index(None), survey.cohort_index("1.1"), survey.cohort_name(1)) == (0, 1, "1.1")
    others = [COHORT | {"least": 999}, COHORT | {"name": "channel"}, COHORT | {"values": ["1.1", "1.0"]}]
    assert len({survey.fingerprint, *(parse_survey(changed("cohort", other)).fingerprint for other in others)}) == 4


def test_a_device_that_does_not_know_relays_refuses_the_survey() -> None:
    """Devices refuse a format that they do not know, but ignore keys: the format has to change with the key."""
    plain = parse_survey(changed("lateness_steps", 2))
    relayed = structs_replace(plain, relay="required")
    assert "relay" not in plain.canonical
    assert json.loads(relayed.canonical) == json.loads(plain.canonical) | {"relay": "required", "format": 4}
    assert json.loads(plain.canonical)["format"] == 3
    assert differences(plain, relayed) == [Difference("relay", None, "required", True)]


def test_cohorts_multiply_the_tables_and_the_estimates() -> None:
    """One cohort more than allowed is refused: by the number of estimated shares, or by the bytes of the open tables."""

    def document(size: int, n: int, mechanism: dict[str, Any]) -> dict[str, Any]:
        asked = {"name": "b", "size": size, "level": [{"name": "l", **mechanism}]}
        return changed("attribute", [asked]) | {"cohort": COHORT | {"values": [f"{i}" for i in range(n)]}}

    symbols = {"mechanism": "GRR", "eps": 1.0}
    assert parse_survey(document(2000, 50, symbols)).n_cohorts == 50
    with pytest.raises(SurveyError, match=r"cohort.values: 51 cohorts times 2000 values .* at most 100000, got 102000"):
        parse_survey(document(2000, 51, symbols))
    hashed = {"mechanism": "L-OLH", "eps_inf": 7.0, "eps_1": 6.9}  # a table of several MB
    with pytest.raises(SurveyError, match=r"128 MiB, got \d+ MiB: use fewer attributes, values, cohorts or lateness_steps"):
        parse_survey(document(1500, 64, hashed))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("name = 1\n".encode("utf-16"), "is UTF-16; save the survey as UTF-8"),
        (b'name = "\xff"\n', "is not UTF-8 (invalid start byte in byte 8); save the survey as UTF-8"),
        (b"mode,zone\ncar,1\n", "no line has a key and a value. `ldpstream init --from FILE` proposes a survey"),
        (b"PAR1\x00\x01", "no line has a key and a value"),
        (b".".join([b"a"] * 20_000) + b" = 1\n", "not TOML: a key has at most 16 parts"),
        (b"[" + b" . ".join([b'"a"', b"'b c'", b"d"] * 6000) + b"]\n", "not TOML: a key has at most 16 parts"),
        (b"x = { y = 1, " + b".".join([b"a"] * 17) + b" = 1 }\n", "not TOML: a key has at most 16 parts"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b"#" * (4 * 2**20 + 1), "a survey has at most 4 Mi characters"),
    ],
)
def test_a_file_that_is_no_survey_is_refused_before_it_costs_anything(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "survey.toml"
    path.write_bytes(raw)
    with pytest.raises(SurveyError) as refused:
        load_survey(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_byte_order_mark_and_carriage_returns_change_nothing(tmp_path: Path) -> None:
    text = 'title = "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r"\n' + SAMPLES[0].read_text().replace("title", "purpose")
    plain, marked = tmp_path / "plain.toml", tmp_path / "marked.toml"
    plain.write_text(text)
    marked.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read_survey(marked) == read_survey(plain)
