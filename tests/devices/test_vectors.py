"""The checked-in vectors are those that the code writes, the service agrees with the refusals, and rare cases occur.

`test_go.py` and `test_typescript.py` run the vectors through devices that were written from the documents."""

import hashlib
import json
import tomllib
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from ldpstream.mechanisms import mechanism
from ldpstream.mechanisms.devices import BitArray, Coin
from ldpstream.mechanisms.registry import portable
from ldpstream.surveys import REASONS, Rejected, Survey, check_envelope, load_survey
from tests.devices import vectors
from tests.devices.vectors import RELAYED, SURVEYS, VECTORS, files

MAX_BYTES = 1_500_000
Json = dict[str, Any]


def read(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def test_the_vectors_are_the_codes() -> None:
    """If this test fails after a change on purpose, run `python -m tests.devices.vectors`."""
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


def test_the_bound_for_any_values_is_never_below_the_exact_loss() -> None:
    for name in ("OUE", "L-GRR", "L-OLH", "L-OSUE", "L-SS"):
        m = mechanism(name, 4, eps=1.0) if name == "OUE" else mechanism(name, 4, eps_1=1.0, eps_inf=2.5)
        for t in (1, 2, 5, 100):
            assert m.eps_sequence(t).value <= t * m.claims.eps_per_report * (1 + 1e-9)


def test_a_forged_survey_fails_every_check() -> None:
    assert {case["check"] for case in read("forged.json")} == {1, 2, 3, 4, 5}


class Counting(vectors.Recorded):
    """Counts the rare paths of the draws."""

    seen: ClassVar = Counter[str]()

    def below(self, n: int) -> int:
        before, once = len(self.drawn), ((n - 1).bit_length() + 7) // 8
        drawn = super().below(n)
        self.seen["drawn again"] += once > 0 and len(self.drawn) - before > once
        self.seen["several bytes"] += once > 1
        self.seen["no bytes"] += once == 0
        return drawn

    def toss(self, coin: Coin, n: int) -> BitArray:
        before, digits = len(self.drawn), len(coin.digits) // 2
        answers = super().toss(coin, n)
        drawn = len(self.drawn) - before
        self.seen["several digits"] += n == 1 and drawn > 1
        self.seen["all digits used up"] += 0 < drawn == digits * n
        self.seen["inverted"] += coin.inverted
        self.seen["many undecided"] += n > 1 and drawn > n + 1
        self.seen["no tosses"] += n == 0
        return answers


def test_the_draws_take_every_rare_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "Recorded", Counting)
    assert {entry["parameters"].mechanism for entry in vectors.draws()} == set(portable())
    assert len(Counting.seen) == 8
    assert min(Counting.seen.values()) >= 5, Counting.seen


def test_a_report_through_a_relay_has_a_moment_of_the_next_step() -> None:
    survey, offsets = load_survey(RELAYED), set[int]()
    for life in read("relay_lives.json"):
        assert life["survey"]["canonical"] == survey.canonical
        for call in life["calls"]:
            if call["key"] is not None:
                offset_ms = call["due_ms"] - survey.opens_ms(call["step"] + 1)
                assert 0 <= offset_ms < survey.step_ms
                offsets.add(offset_ms)
    assert len(offsets) >= 25


def test_the_lives_meet_every_way_to_forget_a_step() -> None:
    """In some lives a wrong clock makes a device drop envelopes, settle later steps, and report true steps afterwards."""
    seen = Counter[str]()
    for life in read("devices.json"):
        made, latest = set[int](), -1
        for call in life["calls"]:
            error = isinstance(call["envelope"], dict) and call["envelope"]["error"] == "StepForgotten"
            seen["reported, dropped"] += error and call["step"] in made
            seen["never reported, over"] += error and call["step"] not in made
            if isinstance(call["envelope"], str):
                seen["the clock went back"] += call["step"] not in made and call["step"] < latest - 900
                made.add(call["step"])
                latest = max(latest, call["step"])
            seen["settled"] += call["settle"]
    assert len(seen) == 4
    assert min(seen.values()) >= 5, seen


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
    return jcs(document)


RESOLVED = (
    "k", "row_bytes", "coins", "g", "functions", "digits", "stride", "field", "omega", "memo_size", "log_odds", "width",
    "choices",
)  # fmt: skip


def jcs(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{jcs(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(jcs, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else number(float(value))


def number(x: float) -> str:
    """A double as ECMAScript writes it."""
    if x == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(x)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < point <= 21:
        text = text[:point].ljust(point, "0") + ("." + text[point:] if text[point:] else "")
    elif -6 < point <= 0:
        text = "0." + "0" * -point + text
    else:
        text = text[0] + ("." + text[1:] if text[1:] else "") + f"e{point - 1:+d}"
    return "-" * sign + text


def test_the_canonical_text_follows_from_the_file() -> None:
    relayed = read("relay_lives.json")[0]["survey"] | {"toml": RELAYED.read_text(encoding="utf-8")}
    for case in [*read("surveys.json"), relayed]:
        assert canonical(case["toml"], json.loads(case["canonical"])) == case["canonical"]
        assert hashlib.sha256(case["canonical"].encode()).hexdigest() == case["pin"]
        assert '"auto"' not in case["canonical"].replace('"name":"auto"', "")
