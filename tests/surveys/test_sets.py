"""Questions with several answers in surveys: their values, what is refused, and the text that devices get."""

import json
import pickle
from typing import Any

import pytest

from ldpstream.surveys import SurveyError
from ldpstream.surveys.differences import differences
from ldpstream.surveys.life.lineage import join
from tests.set_survey import APPS, LEVEL, MODE, ONCE, set_survey
from tests.small_survey import small_survey


def test_a_set_has_labels_for_its_values_and_for_small_numbers_of_answers() -> None:
    survey = set_survey(MODE)
    apps = survey.attributes[0]
    assert apps.labels == ("chat", "mail", "maps", "music", "other", "at most 2", "at most 1", "none of these")
    assert (apps.k, apps.most, survey.attributes[1].most) == (8, 3, None)
    assert apps.domain == "5 values, chat … other, at most 3 of them"
    assert (apps.find("fax"), apps.rest) == ((4, False), "For a text that is not listed, a device reports other.")
    [built] = survey.mechanisms[0]
    assert (built.name, built.k, built.choices) == ("L-PS-GRR", 8, 3)
    anything = set_survey(apps={"choices": "any", "level": [ONCE]}).attributes[0]
    assert (anything.most, anything.k) == (5, 10)
    assert anything.domain.endswith("any of them")
    assert pickle.loads(pickle.dumps(survey)) == survey


def test_the_canonical_text_has_the_number_of_answers() -> None:
    text = json.loads(set_survey(MODE).canonical)
    assert text["format"] == 6
    assert text["attribute"][0]["choices"] == text["attribute"][0]["level"][0]["choices"] == 3
    assert text["attribute"][0]["values"] == APPS["values"]
    assert json.loads(set_survey(apps={"choices": "any"}).canonical)["attribute"][0]["choices"] == 5
    assert set_survey(apps={"choices": "any"}).fingerprint == set_survey(apps={"choices": 5}).fingerprint
    with_all = set_survey(
        MODE, MODE | {"name": "zone"}, {"name": "both", "pair": ["mode", "zone"], "level": [LEVEL]},
        relay="required", lateness_steps=2,
    )  # fmt: skip
    assert json.loads(with_all.canonical)["format"] == 6
    assert json.loads(small_survey(MODE).canonical)["format"] == 3


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "zero": ({"choices": 0}, ["attribute[0].choices: must be an integer >= 1, got 0"]),
    "too many": ({"choices": 6}, ["attribute[0].level[0] (apps, standard): choices must be an integer in [1, 5], got 6"]),
    "another word": ({"choices": "all"}, ["attribute[0].choices: must be one of 'any', 'a whole number', got 'all'"]),
    "size": ({"values": None, "size": 5}, ["attribute[0]: choices is not for an attribute with size"]),
    "many values": ({"values": [f"v{i}" for i in range(31)]}, ["attribute[0]: choices needs at most 30 values, got 31"]),
    "one value": ({"values": ["a"], "choices": 1}, ["attribute[0].values: must be a list of length >= 2"]),
    "separator": ({"values": ["a;b", "c", "d"]}, ["values must not contain ';', or begin or end with a space, got 'a;b'"]),
    "space": ({"values": ["a", "b ", "c"]}, ["with choices, values must not", "or begin or end with a space, got 'b '"]),
    "label": ({"values": ["a", "b", "none of these"]}, ["values and numbers of choices must be", "got 'none of these' and"]),
    "ordered": ({"ordered": True}, ["ordered is not for an attribute with choices"]),
    "mechanism": (
        {"level": [{"name": "s", "mechanism": "GRR", "eps": 1.0}]},
        ["attribute[0].level[0] (apps, s): mechanism for several answers (choices) must be one of PS-GRR, L-PS-GRR, got 'GRR'"],
    ),
    "calibration": ({"level": [LEVEL | {"calibration": "paper"}]}, ["L-PS-GRR does not take calibration"]),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_question_is_refused_in_one_line(keys: dict[str, Any], told: list[str]) -> None:
    asked = {key: value for key, value in (APPS | keys).items() if value is not None}
    with pytest.raises(SurveyError) as refused:
        small_survey(asked)
    assert "\n" not in str(refused.value)
    assert all(part in str(refused.value) for part in told), str(refused.value)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(SurveyError, match='choices needs collection = "smp" or "spl", got rs\\+fd'):
        set_survey(MODE, collection="rs+fd")
    with pytest.raises(SurveyError, match=r"pair must name two attributes with one answer: mode, got 'apps'"):
        set_survey(MODE, {"name": "both", "pair": ["apps", "mode"], "level": [LEVEL]})
    with pytest.raises(SurveyError, match="PS-GRR needs choices"):
        small_survey(MODE | {"level": [ONCE]})


def test_the_history_of_a_set_joins_if_people_may_choose_as_many_values() -> None:
    old = set_survey()
    same = set_survey(name="next", apps={"values": ["chat", "mail", "maps", "tunes", "other"], "aliases": {"music": "tunes"}})
    assert join(old, same, "apps").places == tuple(range(8))
    assert not join(old, set_survey(name="next", apps={"choices": 2}), "apps").joined
    added = join(old, set_survey(name="next", apps={"values": ["chat", "mail", "maps", "music", "video", "other"]}), "apps")
    assert added.places == (0, 1, 2, 3, None, 4, None, None, None)  # a new value changes what "none of these" means
    assert [one.key for one in differences(old, set_survey(apps={"choices": 2}))][:1] == ["attribute.apps.choices"]
