"""Pairs of attributes in surveys: their values, what is refused, and the text that devices get."""

import json
from typing import Any

import pytest

from ldpstream.surveys import Survey, SurveyError
from ldpstream.surveys.differences import differences
from ldpstream.surveys.life.lineage import join
from ldpstream.surveys.questions import MAX_PAIR_VALUES
from tests.pair_survey import BOTH, LEVEL, MODE, ZONE, pair_survey
from tests.small_survey import small_survey


def test_a_pair_has_a_value_for_each_combination() -> None:
    survey = pair_survey()
    pair = survey.attributes[2]
    assert pair.labels == tuple(f"{one} × {other}" for one in MODE["values"] for other in ("0 to 2", "2 to 5", "5 to 50"))
    assert (pair.k, survey.members(2), survey.members(0)) == (9, (0, 1), None)
    assert [m.k for (m,) in survey.mechanisms] == [3, 3, 9]
    assert pair.rest == (
        "A device makes this report only if it has a value of mode and of zone. Its silence can reveal that one is missing."
    )
    first = small_survey(BOTH, ZONE, MODE)  # a pair may come before its attributes
    assert (first.members(0), first.attributes[0].labels) == ((2, 1), pair.labels)
    assert pair_survey(collection="spl").share == 3


def test_the_canonical_text_names_the_two_attributes() -> None:
    text = json.loads(pair_survey().canonical)
    assert text["format"] == 5
    said = text["attribute"][2]
    assert said["pair"] == ["mode", "zone"]
    assert set(said) == {"name", "pair", "level"}
    assert json.loads(pair_survey(relay="required", lateness_steps=2).canonical)["format"] == 5
    assert json.loads(small_survey(MODE, ZONE).canonical)["format"] == 3


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown": ({"pair": ["mode", "zones"]}, ["attribute[2] (mode_by_zone)", "mode, zone, got 'zones'", "did you mean zone"]),
    "equal": ({"pair": ["mode", "mode"]}, ["two different attributes, got mode twice"]),
    "itself": ({"pair": ["mode", "mode_by_zone"]}, ["mode, zone, got 'mode_by_zone'"]),
    "one": ({"pair": ["mode"]}, ["attribute[2].pair: must be a list of length 2, got 1"]),
    "values": ({"values": ["a", "b"]}, ["values must not be given for a pair"]),
    "size": ({"size": 9}, ["exactly one of values, size, bins and pair, got size and pair"]),
    "unlisted": ({"unlisted": "car"}, ["attribute[2]: unlisted is not for an attribute with pair"]),
    "outside": ({"outside": "refuse"}, ["outside is not for an attribute with pair"]),
    "ordered": ({"ordered": True}, ["ordered is not for an attribute with pair"]),
    "aliases": ({"aliases": {"a": "b"}}, ["attribute[2]: aliases: 'b' must be one of the values"]),
    "aliases of its own values": (
        {"values": [f"{one} × {other}" for one in MODE["values"] for other in ("0 to 2", "2 to 5", "5 to 50")],
         "aliases": {"bike × 0 to 2": "bicycle × 0 to 2"}},
        ["attribute[2] (mode_by_zone): aliases must not be given for a pair"],
    ),
    "mechanism of numbers": (
        {"level": [{"name": "s", "mechanism": "SW", "eps": 1.0}]}, ["attribute[2].level[0]", "SW needs numbers"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_pair_is_refused_in_one_line(keys: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(SurveyError) as refused:
        small_survey(MODE, ZONE, BOTH | keys)
    assert "\n" not in str(refused.value)
    assert all(part in str(refused.value) for part in told), str(refused.value)


def test_two_attributes_have_at_most_one_pair() -> None:
    for pair in (["mode", "zone"], ["zone", "mode"]):
        with pytest.raises(SurveyError, match="are already the pair of mode_by_zone"):
            small_survey(MODE, ZONE, BOTH, BOTH | {"name": "again", "pair": pair})


def test_a_pair_has_a_limited_number_of_values() -> None:
    sizes = [{"name": name, "size": 32, "level": [LEVEL]} for name in ("a", "b")]
    pair = {"name": "c", "pair": ["a", "b"], "level": [LEVEL]}
    assert small_survey(*sizes, pair).attributes[2].k == MAX_PAIR_VALUES
    with pytest.raises(SurveyError, match=r"33 values of a times 32 values of b must be at most 1024, got 1056"):
        small_survey(sizes[0] | {"size": 33}, sizes[1], pair)


def renamed(old: Survey) -> Survey:
    """The next survey: `bicycle` has another name, and `tram` is new."""
    mode = MODE | {"values": ["car", "bus", "tram", "bike"], "aliases": {"bicycle": "bike"}}
    return small_survey(mode, ZONE, BOTH, name="next", replaces=old.fingerprint.hex())


def test_the_history_of_a_pair_follows_renamed_values() -> None:
    old = pair_survey()
    found = join(old, renamed(old), "mode_by_zone")
    assert found.joined
    assert found.places == (0, 1, 2, 3, 4, 5, None, None, None, 6, 7, 8)
    other_bins = small_survey(MODE, ZONE | {"bins": [0, 3, 50]}, BOTH, name="next")
    assert not join(old, other_bins, "mode_by_zone").joined
    wider = small_survey(MODE, ZONE | {"bins": [-1, 0, 2, 5, 50]}, BOTH, name="next")
    assert not join(old, wider, "zone").joined
    assert join(old, wider, "mode_by_zone").reason.startswith("zone: ")


def test_the_history_of_a_pair_does_not_continue_another_question() -> None:
    """The texts of the values are equal: only the pair tells which questions they answer."""
    names, answers = ("a", "b", "c", "d"), {"values": ["yes", "no"], "level": [LEVEL]}
    asked = [{"name": name} | answers for name in names]
    both = {"name": "both", "level": [LEVEL]}
    old = small_survey(*asked, both | {"pair": ["a", "b"]})
    listed = [f"{one} × {other}" for one in ("yes", "no") for other in ("yes", "no")]
    for new in ({"pair": ["b", "a"]}, {"pair": ["c", "d"]}, {"values": listed}):
        found = join(old, small_survey(*asked, both | new, name="next"), "both")
        assert not found.joined
        assert found.reason == "the attributes of the pair differ"


def test_differences_name_the_pair_and_not_its_values() -> None:
    old = pair_survey()
    keys = {one.key for one in differences(old, renamed(old))}
    assert "attribute.mode.aliases" in keys
    assert not {key for key in keys if key.startswith("attribute.mode_by_zone") and "level" not in key}
    turned = small_survey(MODE, ZONE, BOTH | {"pair": ["zone", "mode"]})
    [one] = [one for one in differences(old, turned) if "pair" in one.key]
    assert (one.key, one.old, one.new, one.fingerprint) == (
        "attribute.mode_by_zone.pair",
        ["mode", "zone"],
        ["zone", "mode"],
        True,
    )
