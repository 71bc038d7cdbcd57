"""Compares docs/reference/wire_format.md with the code: widths, rows, reasons, probabilities and hash functions."""

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


def symbols(m: Any, k: int) -> int:
    """Returns the number of symbols of GRR and L-GRR, or of cells of SW."""
    return k - 1 + int(getattr(m, "width", 1))


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
