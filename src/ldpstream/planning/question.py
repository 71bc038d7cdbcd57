"""A question for the adviser, and its limits."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT, chain_epsilons, epsilon, integer
from ldpstream.mechanisms.registry import answering
from ldpstream.mechanisms.sets import MAX_SET_VALUES
from ldpstream.surveys.errors import UserError

MAX_K, MAX_PEOPLE = 100_000, 10_000_000


class AdviceError(UserError, ValueError):
    """The question cannot be answered; the message is one line with the reason."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question for the adviser.

    Attributes:
        k: number of values, in [2, 100 000]; with `choices` at most 30.
        people: people who answer, in [2, 10 000 000].
        eps: loss of each report in nats, for one-time mechanisms; with THE, the ε of the noise.
        every_steps: with eps, a device reports at one of this many steps, at least 1.
        eps_inf: lifetime loss of an unchanged value in nats, for memoized mechanisms.
        eps_1: loss of one report, below eps_inf; half of eps_inf by default.
        steps: number of steps of the longest span, at least 1.
        choices: the largest number of values that a person may choose, in [1, k]; None if a person has one value.
        numbers: True if the values are bins of numbers.

    Raises:
        AdviceError: if a number is outside its range, or two numbers contradict each other.
    """

    k: int
    people: int
    eps: float | None = None
    every_steps: int = 1
    eps_inf: float | None = None
    eps_1: float | None = None
    steps: int = 365
    choices: int | None = None
    numbers: bool = False

    def __post_init__(self) -> None:
        try:
            self._check()
        except ValueError as error:
            raise AdviceError(str(error)) from None

    def _check(self) -> None:
        integer("k", self.k, 2, MAX_K)
        if self.choices is not None:
            integer("k with choices", self.k, 2, MAX_SET_VALUES)
            integer("choices", self.choices, 1, self.k)
            if self.numbers:
                raise ValueError("give choices or numbers, not both")
        integer("people", self.people, 2, MAX_PEOPLE)
        integer("steps", self.steps, 1, MAX_COUNT)
        integer("every_steps", self.every_steps, 1, MAX_COUNT)
        if (self.eps is None) == (self.eps_inf is None):
            raise ValueError("give exactly one of eps (one-time) and eps_inf (memoized)")
        if self.eps_inf is None:
            epsilon("eps", self.eps)
            if self.eps_1 is not None:
                raise ValueError("eps_1 needs eps_inf, not eps")
            return
        if self.every_steps > 1:
            raise ValueError("every_steps needs eps, not eps_inf")
        chain_epsilons(self.eps_inf, self.single)

    @property
    def single(self) -> float:
        assert self.eps_inf is not None
        return self.eps_inf / 2 if self.eps_1 is None else self.eps_1

    @property
    def names(self) -> tuple[str, ...]:
        return answering(once=self.eps is not None, sets=self.choices is not None, numbers=self.numbers)

    @property
    def domain(self) -> Mapping[str, Any]:
        """The domain of the attribute as keys of a survey, with the numbers 0 … k-1 as its values."""
        if self.choices is None:
            return {"size": self.k}
        return {"values": list(map(str, range(self.k))), "choices": self.choices}

    def build(self, name: str, window_steps: int = 1) -> Mechanism:
        """Raises ValueError if the question's numbers do not allow the mechanism."""
        if self.eps is not None:
            once = mechanism(name, self.k, eps=self.eps, choices=self.choices)
            return once.spaced(self.every_steps) if self.every_steps > 1 else once
        assert self.eps_inf is not None
        return mechanism(name, self.k, eps_inf=self.eps_inf, eps_1=self.single, choices=self.choices, steps=window_steps)
