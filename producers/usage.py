"""Simulated use of an application, for surveys with recipes: people come, pause and leave, and devices compute values."""

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer
from ldpstream.producers.randomness import Purpose, stream
from ldpstream.producers.values import MarkovValues
from ldpstream.surveys import Survey
from ldpstream.surveys.questions import DAY_S, MAX_RECIPE_DAYS, Recipe

BEFORE = 60  # steps before the first one, in which people may have begun
WARM_UP = 8  # steps before the first one that are simulated
OLD, ONCE = 0.4, 0.25  # shares of the people who began before the first step; who never come again after their first step
MEAN_LIFE = 40  # steps, of the others
UPGRADE = 0.3  # chance that a person takes a new version at a step; the lag begins with the version's release
PAUSE, RETURN = 0.15, 0.35  # chances that a pause begins, and that it ends, at each step
NEVER = -(10**6)  # a step before every first use
EVENTS, SECONDS = 0.4, 20.0  # mean number of each event on a day of use, and its mean duration

Histories = tuple[npt.NDArray[np.int32], ...]


class UsageValues:
    """A `ValueSource` of people who use an application.

    Some people began before the first step; the others begin at a random one. Many come once. A person who stays pauses for
    some steps, and else uses the application on each day with a chance of the person's own. Attributes without a recipe have
    the values of `MarkovValues`, at the steps of use. The survey's cohorts are versions: the first one is there from the start,
    and the others come out at equal intervals. New people have the newest version; the others upgrade sooner or later.

    Args:
        survey: a survey with recipes.
    """

    def __init__(self, survey: Survey, n_people: int, n_steps: int, seed: int) -> None:
        self._others = MarkovValues(survey, n_people, n_steps, seed)
        self.n_people, self.n_steps = self._others.n_people, self._others.n_steps
        self._survey, self._seed, self._days = survey, integer("seed", seed, 0, 2**63), survey.step_seconds // DAY_S
        self.events = sorted({a.recipe.of for a in survey.attributes if a.recipe and a.recipe.of})
        rng, n = stream(seed, Purpose.LIVES), self.n_people
        old, once = rng.random(n) < OLD, rng.random(n) < ONCE
        self._first = np.where(old, rng.integers(-BEFORE, 0, n), rng.integers(0, self.n_steps, n))
        life = np.where(once, 0, rng.geometric(1 / MEAN_LIFE, n))
        self._end = np.where(old, np.maximum(0, self._first + life), self._first + life)  # old people are still there
        self._chance, self._rates = rng.beta(1, 1.5, n), rng.gamma(1, EVENTS, (len(self.events), n))
        self._lag = rng.geometric(UPGRADE, n)
        self._begin()

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`. Going back to an earlier step recomputes all steps up to that step."""
        integer("step", step, 0, self.n_steps - 1)
        if step < self._step:
            self._begin()
        while self._step < step:
            self._next()
        asked = self._survey.attributes[attribute]
        if asked.recipe is None:
            return self._present, self._others.at(step, attribute)[1][self._present]
        cuts = asked.recipe.edges or (asked.bins or range(asked.k + 1))[1:-1]
        return self._present, np.searchsorted(np.asarray(cuts, float), self.measured(asked.recipe), side="right")

    def numbers(self, step: int, attribute: int) -> None:
        """See `ValueSource.numbers`. Returns None: only the values are known."""

    def cohorts_at(self, step: int) -> npt.NDArray[np.uint8]:
        """Returns the index of each person's version at a step, (n_people,)."""
        released = np.arange(1, self._survey.n_cohorts)[:, None] * self.n_steps // self._survey.n_cohorts
        have = (released + self._lag <= step) | ((released <= self._first) & (self._first <= step))
        return np.asarray(have.sum(axis=0), np.uint8)

    def days_of_use(self) -> Histories:
        """Returns the use on each day of the latest step: whether each person used the application, (n, days), and the number
        and the total milliseconds of each event, (events, n, days)."""
        return self._new

    def measured(self, recipe: Recipe) -> FloatArray:
        """Returns the number of each present person at the latest step, as the devices compute it."""
        at, last = self._present, self._last_before[self._present]
        if recipe.measure == "age":
            return np.asarray(self._step - self._first[at], float)
        if recipe.measure == "absence":
            return np.where(last > NEVER, self._step - last, np.inf)
        seen, n, ms = (history[..., at, -recipe.window_days :] for history in self._before)
        days = seen.sum(axis=-1)
        if recipe.of is None:
            return np.asarray(days, float)
        e, per_day = self.events.index(recipe.of), np.maximum(days, 1)
        with_event = (n[e] > 0).sum(axis=-1)
        match recipe.measure:
            case "active_days":
                return np.asarray(with_event, float)
            case "days_without":
                return np.asarray(days - with_event, float)
            case "uses_per_day":
                return np.asarray(n[e].sum(axis=-1) / per_day)
        return np.asarray(ms[e].sum(axis=-1) / 1000 / per_day)

    def _begin(self) -> None:
        n, events, early = self.n_people, len(self.events), self._first < -WARM_UP  # these came on one day, long ago
        self._step, self._pausing, self._last = -WARM_UP - 1, np.zeros(n, bool), np.where(early, self._first, NEVER)
        self._kept: Histories = tuple(np.zeros((*kind, n, MAX_RECIPE_DAYS), np.int32) for kind in ((), (events,), (events,)))
        self._kept[0][early, MAX_RECIPE_DAYS - self._days] = 1
        while self._step < 0:
            self._next()

    def _next(self) -> None:
        """Goes to the next step. Each kept history has the 28 days up to the end of the person's last step of use."""
        self._step += 1
        self._before, self._last_before = tuple(history.copy() for history in self._kept), self._last.copy()
        rng, n, days = stream(self._seed, Purpose.USE, self._step + WARM_UP), self.n_people, self._days
        begins, alive = self._first == self._step, (self._first <= self._step) & (self._step <= self._end)
        self._pausing = np.where(self._pausing, rng.random(n) >= RETURN, rng.random(n) < PAUSE) & ~begins
        seen = (rng.random((n, days)) < self._chance[:, None]) & (alive & ~self._pausing)[:, None]
        seen[np.arange(n), rng.integers(0, days, n)] |= begins
        events = rng.poisson(self._rates[:, :, None], (len(self.events), n, days)) * seen
        ms = 1000 * SECONDS * rng.standard_gamma(np.maximum(events, 1)) * (events > 0)
        self._new = seen.astype(np.int32), events.astype(np.int32), ms.astype(np.int32)
        at = self._present = np.flatnonzero(seen.any(axis=1))
        gaps = (self._step - self._last[at])[:, None] * days
        places = np.minimum(np.arange(MAX_RECIPE_DAYS) + gaps, MAX_RECIPE_DAYS)  # the last place has a zero
        for kept, new in zip(self._kept, self._new, strict=True):
            longer = np.pad(kept[..., at, :], [(0, 0)] * (kept.ndim - 1) + [(0, 1)])
            kept[..., at, :] = np.take_along_axis(longer, np.broadcast_to(places, (*kept.shape[:-2], *places.shape)), axis=-1)
            kept[..., at, MAX_RECIPE_DAYS - days :] = new[..., at, :]
        self._last[at] = self._step
