"""Simulated people compute the values that a device computes from its log."""

import numpy as np

from devices.vectors.vectors import VECTORS
from ldpstream.device.activity import measured
from ldpstream.producers.usage import NEVER, UsageValues
from ldpstream.surveys import load_survey, parse_survey
from ldpstream.surveys.questions import DAY_S
from ldpstream.surveys.survey_file import toml_document

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


def test_people_upgrade_and_new_people_have_the_newest_version() -> None:
    cohort = {"name": "version", "values": ["1", "2", "3"], "least": 1}
    source = UsageValues(parse_survey(toml_document((VECTORS / "usage.toml").read_text()) | {"cohort": cohort}), N, STEPS, 1)
    versions = np.array([source.cohorts_at(step) for step in range(STEPS)])
    assert (np.diff(versions.astype(int), axis=0) >= 0).all()
    assert versions.max(axis=1).tolist() == 4 * [0] + 5 * [1] + 5 * [2]
    for step in range(STEPS):
        people, ages = source.at(step, 6)
        assert set(versions[step, people[ages == 0]]) <= {versions[step].max()}
    assert {0, 2} < set(versions[-3].tolist())  # the control: not everybody upgrades at once
