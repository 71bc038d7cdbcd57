"""Compares docs/reference/write_a_device.md and the canonical text in docs/reference/wire_format.md with the code."""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from ldpstream.mechanisms import LONGITUDINAL, NUMERIC, SETS, mechanism
from ldpstream.mechanisms.devices import Parameters
from ldpstream.mechanisms.families.finite_field import modulus, prime_power
from ldpstream.mechanisms.families.hash_randomizer import hashed
from ldpstream.mechanisms.families.linear_pool import LinearPool
from ldpstream.mechanisms.registry import portable
from ldpstream.surveys import Attribute, Level, load_survey

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


def grr(m: int, eps: float) -> tuple[float, float]:
    return math.exp(eps) / (math.exp(eps) + m - 1), 1 / (math.exp(eps) + m - 1)


def sue(eps: float) -> tuple[float, float]:
    p = math.exp(eps / 2) / (math.exp(eps / 2) + 1)
    return p, 1 - p


def oue(eps: float) -> tuple[float, float]:
    return 1 / 2, 1 / (math.exp(eps) + 1)


def the(eps: float) -> tuple[float, float]:
    """The threshold is found by search over a fine grid."""
    theta = np.linspace(0.5, 1, 1_000_001)[1:-1]
    p, q = 1 - np.exp(eps * (theta - 1) / 2) / 2, np.exp(-eps * theta / 2) / 2
    best = np.argmin(q * (1 - q) / (p - q) ** 2)
    return float(p[best]), float(q[best])


def second_round(name: str, m: int, big: float, small: float, p: float, q: float, paper: bool) -> tuple[float, float]:
    if name in ("L-GRR", "L-BLH", "L-OLH"):
        symbols = 2 if paper else m
        ratio = (1 + (symbols - 1) * math.exp(-big)) * (math.exp(small) - 1) / (1 - math.exp(small - big))
        return grr(m, math.log(1 + ratio))
    n, m_1 = 1 - p, 1 - q
    if name in ("L-SUE", "L-OSUE"):
        a, b = p * m_1 * (math.exp(-small) - math.exp(-big)), (1 - math.exp(-small)) * (p * q + n * m_1)
        c = p * m_1 * (1 - math.exp(-small - big))
        return sue(2 * math.log((b + math.sqrt(b * b + 4 * a * c)) / (2 * a)))
    limit = math.log(p * (1 + m_1) / (q * (1 + n)))
    a = (1 - math.exp(-small)) * n * m_1
    b, c = (1 + math.exp(-small)) * (p - q) + 2 * a, (1 + n) * q * (math.exp(limit - small) - 1)
    return 1 / 2, (b - math.sqrt(b * b - 4 * a * c)) / (2 * a) / 2


def wave_width(k: int, eps: float) -> int:
    b = (eps * math.exp(eps) - math.exp(eps) + 1) / (2 * math.exp(eps) * (math.exp(eps) - 1 - eps))
    return max(1, round(2 * b * (k - 1)))


def by_formula(name: str, m: int, omega: int, eps_1: float, eps_inf: float, paper: bool = False) -> dict[str, Any]:
    """Returns Pr[yes] of every coin by the document's formulas; m is the number of symbols."""
    if name in ("SS", "L-SS"):
        eps = eps_1 if name == "SS" else eps_inf
        drawn = {"with_value": omega * math.exp(eps) / (omega * math.exp(eps) + m - omega)}
        return {"report": drawn} if name == "SS" else {"memo": drawn, "report": {}}
    if name in SETS:
        inside = CHOICES * math.exp(eps_1 if name == "PS-GRR" else eps_inf)
        member = {"member": inside / (inside + m - CHOICES)}
        big, small = (math.log(1 + CHOICES * (math.exp(eps) - 1)) for eps in (eps_inf, eps_1))
        keep = {"keep": second_round("L-GRR", m, big, small, 0, 0, False)[0]}
        return {"report": member} if name == "PS-GRR" else {"memo": member, "report": keep}
    if name == "SW":
        cells = wave_width(m, eps_1) * math.exp(eps_1)
        return {"report": {"keep": cells / (cells + m - 1)}}
    if name in ("GRR", "BLH", "OLH"):
        return {"report": {"keep": grr(m, eps_1)[0]}}
    if name in ("SUE", "OUE", "THE"):
        return {"report": dict(zip(("one", "zero"), {"SUE": sue, "OUE": oue, "THE": the}[name](eps_1)))}
    if name in ("L-GRR", "L-BLH", "L-OLH"):
        first = grr(m, eps_inf)
        return {"memo": {"keep": first[0]},
                "report": {"keep": second_round(name, m, eps_inf, eps_1, *first, paper)[0]}}  # fmt: skip
    first = sue(eps_inf) if name in ("L-SUE", "L-SOUE") else oue(eps_inf)
    second = second_round(name, m, eps_inf, eps_1, *first, paper)
    return {"memo": dict(zip(("one", "zero"), first)), "report": dict(zip(("one", "zero"), second))}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("k", "eps_1", "eps_inf"), [(2, 0.5, 2.0), (6, 2.0, 4.0), (100, 1.0, 2.0), (1000, 2.0, 4.0)])
def test_the_coins_match_the_formulas(name: str, k: int, eps_1: float, eps_inf: float) -> None:
    """THE's threshold lies where the variance is flat, so its probabilities agree less closely."""
    for calibration in ("exact", "paper") if name in LONGITUDINAL and name != "L-SS" else (None,):
        p = built(name, k, eps_1, eps_inf, calibration)
        expected = by_formula(name, p.g or p.k, p.memo_size or p.omega or 0, eps_1, eps_inf, calibration == "paper")
        assert expected.keys() == p.coins.keys()
        assert p.width == (wave_width(k, eps_1) if name in NUMERIC else None)
        for part, coins in p.coins.items():
            assert expected[part].keys() == coins.keys()
            for which, coin in coins.items():
                smaller = sum(byte / 256 ** (i + 1) for i, byte in enumerate(bytes.fromhex(coin.digits)))
                yes = 1 - expected[part][which] if coin.inverted else expected[part][which]
                assert smaller == pytest.approx(yes, rel=1e-5 if name == "THE" else 1e-11)


@pytest.mark.parametrize("name", SETS)
def test_the_coins_of_sets_match_the_formulas(name: str) -> None:
    for k, eps_1, eps_inf in ((4, 0.5, 2.0), (10, 2.0, 4.0), (30, 1.0, 2.0)):
        p = built(name, k, eps_1, eps_inf)
        expected = by_formula(name, k + CHOICES, 0, eps_1, eps_inf)
        assert {part: set(coins) for part, coins in expected.items()} == {part: set(coins) for part, coins in p.coins.items()}
        for part, coins in p.coins.items():
            for which, coin in coins.items():
                smaller = sum(byte / 256 ** (i + 1) for i, byte in enumerate(bytes.fromhex(coin.digits)))
                yes = 1 - expected[part][which] if coin.inverted else expected[part][which]
                assert smaller == pytest.approx(yes, rel=1e-11)


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


def test_a_values_index_is_as_described() -> None:
    assert "Bin i is from edge i up to, not including, edge i + 1; the last bin includes its upper edge." in PLAIN
    levels = (Level("a", "GRR", eps=1.0),)
    bins, size = Attribute(name="a", bins=(0.0, 5.0, 9.0), levels=levels), Attribute(name="a", size=3, levels=levels)
    assert [bins.index(value) for value in ("0", "4.9", "5", "9")] == [0, 0, 1, 1]
    assert [size.index(value) for value in ("0", "2")] == [0, 2]
    assert "a number outside becomes the nearest value: 0 or k − 1, the first or the last bin" in PLAIN
    for attribute, value, nearest in ((bins, "9.1", 1), (bins, "-1", 0), (size, "3", 2)):
        assert attribute.index(value) == nearest
        with pytest.raises(ValueError, match="not a value"):
            replace(attribute, outside="refuse").index(value)


def test_the_printed_canonical_text_is_the_codes() -> None:
    survey = load_survey(ROOT / "surveys" / "samples" / "ms_fimu.toml")
    printed = re.findall(r"(?m)^    (.*)$", WIRE[WIRE.index("`e0743bab68e371e5`") :])
    text = "".join(printed)
    assert text == survey.canonical
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e0743bab68e371e5" == survey.fingerprint.hex()
    assert json.loads(text)["start"] == survey.start_ms
