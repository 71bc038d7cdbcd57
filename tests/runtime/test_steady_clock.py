"""The wall clock that refuses to tell the time after a jump."""

import pytest

from ldpstream.runtime.clock import ClockJumped, SteadyClock, jump_seconds
from tests.small_survey import small_survey

QUESTION = {"name": "q", "size": 3, "level": [{"name": "all", "mechanism": "GRR", "eps": 1.0}]}
SURVEYS = [small_survey(QUESTION, name=f"s{step}", step_seconds=step) for step in (60, 3600)]
NOW_MS, YEAR_MS = SURVEYS[0].opens_ms(1000), 365 * 86_400_000


class Clocks:
    """A wall clock and a running clock that only the test moves."""

    def __init__(self) -> None:
        self.wall_ms, self.running_ms = NOW_MS, 7_000
        self.steady = SteadyClock(lambda: SURVEYS, lambda: self.wall_ms, lambda: self.running_ms)

    def advance(self, ms: int, jump_ms: int = 0) -> None:
        self.wall_ms += ms + jump_ms
        self.running_ms += ms


@pytest.mark.parametrize("jump_ms", [60_001, 90_000, YEAR_MS, 10**6 * YEAR_MS, -60_001, -YEAR_MS])
def test_no_time_is_told_after_a_jump_of_more_than_the_shortest_step(jump_ms: int) -> None:
    clocks = Clocks()
    clocks.advance(YEAR_MS)  # a pause of any length is no jump
    assert clocks.steady() == NOW_MS + YEAR_MS
    clocks.advance(5_000, jump_ms)
    for _ in range(2):
        with pytest.raises(ClockJumped, match="this machine's clock has jumped by"):
            clocks.steady()
        assert jump_seconds._value.get() == jump_ms / 1000
        clocks.advance(1_000)
    clocks.advance(0, -jump_ms)
    assert clocks.steady() == NOW_MS + YEAR_MS + 7_000
    assert jump_seconds._value.get() == 0
    clocks.advance(0, jump_ms)
    assert SteadyClock(lambda: SURVEYS, lambda: clocks.wall_ms, lambda: clocks.running_ms)() == clocks.wall_ms  # a restart


def test_corrections_of_at_most_a_step_are_accepted_again_and_again() -> None:
    clocks = Clocks()
    for correction_ms in (60_000, 60_000, -60_000, 400):
        clocks.advance(1_000, correction_ms)
        assert clocks.steady() == clocks.wall_ms


def test_a_suspended_process_sees_no_jump() -> None:
    """The process is suspended between its readings of the two clocks."""
    running_ms = iter([0, 0, 1_000, 3_600_000, 3_600_000, 3_600_000])
    wall_ms = iter([NOW_MS, NOW_MS + 1_000, NOW_MS + 3_600_000])
    steady = SteadyClock(lambda: SURVEYS, lambda: next(wall_ms), lambda: next(running_ms))
    assert steady() == NOW_MS + 3_600_000
