"""Compares docs/reference/write_a_device.md and the canonical text in docs/reference/wire_format.md with the code."""

import hashlib
import json
import re
from pathlib import Path

import msgspec
import numpy as np

from ldpstream.mechanisms import LONGITUDINAL, SETS, mechanism
from ldpstream.mechanisms.devices import Parameters
from ldpstream.mechanisms.families.finite_field import modulus, prime_power
from ldpstream.mechanisms.families.hash_randomizer import hashed
from ldpstream.mechanisms.families.linear_pool import LinearPool
from ldpstream.mechanisms.registry import portable
from ldpstream.surveys import load_survey

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reference" / "write_a_device.md").read_text()
WIRE = (ROOT / "docs" / "reference" / "wire_format.md").read_text()
EVERY = tuple(name for name in portable() if name not in SETS)
CHOICES = 4  # of sets
PLAIN = " ".join(TEXT.split())


def rows(first: str) -> list[list[str]]:
    """Returns the rows of the table whose head begins with these cells."""
    lines = TEXT[TEXT.index(f"| {first}") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


# ---- parameters


def built(name: str, k: int, eps_1: float, eps_inf: float, calibration: str | None = None) -> Parameters:
    if name == "PS-GRR":
        return mechanism(name, k, eps=eps_1, choices=CHOICES).parameters()
    if name in SETS:
        return mechanism(name, k, eps_1=eps_1, eps_inf=eps_inf, choices=CHOICES).parameters()
    if name not in LONGITUDINAL:
        return mechanism(name, k, eps=eps_1).parameters()
    return mechanism(name, k, eps_1=eps_1, eps_inf=eps_inf, calibration=calibration).parameters()


def test_the_tables_of_coins_and_rounds_are_complete() -> None:
    listed = {name: cells for names, *cells in rows("mechanism | coins") for name in names.split(", ")}
    assert set(listed) == {*EVERY, *SETS}
    for name, cells in listed.items():
        p = built(name, 9, 1.0, 2.0)
        written = {part: ", ".join(f"`{coin}`" for coin in coins) for part, coins in p.coins.items()}
        assert [written.get("memo", "–"), written["report"] or "–"] == cells
    assert {name for names, *_ in rows("mechanism | first round") for name in names.split(", ")} == {*EVERY, *SETS}


def test_the_tables_of_keys_are_complete() -> None:
    demo = load_survey(ROOT / "surveys" / "samples" / "demo.toml")
    for head, keys in (
        ("key | meaning", {*demo.device_survey.__struct_fields__, "toml", "signature", "signatures"}),
        ("key | present", set(mechanism("GRR", 2, eps=1.0).parameters().__struct_fields__)),
    ):
        assert {key.strip("`") for cells in rows(head) for key in cells[0].split(", ")} == keys


def test_the_printed_device_survey_is_the_codes() -> None:
    survey = load_survey(ROOT / "surveys" / "samples" / "changing.toml")
    (printed,) = re.findall(r'(?m)^    \{"name": "changing"(?:.*\n)+?\n', TEXT)
    assert json.loads(printed) == json.loads(msgspec.json.encode(survey.device_survey))


def test_the_documented_files_exist() -> None:
    assert {cells[0].strip("`") for cells in rows("file | a case")} == {
        path.name for path in (ROOT / "devices" / "vectors").glob("*.json")
    }


# ---- hash functions, values, canonical text


def test_the_hash_functions_match_the_text() -> None:
    for k, g, size, stride, function, value, place, symbol in (map(int, row) for row in rows("k | g | S")):
        pool = LinearPool(k, g)
        assert (pool.size, pool.stride) == (size, stride)
        assert value * stride % k == place
        assert pool.hash(np.array([function]), np.array([value])).tolist() == [symbol]
        assert hashed(mechanism("OLH", k, eps=1.0, g=g).parameters(), function, value) == symbol
        if g in (2, 3, 5, 7):
            digits = [(function // g**j % g) * (place // g**j % g) for j in range(pool.m)]
            assert sum(digits) % g == symbol


def test_the_fields_use_the_stated_polynomials() -> None:
    (sentence,) = re.findall(r"For g = 4 it is (.*?)\. `devices/vectors/hashes", PLAIN)
    stated = re.findall(r"(?:for (\d+) )?([x²³⁴⁵+\d]+)(?:,|$)", sentence)
    assert len(stated) == 7
    for g, polynomial in stated:
        r, e = prime_power(int(g or 4)) or (0, 0)
        coefficients = [0] * (e + 1)
        for term in polynomial.split("+"):
            factor, x, power = term.partition("x")
            coefficients["x²³⁴⁵".index(power or "x") + 1 if x else 0] = int(factor or 1)
        assert tuple(coefficients) == modulus(r, e), g


def test_the_printed_canonical_text_is_the_codes() -> None:
    survey = load_survey(ROOT / "surveys" / "samples" / "ms_fimu.toml")
    printed = re.findall(r"(?m)^    (.*)$", WIRE[WIRE.index("`e0743bab68e371e5`") :])
    text = "".join(printed)
    assert text == survey.canonical
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e0743bab68e371e5" == survey.fingerprint.hex()
    assert json.loads(text)["start"] == survey.start_ms
