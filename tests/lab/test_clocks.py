"""The simulation of wrong clocks: its shares equal the lengths of the intervals in which reports are lost."""

from pathlib import Path

import pytest

from lab.bench.clocks import OFFSETS_MIN, ClockRow, measure

DEVICE = (Path(__file__).parents[2] / "docs" / "howto" / "device.md").read_text()


@pytest.fixture(scope="module")
def rows() -> list[ClockRow]:
    return measure(10_000, seed=1)


def test_a_report_is_lost_only_with_a_slow_clock_and_without_lateness(rows: list[ClockRow]) -> None:
    """A share of n = 10 000 reports is within 5 standard deviations; a false alarm in 40 shares: below 1e-4."""
    assert len(rows) == 20
    for row in rows:
        slow, fast = 60 * max(0.0, -row.offset_min) / row.step_s, 60 * max(0.0, row.offset_min) / row.step_s
        beyond_skew = max(0.0, fast - 60 / row.step_s)  # a clock may run ahead by a minute
        late = slow if row.lateness_steps == 0 else 0.0
        for share, expected in ((row.lost, late), (row.lost_once, late + beyond_skew)):
            assert abs(share - expected) <= 5 * (expected * (1 - expected) / row.reports) ** 0.5


def test_the_documented_shares_are_those_of_the_simulation(rows: list[ClockRow]) -> None:
    for row in (row for row in rows if row.offset_min == 0):
        (line,) = [
            line for line in DEVICE.splitlines() if line.startswith(f"| {row.step_s // 3600} h | {row.lateness_steps} |")
        ]
        same = [other for other in rows if (other.step_s, other.lateness_steps) == (row.step_s, row.lateness_steps)]
        shares = [other.lost for other in same if other.offset_min] + [same[-1].lost_once]
        assert same[-1].offset_min == OFFSETS_MIN[-1] == 10
        assert [cell.strip() for cell in line.strip("|").split("|")[2:]] == [f"{100 * share:.2f} %" for share in shares]
