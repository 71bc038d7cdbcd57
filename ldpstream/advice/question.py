"""A question for the adviser, and its limits."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ldpstream.advice import error_measures
from ldpstream.mechanisms import Mechanism, mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT, FloatArray, chain_epsilons, epsilon, integer, one_of
from ldpstream.mechanisms.registry import answering
from ldpstream.mechanisms.sets import MAX_SET_VALUES
from ldpstream.mechanisms.solvers import largest_eps_1
from ldpstream.surveys.errors import UserError


def kl_of_distributions(truth: FloatArray, estimate: FloatArray) -> float:
    """Kullback-Leibler divergence to a distribution; infinite if the estimate has a negative number or does not sum to 1."""
    distribution = estimate.min() >= 0 and math.isclose(estimate.sum(), 1, abs_tol=1e-9)
    return max(error_measures.kl(truth, estimate), 0.0) if distribution else math.inf


METRICS: dict[str, Callable[[FloatArray, FloatArray], float]] = {
    "mse": error_measures.mse,
    "mae": error_measures.mae,
    "l1": error_measures.l1,
    "l2": error_measures.l2,
    "kl": kl_of_distributions,
    "emd": error_measures.emd_line,
}
OF_SETS = ("mse", "mae", "l1", "l2")  # the shares of several answers do not sum to 1, and have no order
MAX_K, MAX_N = 100_000, 10_000_000


class AdviceError(UserError, ValueError):
    """The question cannot be answered; the message is one line with the reason."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question for the adviser.

    Attributes:
        k: number of values, in [2, 100 000]; with `choices` at most 30.
        choices: the largest number of values that a person may choose, in [1, k]; None if a person has one value.
        numbers: True if the values are bins of numbers.
        n: people who report at a step, in [2, 10 000 000].
        eps: loss of each report in nats, for one-time mechanisms; with THE, the ε of the noise.
        eps_inf: lifetime loss of an unchanged value in nats, for memoized mechanisms.
        eps_1: loss of one report, below eps_inf; half of eps_inf if neither eps_1 nor `budget` is given.
        horizon: number of reports t whose loss ε_t is shown, at least 1.
        budget: limit of ε_t at the horizon, below eps_inf, given in place of eps_1.
        metric: one of `METRICS`.
        max_bytes: the longest report allowed, in bytes without the envelope, at least 1; None for any.

    Raises:
        AdviceError: if a number is outside its range, or two numbers contradict each other.
    """

    k: int
    n: int
    eps: float | None = None
    eps_inf: float | None = None
    eps_1: float | None = None
    horizon: int = 365
    budget: float | None = None
    metric: str = "mse"
    max_bytes: int | None = None
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
        integer("n", self.n, 2, MAX_N)
        integer("horizon", self.horizon, 1, MAX_COUNT)
        one_of("metric", self.metric, tuple(METRICS))
        if self.choices is not None:
            one_of("metric with choices", self.metric, OF_SETS)
        if self.max_bytes is not None:
            integer("max_bytes", self.max_bytes, 1, MAX_COUNT)
        if (self.eps is None) == (self.eps_inf is None):
            raise ValueError("give exactly one of eps (one-time) and eps_inf (memoized)")
        if self.eps_inf is None:
            epsilon("eps", self.eps)
            if self.eps_1 is not None or self.budget is not None:
                raise ValueError("eps_1 and budget need eps_inf, not eps")
            return
        if self.eps_1 is not None and self.budget is not None:
            raise ValueError("give eps_1 or budget, not both")
        chain_epsilons(self.eps_inf, self.single if self.budget is None else self.eps_inf / 2)
        if self.budget is not None and epsilon("budget", self.budget) >= self.eps_inf:
            raise ValueError(f"budget must be below eps_inf = {self.eps_inf:g}, the largest loss of any number of reports")

    @property
    def single(self) -> float:
        assert self.eps_inf is not None
        return self.eps_inf / 2 if self.eps_1 is None else self.eps_1

    @property
    def names(self) -> tuple[str, ...]:
        return answering(once=self.eps is not None, sets=self.choices is not None, numbers=self.numbers)

    def domain(self, labels: Sequence[str] | None = None) -> Mapping[str, Any]:
        """The domain of the attribute, as keys of a survey; without labels, the values are the numbers 0 … k-1."""
        if self.choices is None:
            return {"size": self.k} if labels is None else {"values": list(labels)}
        return {"values": list(labels or map(str, range(self.k))), "choices": self.choices}

    def build(self, name: str) -> Mechanism:
        """Raises ValueError if the question's numbers do not allow the mechanism."""
        if self.eps is not None:
            return mechanism(name, self.k, eps=self.eps, choices=self.choices)
        assert self.eps_inf is not None
        if self.budget is not None:
            return largest_eps_1(
                name, self.k, eps_inf=self.eps_inf, horizon=self.horizon, budget=self.budget, choices=self.choices
            )
        return mechanism(name, self.k, eps_inf=self.eps_inf, eps_1=self.single, choices=self.choices)
