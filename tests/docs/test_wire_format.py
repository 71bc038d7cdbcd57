"""Compares docs/reference/wire_format.md with the code: widths, rows, reasons, probabilities and hash functions."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ldpstream.mechanisms import NUMERIC, ONE_TIME, SETS, mechanism
from ldpstream.mechanisms.registry import portable
from ldpstream.surveys import REASONS, Reason, Rejected, check_envelope
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES, MAX_ENVELOPE_REPORTS, encode
from tests.agents.samples import during, make_survey, sound, spoilt
from tests.mechanisms.reference import most_values

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "wire_format.md").read_text()
SURVEY = make_survey()
EVERY = tuple(name for name in portable() if name not in SETS)
STEP, NOW = 5, during(SURVEY, 5)


def table(first: str) -> list[list[str]]:
    """Returns the head and the rows of the table whose head begins with these cells."""
    lines = TEXT[TEXT.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("|---")]


def number(cell: str) -> int:
    return int(cell.removeprefix("k = ").replace(" ", ""))


def made(name: str, k: int, g: int | None = None, eps_inf: float = 2.0, eps_1: float = 1.0) -> Any:
    if name in ONE_TIME or name in NUMERIC:
        return mechanism(name, k, g=g, eps=eps_1)
    return mechanism(name, k, g=g, eps_inf=eps_inf, eps_1=eps_1)


def test_the_table_of_row_widths_is_the_codes() -> None:
    (_, *heads), *rows = table("mechanism | k = 2")
    seen = set()
    for label, *cells in rows:
        names, _, g = label.removesuffix(" with ε = 1").partition(" with g = ")
        for name in names.split(", "):
            seen.add(name)
            for head, cell in zip(heads, cells, strict=True):
                if cell == "–" and name in ("SW", "L-SS"):
                    with pytest.raises(ValueError, match=r"k must be an integer in \[2, 1024\]"):
                        made(name, number(head))
                elif cell == "–":
                    with pytest.raises(ValueError, match="count table"):
                        made(name, number(head), int(g))
                else:
                    assert made(name, number(head), int(g) if g else None).report_dtype.itemsize == number(cell), (name, head)
    assert seen == set(EVERY)


@pytest.mark.parametrize(("name", "k"), list(product(EVERY, (2, 7, 8, 9, 250, 300, 70_000))))
def test_a_row_is_as_described(name: str, k: int) -> None:
    """An independent implementation, written from the document, reads the bytes of our reports."""
    k = most_values(name, k)
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
        elif name in ("GRR", "L-GRR", "SW"):
            assert len(row) == least(symbols(m, k))
            assert int.from_bytes(row, "little") < symbols(m, k)
        else:
            assert len(row) == math.ceil(k / 8)
            bits = [row[v // 8] >> v % 8 & 1 for v in range(8 * len(row))]
            assert not any(bits[k:])
            assert name not in ("SS", "L-SS") or sum(bits) == m.omega
    counts = m.tabulate(reports).counts.ravel()
    assert counts.tolist() == counted(m, name, k, [raw[i : i + size] for i in range(0, len(raw), size)])


def symbols(m: Any, k: int) -> int:
    """Returns the number of symbols of GRR and L-GRR, or of cells of SW."""
    return k - 1 + int(getattr(m, "width", 1))


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
    if name in ("GRR", "L-GRR", "SW"):
        sent = [int.from_bytes(row, "little") for row in rows]
        return [sent.count(symbol) for symbol in range(symbols(m, k))]
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
    fields = [2, bytes(8), 9, 9, SURVEY.n_steps, 2, 9, many]
    listed = [cells[0].strip("`") for cells in table("reason | the envelope")[1:]]
    seen = [reason_of([*fields[:6], "text"]), reason_of(fields)]
    assert seen[0] == "unknown version"  # another version may have other types
    changes = [{0: 1}, {1: good[1]}, {2: 0, 3: 0}, {5: len(many)}, {5: 3, 6: b"\xff" * 3}, {4: -1}, {4: STEP + 3}, {4: STEP}]
    for change in changes:
        for index, value in change.items():
            fields[index] = value
        seen.append(reason_of(fields))
        if seen[-1] == "unknown cohort":
            del fields[6]  # this survey has no cohorts
            seen.append(reason_of(fields))
    assert reason_of([*fields[:6], "text"]) == "undecodable"
    assert seen[1:] == [*listed[1:11]]
    with pytest.raises(Rejected, match="too large"):
        check_envelope(SURVEY, b"\xc1" * (MAX_ENVELOPE_BYTES + 1), NOW)


def test_the_elements_are_as_described() -> None:
    good: list[Any] = msgspec.msgpack.decode(sound(SURVEY, np.random.default_rng(1), STEP, 0))
    wide = b"\x97" + b"".join(b"\xcf" + part.to_bytes(8, "big") if isinstance(part, int) else encode(part) for part in good)
    assert check_envelope(SURVEY, wide, NOW).n == 1
    assert reason_of([*good[:6], good[6].hex()]) == "undecodable"
    assert reason_of([*good, 1]) == reason_of(good[:6]) == "undecodable"
    assert reason_of([*good[:6], 0, good[6]]) == "unknown cohort"
    assert len(table("element | type")) == 1 + len(good) + 1  # the heading, and the cohort
    for limit in (MAX_ENVELOPE_REPORTS, MAX_ENVELOPE_BYTES):
        assert f"{limit:,}".replace(",", " ") in TEXT


@pytest.mark.parametrize("name", EVERY)
def test_a_stored_table_has_the_documented_size(name: str) -> None:
    """Compares the size of a stored table with docs/howto/capacity.md."""
    text = (Path(__file__).parents[2] / "docs" / "howto" / "capacity.md").read_text().replace("\n", " ")
    assert "8 bytes × (k + 1). With local hashing: 8 × (S × g + 1), where S is the least power of g that is at least k." in text
    assert "With SW: 8 × (k + L), where L is the level's `width` in the device survey." in text
    for k in (2, 100, 1000):
        m = made(name, k)
        cells = next(m.g**n for n in range(1, 99) if m.g**n >= k) * m.g if hasattr(m, "g") else symbols(m, k)
        assert len(m.empty_table().to_bytes()) == 8 * (cells + 1)
