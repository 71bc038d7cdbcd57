"""Compares docs/wire_format.md with the code: widths, rows, reasons, probabilities and hash functions."""

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mechanisms import NAMES, ONE_TIME, mechanism
from mechanisms.finite_field import modulus, prime_power
from mechanisms.linear_pool import LinearPool
from producers.device.secure_random import _linear_form
from surveys import REASONS, Attribute, Reason, Rejected, check_envelope, parse_survey
from surveys.envelope import MAX_ENVELOPE_BYTES, MAX_ENVELOPE_REPORTS, encode
from tests.agents.samples import during, make_survey, sound, spoilt

TEXT = (Path(__file__).parents[2] / "docs" / "wire_format.md").read_text()
SURVEY = make_survey()
STEP, NOW = 5, during(SURVEY, 5)


def table(first: str) -> list[list[str]]:
    """Returns the head and the rows of the table whose head begins with these cells."""
    lines = TEXT[TEXT.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("|---")]


def number(cell: str) -> int:
    return int(cell.removeprefix("k = ").replace(" ", ""))


def made(name: str, k: int, g: int | None = None, eps_inf: float = 2.0, eps_1: float = 1.0) -> Any:
    if name in ONE_TIME:
        return mechanism(name, k, g=g, eps=eps_1)
    return mechanism(name, k, g=g, eps_inf=eps_inf, eps_1=eps_1)


def test_the_table_of_row_widths_is_the_codes() -> None:
    (_, *heads), *rows = table("mechanism | k = 2")
    seen = set()
    for label, *cells in rows:
        names, _, g = label.partition(" with g = ")
        for name in names.split(", "):
            seen.add(name)
            for head, cell in zip(heads, cells, strict=True):
                if cell == "–":
                    with pytest.raises(ValueError, match="count table"):
                        made(name, number(head), int(g))
                else:
                    assert made(name, number(head), int(g) if g else None).report_dtype.itemsize == number(cell), (name, head)
    assert seen == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 7, 8, 9, 250, 300, 70_000])
def test_a_row_is_as_described(name: str, k: int) -> None:
    """An independent implementation, written from the document, reads the bytes of our reports."""
    m, rng = made(name, k), np.random.default_rng(k)
    values = rng.integers(0, k, 20)
    reports = m.simulate(values, rng)
    raw, size = reports.tobytes(), m.report_dtype.itemsize
    for row in (raw[i : i + size] for i in range(0, len(raw), size)):
        if hasattr(m, "g"):
            functions = next(m.g**digits for digits in range(1, 99) if m.g**digits >= k)
            width = least(functions)
            assert len(row) == width + least(m.g)
            assert int.from_bytes(row[:width], "little") < functions
            assert int.from_bytes(row[width:], "little") < m.g
        elif name in ("GRR", "L-GRR"):
            assert len(row) == least(k)
            assert int.from_bytes(row, "little") < k
        else:
            assert len(row) == math.ceil(k / 8)
            bits = [row[v // 8] >> v % 8 & 1 for v in range(8 * len(row))]
            assert not any(bits[k:])
            assert name != "SS" or sum(bits) == m.omega
    counts = m.tabulate(reports).counts.ravel()
    assert counts.tolist() == counted(m, name, k, [raw[i : i + size] for i in range(0, len(raw), size)])


def least(symbols: int) -> int:
    """Returns the smallest of the sizes 1, 2 and 4 bytes in which the number symbols - 1 fits."""
    return next(width for width in (1, 2, 4) if symbols - 1 < 256**width)


def counted(m: Any, name: str, k: int, rows: list[bytes]) -> list[int]:
    """Returns the count table, computed from the rows as the document describes."""
    if hasattr(m, "g"):
        counts = [0] * (m.pool.size * m.g)
        width = least(m.pool.size)
        for row in rows:
            counts[int.from_bytes(row[:width], "little") * m.g + int.from_bytes(row[width:], "little")] += 1
        return counts
    if name in ("GRR", "L-GRR"):
        symbols = [int.from_bytes(row, "little") for row in rows]
        return [symbols.count(symbol) for symbol in range(k)]
    return [sum(row[v // 8] >> v % 8 & 1 for row in rows) for v in range(k)]


# ---- reasons


def reason_of(fields: list[Any], now_ms: int = NOW) -> str:
    try:
        check_envelope(SURVEY, encode(fields), now_ms)
    except Rejected as rejected:
        return rejected.reason
    return "none"


def test_the_table_of_reasons_is_complete() -> None:
    listed = [cells[0].strip("`") for cells in table("reason | the envelope")[1:]]
    assert set(listed) == set(REASONS)
    for reason in listed:
        with pytest.raises(Rejected, match=f"^{reason}$"):
            check_envelope(SURVEY, spoilt(SURVEY, np.random.default_rng(1), STEP, _reason(reason)), NOW)


def _reason(text: str) -> Reason:
    return next(reason for reason in REASONS if reason == text)


def test_several_faults_give_the_first_reason_of_the_table() -> None:
    """Corrects an envelope's faults one by one, in the order of the table of reasons."""
    good: list[Any] = msgspec.msgpack.decode(sound(SURVEY, np.random.default_rng(1), STEP, 0))
    many = (MAX_ENVELOPE_REPORTS + 1) * b"\xff"
    fields = [2, bytes(8), 9, 9, -1, 2, many]
    listed = [cells[0].strip("`") for cells in table("reason | the envelope")[1:]]
    seen = [reason_of([*fields[:6], "text"]), reason_of(fields)]
    assert seen[0] == "unknown version"  # another version may have other types
    for change in ({0: 1}, {1: good[1]}, {2: 0, 3: 0}, {5: len(many)}, {5: 3, 6: b"\xff" * 3}, {4: STEP + 3}, {4: STEP}):
        for index, value in change.items():
            fields[index] = value
        seen.append(reason_of(fields))
    assert reason_of([*fields[:6], "text"]) == "undecodable"
    assert seen[1:] == [*listed[1:9]]
    with pytest.raises(Rejected, match="too large"):
        check_envelope(SURVEY, b"\xc1" * (MAX_ENVELOPE_BYTES + 1), NOW)


def test_the_elements_are_as_described() -> None:
    good: list[Any] = msgspec.msgpack.decode(sound(SURVEY, np.random.default_rng(1), STEP, 0))
    wide = b"\x97" + b"".join(b"\xcf" + part.to_bytes(8, "big") if isinstance(part, int) else encode(part) for part in good)
    assert check_envelope(SURVEY, wide, NOW).n == 1
    assert reason_of([*good[:6], good[6].hex()]) == "undecodable"
    assert reason_of([*good, 1]) == reason_of(good[:6]) == "undecodable"
    assert len(table("element | type")) == 1 + len(good)
    for limit in (MAX_ENVELOPE_REPORTS, MAX_ENVELOPE_BYTES):
        assert f"{limit:,}".replace(",", " ") in TEXT


# ---- a device in another language


def rounds(name: str, k: int, g: int, big: float, small: float) -> tuple[float, float, float, float]:
    """Returns p₁, q₁, p₂ and q₂ by the document's formulas."""

    def grr(m: int, eps: float) -> tuple[float, float]:
        return math.exp(eps) / (math.exp(eps) + m - 1), 1 / (math.exp(eps) + m - 1)

    def sue(eps: float) -> tuple[float, float]:
        p = math.exp(eps / 2) / (math.exp(eps / 2) + 1)
        return p, 1 - p

    if name == "L-GRR" or name.endswith("LH"):
        m = k if name == "L-GRR" else g
        ratio = (1 + (m - 1) * math.exp(-big)) * (math.exp(small) - 1) / (1 - math.exp(small - big))
        return *grr(m, big), *grr(m, math.log(1 + ratio))
    p, q = sue(big) if name in ("L-SUE", "L-SOUE") else (1 / 2, 1 / (math.exp(big) + 1))
    n, m_1 = 1 - p, 1 - q
    if name in ("L-SUE", "L-OSUE"):
        a, b = p * m_1 * (math.exp(-small) - math.exp(-big)), (1 - math.exp(-small)) * (p * q + n * m_1)
        c = p * m_1 * (1 - math.exp(-small - big))
        return p, q, *sue(2 * math.log((b + math.sqrt(b * b + 4 * a * c)) / (2 * a)))
    limit = math.log(p * (1 + m_1) / (q * (1 + n)))
    a = (1 - math.exp(-small)) * n * m_1
    b, c = (1 + math.exp(-small)) * (p - q) + 2 * a, (1 + n) * q * (math.exp(limit - small) - 1)
    return p, q, 1 / 2, (b - math.sqrt(b * b - 4 * a * c)) / (2 * a) / 2


@pytest.mark.parametrize("row", table("mechanism | k | g")[1:], ids=lambda row: f"{row[0]} {row[1]} {row[3]}")
def test_the_probabilities_match_the_code_and_the_formulas(row: list[str]) -> None:
    name, k, g, budget, *printed = row
    big, small = (float(part) for part in budget.split(", "))
    m = made(name, int(k), eps_inf=big, eps_1=small)
    exact = (m.p1, m.q1, m.p2, m.q2)
    assert printed == [f"{p:.10f}" for p in exact]
    assert str(getattr(m, "g", "–")) == g
    assert rounds(name, int(k), getattr(m, "g", 0), big, small) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("name", "p", "q"), [
    ("GRR", math.e / (math.e + 9), 1 / (math.e + 9)),
    ("SUE", math.exp(0.5) / (math.exp(0.5) + 1), 1 / (math.exp(0.5) + 1)),
    ("OUE", 0.5, 1 / (math.e + 1)),
])  # fmt: skip
def test_one_time_probabilities_match_the_text(name: str, p: float, q: float) -> None:
    m = made(name, 10)
    assert (m.p, m.q) == pytest.approx((p, q), rel=1e-12)


def test_every_memoized_mechanism_has_test_values() -> None:
    assert {row[0] for row in table("mechanism | k | g")[1:]} >= set(NAMES) - set(ONE_TIME) - {"L-BLH"}


def test_the_hash_functions_match_the_text() -> None:
    for k, g, size, function, value, symbol in (map(int, row) for row in table("k | g | S")[1:]):
        pool = LinearPool(k, g)
        assert pool.size == size
        assert pool.hash(np.array([function]), np.array([value])).tolist() == [symbol]
        assert _linear_form(pool, function, value) == symbol
        if g in (2, 3, 5, 7):
            digits = [(function // g**j % g) * (value // g**j % g) for j in range(pool.m)]
            assert sum(digits) % g == symbol


def test_the_fields_use_the_stated_polynomials() -> None:
    (sentence,) = re.findall(r"For g = 4 it is (.*?)\. Test values", " ".join(TEXT.split()))
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
    assert "Bin i is from edge i up to, not including, edge i + 1; the last bin includes its upper edge." in " ".join(
        TEXT.split()
    )
    level = ({"name": "a", "mechanism": "GRR", "eps": 1.0},)
    bins, size = (
        Attribute.model_validate({"name": "a", "level": level, **domain}) for domain in ({"bins": (0.0, 5.0, 9.0)}, {"size": 3})
    )
    assert [bins.index(value) for value in ("0", "4.9", "5", "9")] == [0, 0, 1, 1]
    assert [size.index(value) for value in ("0", "2")] == [0, 2]
    for attribute, value in ((bins, "9.1"), (bins, "-1"), (size, "3")):
        with pytest.raises(ValueError, match="not a value"):
            attribute.index(value)


def test_the_canonical_survey_is_as_described() -> None:
    document = msgspec.json.decode(SURVEY.canonical)
    assert document["start"] == SURVEY.start_ms
    assert document["attribute"][0]["size"] is None
    assert re.search(r"The default of `skew_seconds` is 60, at most a step", TEXT)
    for step_seconds, skew_ms in ((10, 10_000), (3600, 60_000)):
        asked = {"name": "a", "start": SURVEY.start, "step_seconds": step_seconds, "window_steps": 1, "lateness_steps": 1,
                 "collection": "smp", "attribute": [{"name": "a", "size": 3, "level": [
                     {"name": "a", "mechanism": "GRR", "eps": 1.0}]}]}  # fmt: skip
        assert parse_survey(asked).skew_ms == skew_ms


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_table_has_the_documented_size(name: str) -> None:
    """Compares the size of a stored table with docs/operate.md."""
    text = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    assert "8 bytes × (k + 1) (local hashing: 8 × (S × g + 1), S the least power of g that is at least k)" in text
    for k in (2, 100, 1000):
        m = made(name, k)
        cells = next(m.g**n for n in range(1, 99) if m.g**n >= k) * m.g if hasattr(m, "g") else k
        assert len(m.empty_table().to_bytes()) == 8 * (cells + 1)
