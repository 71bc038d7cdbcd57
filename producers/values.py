"""Sources of people's true values. `MarkovValues` simulates them; `producers.people_file` reads them from a file."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms.arguments import FloatArray, IntArray, integer
from ldpstream.producers.randomness import Purpose, stream
from ldpstream.surveys import Survey

MAX_STEPS = 1_000_000
STAY = 0.9  # probability that a simulated value is not drawn anew at a step
DAY_STEPS = 24  # period of the drift in popularity, in steps
DRIFT = 0.5  # amplitude of the drift, in logarithms of popularity


class ValueSource(Protocol):
    """People's true values, step by step.

    Attributes:
        n_people: people are numbered 0 … n_people-1.
        n_steps: steps are numbered 0 … n_steps-1.
    """

    @property
    def n_people(self) -> int: ...

    @property
    def n_steps(self) -> int: ...

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """Returns the people with a value at a step, and their values. The order of calls does not matter.

        Returns:
            people: (n,) int64, each person at most once. Do not modify this array.
            values: (n,) int64, these people's values, in [0, k); for an attribute with `choices`, the codes of their sets. Do
                not modify this array.
        """

    def numbers(self, step: int, attribute: int) -> FloatArray | None:
        """Returns the numbers of the people that `at` returns, in this order, (n,) float64; None for an attribute without bins.

        A number outside the bins stays as it is. Do not modify this array.
        """


class WithPairs:
    """The values of a source, and the values of pairs, which follow from the values of their two attributes.

    A person has a value of a pair at a step if the person has values of both attributes.
    """

    def __init__(self, survey: Survey, source: ValueSource) -> None:
        self.n_people, self.n_steps = source.n_people, source.n_steps
        self._survey, self._source = survey, source

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`."""
        members = self._survey.members(attribute)
        if members is None:
            return self._source.at(step, attribute)
        (people, first), (others, second) = (self._source.at(step, member) for member in members)
        k = self._survey.attributes[members[1]].k
        if people is others:
            return people, first * k + second
        both, i, j = np.intersect1d(people, others, assume_unique=True, return_indices=True)
        return both, first[i] * k + second[j]

    def numbers(self, step: int, attribute: int) -> FloatArray | None:
        """See `ValueSource.numbers`."""
        return self._source.numbers(step, attribute)


class MarkovValues:
    """Simulated values: a Markov chain for every person and attribute. If the survey has pairs, some attributes are dependent.

    At each step after the first, a value is kept with probability 0.9; otherwise it is drawn anew, and may be the same again.
    The popularity of value i falls like 1/(i+1) and drifts with a period of 24 steps. Everybody has a value of every attribute
    at every step. A number lies anywhere in its bin, drawn anew at each step.
    """

    def __init__(self, survey: Survey, n_people: int, n_steps: int, seed: int) -> None:
        self.n_people = integer("n_people", n_people, 1, 10**8)
        self.n_steps = integer("n_steps", n_steps, 1, MAX_STEPS)
        self._seed = integer("seed", seed, 0, 2**63)
        self._sizes = [attribute.k for attribute in survey.attributes]
        self._most = [attribute.most for attribute in survey.attributes]
        self._edges = [None if attribute.bins is None else np.array(attribute.bins) for attribute in survey.attributes]
        pairs = [pair for a in range(len(survey.attributes)) if (pair := survey.members(a)) is not None]
        self._followed = {second: first for first, second in reversed(pairs)}  # only the first pair of each second attribute
        self._people = np.arange(self.n_people)
        self._reached: dict[int, tuple[int, IntArray]] = {}

    def at(self, step: int, attribute: int) -> tuple[IntArray, IntArray]:
        """See `ValueSource.at`. Going back to an earlier step recomputes all steps up to that step."""
        integer("step", step, 0, self.n_steps - 1)
        reached, values = self._reached.get(attribute, (-1, self._people))
        if reached > step:
            reached = -1
        for later in range(reached + 1, step + 1):
            values = self._next(attribute, later, values)
        self._reached[attribute] = (step, values)
        return self._people, values

    def numbers(self, step: int, attribute: int) -> FloatArray | None:
        """See `ValueSource.numbers`."""
        edges = self._edges[attribute]
        if edges is None:
            return None
        values, places = self.at(step, attribute)[1], stream(self._seed, Purpose.NUMBERS, attribute, step).random(self.n_people)
        return np.asarray(edges[values] + places * np.diff(edges)[values])

    def _next(self, attribute: int, step: int, values: IntArray) -> IntArray:
        if (most := self._most[attribute]) is not None:
            return self._next_sets(attribute, step, values, most)
        redrawn, ranks = self._draws(attribute, step)
        if attribute in self._followed:
            theirs, their_ranks = self._draws(self._followed[attribute], step)
            follows = self._people % 2 == 0
            redrawn, ranks = np.where(follows, theirs, redrawn), np.where(follows, their_ranks, ranks)
        cumulated = np.cumsum(popularity(self._sizes[attribute], step))
        drawn = np.searchsorted(cumulated, ranks[redrawn] * cumulated[-1], side="right")
        values = values.copy()
        values[redrawn] = drawn
        return values

    def _next_sets(self, attribute: int, step: int, codes: IntArray, most: int) -> IntArray:
        rng, n = stream(self._seed, Purpose.VALUES, attribute, step), self._sizes[attribute] - most
        redrawn = rng.random(self.n_people) >= (STAY if step else 0.0)
        drawn = int(np.count_nonzero(redrawn))
        order = np.argsort(-(np.log(popularity(n, step)) + rng.gumbel(size=(drawn, n))), axis=1)
        chosen = np.arange(n) < rng.integers(0, most + 1, drawn)[:, None]
        codes = codes.copy()
        codes[redrawn] = (chosen << order).sum(axis=1)
        return codes

    def _draws(self, attribute: int, step: int) -> tuple[npt.NDArray[np.bool_], FloatArray]:
        rng = stream(self._seed, Purpose.VALUES, attribute, step)
        redrawn = rng.random(self.n_people) >= (STAY if step else 0.0)
        ranks = np.zeros(self.n_people)
        ranks[redrawn] = rng.random(np.count_nonzero(redrawn))
        return redrawn, ranks


def popularity(k: int, step: int) -> FloatArray:
    i = np.arange(k)
    weights = np.exp(DRIFT * np.sin(2 * np.pi * (step / DAY_STEPS + i / k))) / (i + 1)
    return np.asarray(weights / weights.sum())
