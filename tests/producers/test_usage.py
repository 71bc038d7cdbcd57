"""Simulated people compute the values that a device computes from its log."""

import numpy as np

from devices.vectors.vectors import VECTORS
from ldpstream.device.activity import measured
from ldpstream.producers.usage import NEVER, UsageValues
from ldpstream.surveys import load_survey
from ldpstream.surveys.questions import DAY_S

N, STEPS = 300, 14


def test_the_simulated_values_are_those_of_each_persons_log() -> None:
    survey, logs = load_survey(VECTORS / "usage.toml"), [dict[int, dict[str, tuple[int, int]]]() for _ in range(N)]

    class Recorded(UsageValues):
        def _begin(self) -> None:
            super()._begin()
            for person in np.flatnonzero(self._last_before > NEVER):  # before the first simulated step: one day of use
                logs[person].setdefault(survey.opens_ms(int(self._first[person])) // (1000 * DAY_S), {"": (1, 0)})

        def _next(self) -> None:
            super()._next()
            seen, n, ms = self.days_of_use()
            for person, day in np.argwhere(seen).tolist():
                events = {event: (int(n[e, person, day]), int(ms[e, person, day])) for e, event in enumerate(self.events)}
                used = {event: counted for event, counted in events.items() if counted[0]}
                logs[person][survey.opens_ms(self._step) // (1000 * DAY_S) + day] = {"": (1, 0)} | used

    source, seen = Recorded(survey, N, STEPS, 1), set[tuple[str, int]]()
    for step in range(STEPS):
        for a, asked in enumerate(survey.attributes):
            assert asked.recipe is not None
            for person, value in zip(*(part.tolist() for part in source.at(step, a)), strict=True):
                number = asked.recipe.place(measured(asked.recipe, logs[person], survey, step))
                found = number if asked.recipe.edges else (asked.of_number(number) or (-1,))[0]
                assert found == value, (asked.name, step)
                seen.add((asked.name, value))
    assert {name for name, _ in seen} == {asked.name for asked in survey.attributes}
    assert len(seen) >= 25  # of 33 values: the control, that the comparison sees more than zeros
