"""The checked-in vectors are the ones that the code writes, the service agrees with the refusals, and a device written from the
documents alone (`reference_device.py`) passes all vectors."""

import hashlib
import json
import math
import tomllib
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from ldpstream.mechanisms import NAMES, NUMERIC, SETS, mechanism
from ldpstream.surveys import REASONS, Rejected, Survey, check_envelope, load_survey
from tests.devices import reference_check, reference_device, reference_relay, reference_rows
from tests.devices.reference_check import Json
from tests.devices.reference_device import ReferenceDevice, ReferenceWallet
from tests.devices.reference_relay import ReferenceExchange
from tests.devices.reference_rows import Random
from tests.devices.vectors import RELAYED, SURVEYS, VECTORS, files

MAX_BYTES = 1_500_000


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


# ---- the vectors through a device written from the documents


def test_the_parameters_pass_the_documented_checks() -> None:
    surveys = read("surveys.json")
    for case, listed in zip(read("parameters.json"), surveys, strict=True):
        assert case["canonical"] == listed["canonical"]
        reference_check.check(listed | case)


def test_the_losses_of_all_mechanisms_are_the_claimed_ones() -> None:
    seen = set()
    for case in read("draws.json"):
        p = case["parameters"]
        claimed = [p["eps_inf"], p["eps_1"]] if "memo" in p["coins"] else [p["eps"]]
        assert reference_check.losses(p) == pytest.approx(claimed, rel=1e-9)
        seen.add(p["mechanism"])
    assert seen == {*NAMES, *NUMERIC, *SETS}


def test_the_documented_formulas_give_the_ledger() -> None:
    seen = set()
    for case in read("ledger.json"):
        p, t = case["parameters"], case["t"]
        assert reference_check.eps_t(p, t) == pytest.approx(case["eps_t"], rel=1e-9)
        assert t * reference_check.loss_per_report(p) == pytest.approx(case["any_values"], rel=1e-9)
        seen.add((p["mechanism"], t))
    assert len(seen) == 4 * len({*NAMES, *NUMERIC, *SETS})


def test_the_bound_for_any_values_is_never_below_the_exact_loss() -> None:
    for name in ("OUE", "L-GRR", "L-OLH", "L-OSUE"):
        m = mechanism(name, 4, eps=1.0) if name == "OUE" else mechanism(name, 4, eps_1=1.0, eps_inf=2.5)
        for t in (1, 2, 5, 100):
            assert m.eps_sequence(t).value <= t * m.eps_per_report * (1 + 1e-9)


def test_the_documented_formulas_give_the_claims() -> None:
    canonical = {case["fingerprint"]: case["canonical"] for case in read("surveys.json")}
    mechanisms = {case["canonical"]: case["mechanisms"] for case in read("parameters.json")}
    cases, infinite = read("claims.json"), 0
    for case in cases:
        text = canonical[case["fingerprint"]]
        chosen = [levels[level] for levels, level in zip(mechanisms[text], case["levels"], strict=True)]
        per_window, for_ever = reference_check.claim(json.loads(text), chosen, case["window_s"])
        assert case["losses"] == pytest.approx([reference_check.loss_per_report(p) for p in chosen], rel=1e-9)
        assert case["per_window"] == pytest.approx(per_window, rel=1e-9)
        assert (math.inf if case["for_ever"] is None else case["for_ever"]) == pytest.approx(for_ever, rel=1e-9)
        infinite += case["for_ever"] is None
    assert 0 < infinite < len(cases)


@pytest.mark.parametrize("case", read("forged.json"), ids=lambda case: case["fault"])
def test_the_documented_checks_refuse_a_forged_survey(case: Json) -> None:
    reference_check.check(read("refused.json")[0]["survey"])  # the survey without the fault
    with pytest.raises(reference_check.Refused) as refused:
        reference_check.check(case["survey"])
    assert refused.value.check == case["check"]


def test_a_forged_survey_fails_every_check() -> None:
    assert {case["check"] for case in read("forged.json")} == {1, 2, 3, 4, 5}


def test_the_documented_rules_give_the_indices_of_values() -> None:
    surveys = {case["fingerprint"]: json.loads(case["canonical"])["attribute"] for case in read("surveys.json")}
    for group in read("values.json"):
        attributes = surveys[group["fingerprint"]]
        asked = next(attribute for attribute in attributes if attribute["name"] == group["attribute"])
        for value, index in group["cases"]:
            try:
                found = reference_device.index_of(attributes, asked, value)
            except ValueError:
                found = None
            assert found == index, (group["attribute"], value)


def test_the_documented_hash_functions_give_the_hashes() -> None:
    for pool in read("hashes.json"):
        assert pool["g"] ** pool["digits"] == pool["functions"] >= pool["k"]
        for function, value, symbol in pool["cases"]:
            assert reference_rows.hash_symbol(pool, function, value) == symbol, pool["g"]


def test_the_documented_draws_give_the_memos_and_reports() -> None:
    for entry in read("draws.json"):
        p = entry["parameters"]
        for case in entry["cases"]:
            random = Random(bytes.fromhex(case["random"]))
            if case["memo"] is None:
                row = reference_rows.once(p, case["value"], random)
            else:
                function = case["function"]
                key = case["value"] if function is None else reference_rows.hash_symbol(p, function, case["value"])
                memo = reference_rows.first_row(p, p["coins"]["memo"], key, function, random)
                assert memo.hex() == case["memo"]
                row = reference_rows.second_row(p, memo, random)
            assert row.hex() == case["report"]
            assert len(row) == p["row_bytes"]
            assert not random.left


class Counting(Random):
    """Counts the rare paths of the draws."""

    def __init__(self, script: bytes, seen: Counter[str]) -> None:
        super().__init__(script)
        self.seen = seen

    def below(self, n: int) -> int:
        before = len(self.left)
        drawn = super().below(n)
        once = ((n - 1).bit_length() + 7) // 8
        self.seen["drawn again"] += once > 0 and before - len(self.left) > once
        self.seen["several bytes"] += once > 1
        self.seen["no bytes"] += once == 0
        return drawn

    def toss(self, coin: Json, n: int) -> list[bool]:
        before, digits = len(self.left), len(coin["digits"]) // 2
        answers = super().toss(coin, n)
        drawn = before - len(self.left)
        self.seen["several digits"] += n == 1 and drawn > 1
        self.seen["all digits used up"] += 0 < drawn == digits * n
        self.seen["inverted"] += coin["inverted"]
        self.seen["many undecided"] += n > 1 and drawn > n + 1
        self.seen["no tosses"] += n == 0
        return answers


def test_the_draws_take_every_rare_path() -> None:
    seen = Counter[str]()
    for entry in read("draws.json"):
        for case in entry["cases"]:
            if case["memo"] is None:
                reference_rows.once(entry["parameters"], case["value"], Counting(bytes.fromhex(case["random"]), seen))
            else:
                memo = bytes.fromhex(case["memo"])
                p, function = entry["parameters"], case["function"]
                key = case["value"] if function is None else reference_rows.hash_symbol(p, function, case["value"])
                random = Counting(bytes.fromhex(case["random"]), seen)
                reference_rows.first_row(p, p["coins"]["memo"], key, function, random)
                reference_rows.second_row(p, memo, random)
    assert len(seen) == 8
    assert min(seen.values()) >= 5, seen


def test_the_documented_format_gives_the_envelopes() -> None:
    for case in read("envelopes.json"):
        fields = (case["fingerprint"], case["attribute"], case["level"], case["step"], case["n"], bytes.fromhex(case["rows"]))
        assert reference_rows.seal(*fields, case["cohort"]).hex() == case["envelope"]


LIVES = read("devices.json") + read("relay_lives.json")


@pytest.mark.parametrize("life", LIVES, ids=lambda life: f"{life['survey']['name']}-{life['levels']}")
def test_the_documented_device_lives_the_same_lives(life: Json) -> None:
    random = Random(bytes.fromhex(life["random"]))
    device = ReferenceDevice(life["survey"], life["levels"], random)
    for call in life["calls"]:
        expected = None if call["envelope"] is None else (call["envelope"], call["key"])
        result: Any
        try:
            made = device.report(call["attribute"], call["value"], call["step"], call["cohort"])
            result = made and (made[0].hex(), call["key"] and made[1])  # a settled envelope has no key in the vectors
            if call["settle"]:
                device.settle(call["attribute"], call["step"])
        except (reference_device.StepForgotten, ValueError) as error:
            result = ({"error": type(error).__name__}, None)
        assert result == expected
        if call.get("due_ms") is not None:
            assert device.moments[call["key"]] == call["due_ms"]
    assert not random.left


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


def test_the_documented_requests_through_a_relay() -> None:
    survey, seen = load_survey(RELAYED), set[int]()
    document = msgspec.to_builtins(survey.device_survey)
    for case in read("relay_requests.json"):
        largest = reference_relay.largest(document, json.loads(survey.canonical))
        asked = (case["gateway"], bytes.fromhex(case["envelope"]), case["key"], case["token"], largest)
        assert reference_relay.message(*asked).hex() == case["message"]
        exchange = ReferenceExchange(case["keys"], bytes.fromhex(case["ephemeral"]))
        assert exchange.capsule(bytes.fromhex(case["message"])).hex() == case["capsule"]
        status, fields = exchange.answer(bytes.fromhex(case["answer"]))
        told = fields.get(b"retry-after")
        assert (status, told and int(told)) == (case["status"], case["retry_after"])
        seen.add(len(bytes.fromhex(case["capsule"])))
    assert len(read("relay_requests.json")) >= 4
    assert len(seen) == 3  # with another host or a token the size is another one


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


def wallet_call(wallet: ReferenceWallet, surveys: Json, call: Json) -> bytes | None:
    fingerprint = call["fingerprint"]
    if call["call"] == "join":
        wallet.join(surveys[fingerprint], call["now_ms"])
        return None
    if call["call"] == "leave":
        wallet.leave(fingerprint)
        return None
    made = wallet.devices[fingerprint].report(call["attribute"], call["value"], call["step"])
    return made and made[0]


@pytest.mark.parametrize("life", read("wallets.json"), ids=lambda life: str(life["limits"]))
def test_the_documented_wallet_lives_the_same_lives(life: Json) -> None:
    texts = {case["canonical"]: case["mechanisms"] for case in read("parameters.json")}
    surveys = {case["fingerprint"]: case | {"mechanisms": texts[case["canonical"]]} for case in read("surveys.json")}
    random, seen = Random(bytes.fromhex(life["random"])), Counter[str | None]()
    wallet = ReferenceWallet(life["limits"], random)
    for call in life["calls"]:
        error = envelope = None
        try:
            envelope = wallet_call(wallet, surveys, call)
        except (reference_device.WalletFull, reference_device.StepForgotten, ValueError) as raised:
            error = type(raised).__name__
        assert (error, envelope and envelope.hex()) == (call["error"], call.get("envelope"))
        per_window, for_ever = wallet.charged(call["now_ms"])
        assert (wallet.all_spent(), per_window) == pytest.approx((call["spent"], call["charged_per_window"]), rel=1e-9)
        assert for_ever == pytest.approx(math.inf if call["charged_for_ever"] is None else call["charged_for_ever"], rel=1e-9)
        seen[error] += 1
    assert not random.left
    assert seen["WalletFull"] >= 2
    assert seen["ValueError"] == 1


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


RESOLVED = ("k", "row_bytes", "coins", "g", "functions", "digits", "stride", "field", "omega", "width", "choices")


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
