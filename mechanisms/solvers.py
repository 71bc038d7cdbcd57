"""Finds the largest eps_1 for which the loss stays within a budget."""

from ldpstream.mechanisms.arguments import MIN_EPS, epsilon, integer, one_of
from ldpstream.mechanisms.base import Mechanism
from ldpstream.mechanisms.registry import answering, mechanism
from ldpstream.mechanisms.wording import plural

_HALVINGS = 80


def largest_eps_1(name: str, k: int, *, eps_inf: float, horizon: int, budget: float, choices: int | None = None) -> Mechanism:
    """The longitudinal mechanism with the largest eps_1 for which the loss over a horizon stays within a budget.

    Args:
        eps_inf: loss of the memo, in nats.
        horizon: number of reports t, in [1, 2^50].
        budget: the largest eps_t(horizon) allowed, in [1e-9, 700] nats.
        choices: the largest number of values of a person, for a mechanism of sets.

    Raises:
        ValueError: if an argument is invalid, or if even eps_1 = 10⁻⁹ exceeds the budget.

    >>> m = largest_eps_1("L-GRR", 10, eps_inf=4.0, horizon=30, budget=2.0)
    >>> round(m.eps_1, 4), round(m.eps_t(30), 6)
    (0.0639, 2.0)
    """
    one_of("name", name, answering(once=False, sets=choices is not None))
    horizon, budget, eps_inf = integer("horizon", horizon, 1, 2**50), epsilon("budget", budget), epsilon("eps_inf", eps_inf)

    def within(eps_1: float) -> Mechanism | None:
        try:
            m = mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1, choices=choices)
        except ValueError:
            if eps_1 <= MIN_EPS:
                raise
            return None  # the second round cannot reach this eps_1
        return m if m.eps_t(horizon) <= budget else None

    low, high = MIN_EPS, eps_inf
    best = within(low)
    if best is None:
        raise ValueError(f"budget {budget:g} is too small for {plural(horizon, 'report')} of {name} with eps_inf={eps_inf:g}")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        found = within(middle)
        if found is None:
            high = middle
        else:
            low, best = middle, found
    return best
