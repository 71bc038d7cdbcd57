"""Devices refuse surveys without a good signature. The vectors are those of `devices/vectors/signatures.json`."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from devices.vectors.signatures import LATER, OWNER, STRANGER, public, signature
from devices.vectors.vectors import SURVEYS, VECTORS
from ldpstream.device import Device, NotSigned, Wallet
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.signatures import Signature, SignatureError, public_keys, read_lines

CASES = json.loads((VECTORS / "signatures.json").read_text())
KNOWN = {survey.fingerprint.hex(): survey for survey in map(load_survey, SURVEYS)}


def device(case: dict[str, Any], folder: Path, text: str | None = None) -> Device:
    given = case["signature"] and json.dumps(case["signature"])
    keys = {"signed_by": case["signed_by"], "signature": text or given}
    return Device(survey_of(case), folder / "device", **keys, consent="simulated")


def survey_of(case: dict[str, Any]) -> Survey:
    return KNOWN[case["fingerprint"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_device_answers_signed_surveys_alone_and_a_refused_one_leaves_no_file(case: dict[str, Any], tmp_path: Path) -> None:
    if case["accepted"]:
        device(case, tmp_path)
        assert list(tmp_path.iterdir())
        return
    with pytest.raises(NotSigned) as caught:
        device(case, tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_file_of_all_signatures_will_do_and_a_broken_line_is_named(tmp_path: Path) -> None:
    other = next(case for case in CASES if "another survey" in case["case"])
    lines = "\n\n".join(json.dumps(case["signature"] | {"toml": "x"}) for case in (other, CASES[0]))
    device(CASES[0], tmp_path, lines)
    for broken in ("no JSON", "[]", '{"statement": 7}', '"\ud800"'):
        with pytest.raises(NotSigned, match="line 4 of the signatures is not a signature"):
            device(CASES[0], tmp_path, f"{lines}\n{broken}\n")


def test_a_wallet_checks_before_it_charges(tmp_path: Path) -> None:
    wallet = Wallet(tmp_path / "wallet", per_window=100.0, window_s=60)
    survey, keys = survey_of(CASES[0]), CASES[0]["signed_by"]
    with pytest.raises(NotSigned, match=f"survey {survey.name} with the fingerprint {survey.fingerprint.hex()} is not signed"):
        Device(survey, wallet, signed_by=keys, consent="simulated")
    assert wallet.spent().surveys == ()
    Device(survey, wallet, signed_by=keys[0], signature=json.dumps(CASES[0]["signature"]), consent="simulated")
    assert len(wallet.spent().surveys) == 1


def test_two_signatures_can_both_be_required(tmp_path: Path) -> None:
    survey, text = survey_of(CASES[0]), CASES[0]["signature"]["statement"]
    ours, theirs = (json.dumps(signature(text, key)) for key in (OWNER, LATER))
    keys: dict[str, Any] = {"signed_by": public(OWNER), "also_signed_by": [public(LATER), public(STRANGER)]}
    for refused in (ours, theirs, f"{ours}\n{ours}"):
        with pytest.raises(NotSigned):
            Device(survey, tmp_path / "device", **keys, signature=refused)
    Device(survey, tmp_path / "device", **keys, signature=f"{ours}\n{theirs}")
    wrong: dict[str, Any]
    for wrong in ({"also_signed_by": public(LATER)}, keys | {"also_signed_by": public(OWNER)}):
        with pytest.raises(ValueError, match="also_signed_by"):
            Device(survey, tmp_path / "device", **wrong, signature=ours)


@pytest.mark.parametrize("wrong", ["", "AAAA", [], CASES[0]["signed_by"][0] + " ", CASES[0]["signed_by"][0][:-1], "é" * 44])
def test_a_wrong_public_key_is_the_applications_mistake(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="public key"):
        Device(survey_of(CASES[0]), tmp_path / "device", signed_by=wrong, signature=json.dumps(CASES[0]["signature"]))
    with pytest.raises(ValueError, match="signature and also_signed_by need signed_by"):
        Device(survey_of(CASES[0]), tmp_path / "device", signature=json.dumps(CASES[0]["signature"]))


def test_without_the_package_the_device_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ModuleNotFoundError, match=r"in your checkout, pip install '\.\[signed\]'"):
        device(CASES[0], tmp_path)
    Device(survey_of(CASES[0]), tmp_path / "device")  # without signed_by the package is not needed


def test_keys_and_lines_are_checked() -> None:
    assert [len(key) for key in public_keys(CASES[1]["signed_by"])] == [32, 32]
    for separator in "\u0085\u2028\u2029":  # str.splitlines splits there, JSON Lines do not
        told = {"statement": f"a{separator}b", "signature": "c"}
        assert read_lines(f"\n{json.dumps(told, ensure_ascii=False)}\n", Signature) == [Signature(**told)]
    with pytest.raises(SignatureError, match="line 1 "):
        read_lines('{"statement": "x"}', Signature)
    with pytest.raises(SignatureError, match="format"):
        Signature(statement="{}", signature="").read()
