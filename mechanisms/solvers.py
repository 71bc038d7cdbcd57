"""Choosing a privacy parameter from what it should cost."""

from collections.abc import Callable

from mechanisms.arguments import MAX_EPS, epsilon, integer, one_of
from mechanisms.base import Mechanism
from mechanisms.registry import LONGITUDINAL, mechanism

_SMALLEST = 1e-9
_HALVINGS = 80
_GRID = 90_000  # numbers of four digits from 1e-6 to 9999


def largest_eps_1(name: str, k: int, *, eps_inf: float, horizon: int, budget: float) -> Mechanism:
    """The longitudinal mechanism with the largest eps_1 whose loss over a horizon stays within a budget.

    The loss eps_t(horizon) of an unchanged value rises with eps_1, so halving an interval finds it, to one part in 10⁹. For
    L-OLH the number of symbols is chosen anew for every eps_1.

    Args:
        name: a longitudinal mechanism.
        k: domain size.
        eps_inf: loss of the memo, in nats; a budget of eps_inf or more is met by every eps_1.
        horizon: number of reports t, at least 1.
        budget: the largest eps_t(horizon) allowed, in (0, 700] nats.

    Raises:
        ValueError: if an argument is not allowed, or even eps_1 = 10⁻⁹ costs more than the budget.

    >>> m = largest_eps_1("L-GRR", 10, eps_inf=4.0, horizon=30, budget=2.0)
    >>> round(m.eps_1, 4), round(m.eps_t(30), 6)
    (0.0639, 2.0)
    """
    one_of("name", name, tuple(LONGITUDINAL))
    horizon, budget, eps_inf = integer("horizon", horizon, 1, 2**50), epsilon("budget", budget), epsilon("eps_inf", eps_inf)

    def within(eps_1: float) -> Mechanism | None:
        try:
            m = mechanism(name, k, eps_inf=eps_inf, eps_1=eps_1)
        except ValueError:
            if eps_1 <= _SMALLEST:
                raise
            return None  # beyond what the second round can reach
        return m if m.eps_t(horizon) <= budget else None

    low, high = _SMALLEST, min(eps_inf, MAX_EPS)
    best = within(low)
    if best is None:
        raise ValueError(f"budget {budget:g} is too small for {horizon} reports of {name} with eps_inf={eps_inf:g}")
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


def largest_within(
    build: Callable[[float], Mechanism], loss: Callable[[Mechanism], float], budget: float
) -> tuple[float, Mechanism] | None:
    """The largest ε of four digits, and its mechanism, whose loss stays within a budget.

    Found by halving, so it is the largest one where the loss rises with ε. Within the budget it is in any case.

    Args:
        build: the mechanism of an ε in nats; a ValueError says that the ε is too large.
        loss: of a mechanism, in nats.
        budget: the largest loss allowed, in nats.

    Returns:
        None if even ε = 10⁻⁶ costs more.
    """

    def within(index: int) -> tuple[float, Mechanism] | None:
        eps = float(f"{1000 + index % 9000}e{index // 9000 - 9}")
        try:
            m = build(eps)
        except ValueError:
            return None
        return (eps, m) if loss(m) <= budget else None

    low, high = 0, _GRID
    best = within(low)
    while best is not None and high - low > 1:
        middle = (low + high) // 2
        found = within(middle)
        low, high, best = (low, middle, best) if found is None else (middle, high, found)
    return best
