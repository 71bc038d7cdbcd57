"""The checked-in vectors are those that the code writes, the service agrees with the refusals, and rare cases occur.

`test_programs.py` and `test_typescript.py` run the vectors through devices that were written from the documents."""

import hashlib
import json
import tomllib
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
import rfc8785

from devices.vectors.vectors import RELAYED, SURVEYS, VECTORS, files
from ldpstream.surveys import REASONS, Rejected, Survey, check_envelope, load_survey

MAX_BYTES = 1_500_000
Json = dict[str, Any]


def read(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def test_the_vectors_are_the_codes() -> None:
    """If this test fails after a change on purpose, run `python -m devices.vectors`."""
    written = {path.name: path.read_text(encoding="utf-8") for path in VECTORS.glob("*.json")}
    made = files()
    ledgers = [json.loads(texts.pop("ledger.json"), parse_float=nearly) for texts in (written, made)]
    assert ledgers[0] == ledgers[1]
    assert written == made
    assert sum(map(len, made.values())) < MAX_BYTES


def nearly(digits: str) -> Any:
    """A number of the ledger, equal up to the last digits, which depend on the processor."""
    return pytest.approx(float(digits), rel=1e-12)


def reason_of(survey: Survey, raw: bytes, appended_ms: int) -> str | None:
    try:
        check_envelope(survey, raw, appended_ms)
    except Rejected as rejected:
        return rejected.reason
    return None


def test_the_service_refuses_the_refused_envelopes_and_no_others() -> None:
    surveys = {survey.fingerprint.hex(): survey for survey in map(load_survey, SURVEYS)}
    for document in read("refused.json"):
        survey = surveys[document["survey"]["fingerprint"]]
        for case in [*document["refused"], *document["accepted"]]:
            raw = bytes.fromhex(case["envelope"]) + bytes(case["zeros"])
            assert reason_of(survey, raw, document["appended_ms"]) == case["reason"], case
        for case in document["at_the_ends_of_steps"]:
            assert reason_of(survey, bytes.fromhex(case["envelope"]), case["appended_ms"]) == case["reason"], case
    plain, with_cohorts = (document["refused"] for document in read("refused.json"))
    assert {case["reason"] for case in plain} == set(REASONS)
    assert len(plain) >= 40
    assert sum(case["reason"] == "unknown cohort" for case in with_cohorts) >= 8


# ---- rare cases


def test_a_forged_survey_fails_every_check() -> None:
    assert {case["check"] for case in read("forged.json")} == {1, 2, 3, 4, 5}


def test_the_service_accepts_every_envelope_of_the_lives() -> None:
    surveys = {survey.fingerprint.hex(): survey for survey in map(load_survey, SURVEYS)}
    made, cohorts = 0, Counter[int]()
    for life in read("devices.json"):
        survey = surveys[life["survey"]["fingerprint"]]
        for call in life["calls"]:
            if isinstance(call["envelope"], str):
                envelope = check_envelope(survey, bytes.fromhex(call["envelope"]), survey.opens_ms(call["step"]))
                assert survey.attributes[envelope.attribute].name == call["attribute"]
                assert (envelope.step, envelope.n) == (call["step"], 1)
                cohorts[envelope.cohort] += survey.cohort_name(envelope.cohort) == call["cohort"] is not None
                made += 1
    assert made > 100
    assert set(cohorts) == {0, 1, 2}


# ---- the canonical text, from the survey's file by the documented rules


def canonical(toml: str, resolved: Json) -> str:
    """The canonical text of a file. `resolved` supplies only the names and numbers that the service chooses."""
    document = tomllib.loads(toml)
    for key in ("title", "description", "purpose", "owner", "contact", "retention_steps", "replaces", "crowd"):
        document.pop(key, None)
    if isinstance(document.get("ends"), datetime):
        document["ends"] = (document["ends"] - document["start"]) // timedelta(seconds=document["step_seconds"])
    sets, paired = (any(key in attribute for attribute in document["attribute"]) for key in ("choices", "pair"))
    document["format"] = 6 if sets else 5 if paired else 4 if "relay" in document else 3
    document["start"] = round(document["start"].timestamp() * 1000)
    if document.get("skew_seconds") == min(60, document["step_seconds"]):
        del document["skew_seconds"]
    for attribute, chosen in zip(document["attribute"], resolved["attribute"], strict=True):
        for key in ("ordered", "aliases"):
            attribute.pop(key, None)
        if attribute.get("choices") == "any":
            attribute["choices"] = len(attribute["values"])
        if "pair" not in attribute and "values" not in attribute:
            attribute["outside"] = attribute.get("outside", "nearest")
        elif "other" in attribute.get("values", ()):
            attribute["unlisted"] = attribute.get("unlisted", "other")
        for key in ("outside", "unlisted"):
            if attribute.get(key) == "refuse":
                del attribute[key]
        for level, choice in zip(attribute["level"], chosen["level"], strict=True):
            if level["mechanism"] == "auto":
                level["mechanism"] = choice["mechanism"]
            level |= {key: choice[key] for key in RESOLVED if key in choice}
            for key, default in (("calibration", "exact"), ("every_steps", 1)):
                if level.get(key) == default:
                    del level[key]
    return rfc8785.dumps(document).decode()


RESOLVED = (
    "k", "row_bytes", "coins", "g", "functions", "digits", "stride", "field", "omega", "memo_size", "log_odds", "width",
    "choices",
)  # fmt: skip


def test_the_canonical_text_follows_from_the_file() -> None:
    relayed = read("relay_lives.json")[0]["survey"] | {"toml": RELAYED.read_text(encoding="utf-8")}
    for case in [*read("surveys.json"), relayed]:
        assert canonical(case["toml"], json.loads(case["canonical"])) == case["canonical"]
        assert hashlib.sha256(case["canonical"].encode()).hexdigest() == case["pin"]
        assert '"auto"' not in case["canonical"].replace('"name":"auto"', "")
