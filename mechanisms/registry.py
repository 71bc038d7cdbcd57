"""All mechanisms by their names in the literature, and the automatic choice of a mechanism."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from inspect import Parameter, signature
from typing import Any, TypeVar

from ldpstream.mechanisms.arguments import MAX_COUNT, integer, one_of, real
from ldpstream.mechanisms.base import Mechanism
from ldpstream.mechanisms.claims.guessing import SAME
from ldpstream.mechanisms.families.grr import GRR, LongitudinalGRR
from ldpstream.mechanisms.families.local_hashing import LocalHashing, LongitudinalHashing
from ldpstream.mechanisms.families.memoized_subset import LongitudinalSubset, best_sizes, least_memo_size
from ldpstream.mechanisms.families.padded_sampling import LongitudinalPaddedSampling, PaddedSampling
from ldpstream.mechanisms.families.square_wave import SquareWave
from ldpstream.mechanisms.families.subset import SubsetSelection
from ldpstream.mechanisms.families.unary import LongitudinalUnary, UnaryEncoding
from ldpstream.mechanisms.kinds import Longitudinal, OneTime
from ldpstream.mechanisms.wording import plural

M = TypeVar("M", bound=Mechanism)

# All mechanisms. A class declares its `names`, its `answers`, and by the parameters of its constructor what `mechanism` takes.
FAMILIES: tuple[type[Mechanism], ...] = (
    GRR, SubsetSelection, UnaryEncoding, LocalHashing, LongitudinalGRR, LongitudinalUnary, LongitudinalHashing,
    LongitudinalSubset, SquareWave, PaddedSampling, LongitudinalPaddedSampling,
)  # fmt: skip
ONE_TIME: dict[str, Callable[..., OneTime]] = {}  # pure mechanisms, for values with or without an order
LONGITUDINAL: dict[str, Callable[..., Longitudinal]] = {}  # their memoized mechanisms
# Mechanisms for numbers in bins. They guarantee an LDP ε, but are not pure: estimators need their channels.
NUMERIC: dict[str, Callable[..., Mechanism]] = {}
SETS: dict[str, Callable[..., Mechanism]] = {}  # mechanisms of sets, for questions with several answers
ATTRIBUTES = ("name", "k", "eps_1", "eps_inf", "p", "q", "report_dtype", "table_shape", "signature")
MEMO_ATTRIBUTES = ("p1", "q1", "p2", "q2", "n_keys", "max_memos")
AUTO_CANDIDATES = ("L-GRR", "L-OLH", "L-SS", "L-OSUE")  # in the order of preference; L-OSUE reveals changes of a value most
ONCE_CANDIDATES = ("GRR", "OLH", "SS")  # in the order of preference
AUTO_OPTIONS = ("steps", "guess_at_most")  # of `choose`
LIKE_VARIANCE, LIKE_WEIGHT = 1.03, 1.25  # variances and weights within these ratios count as equal: see `lightest`


def register(family: type[Mechanism]) -> None:
    """Makes the mechanisms of a class known by its `names`."""
    values: dict[str, Callable[..., Any]] = LONGITUDINAL if family.memoized else ONE_TIME
    known = {"values": values, "numbers": NUMERIC, "sets": SETS}[family.answers]
    make: Callable[..., Any] = family
    named = "name" in signature(family).parameters
    known.update({name: partial(make, name) if named else make for name in family.names})


for _family in FAMILIES:
    register(_family)
NAMES = (*ONE_TIME, *LONGITUDINAL)


def registered() -> tuple[str, ...]:
    return (*ONE_TIME, *LONGITUDINAL, *NUMERIC, *SETS)


def _maker(name: str) -> Callable[..., Mechanism]:
    return (ONE_TIME | LONGITUDINAL | NUMERIC | SETS)[name]


def one_time(name: str) -> bool:
    """True for the name of a one-time mechanism that `mechanism` builds."""
    return name in registered() and "eps" in signature(_maker(name)).parameters


def answering(*, once: bool, sets: bool = False, numbers: bool = False) -> tuple[str, ...]:
    """The names of the one-time or the memoized mechanisms for a kind of question.

    Args:
        once: true for one-time mechanisms.
        sets: true for a question with several answers.
        numbers: true for numbers in bins.

    >>> answering(once=False, sets=True), "SW" in answering(once=True, numbers=True), "SW" in answering(once=True)
    (('L-PS-GRR',), True, False)
    """
    names = SETS if sets else {**ONE_TIME, **LONGITUDINAL, **(NUMERIC if numbers else {})}
    return tuple(name for name in names if one_time(name) == once)


def mechanism(
    name: str,
    k: int,
    *,
    eps: float | None = None,
    eps_inf: float | None = None,
    eps_1: float | None = None,
    **options: Any,
) -> Mechanism:
    """Returns the mechanism with this name.

    Args:
        name: one of `registered`, or ``"auto"``: see `choose`, and with eps `choose_once`; with `choices`, ``"auto"`` is
            L-PS-GRR, and with eps PS-GRR.
        k: domain size, at least 2. For a name in `NUMERIC`, the values are bins in the order of their numbers.
        eps: loss of the report of a one-time mechanism (of THE, the ε of the noise), in [1e-9, 700] nats; for PS-GRR at most
            about 700 - ln(choices).
        eps_inf, eps_1: losses of the memo and of a single report of a longitudinal mechanism, in nats,
            1e-9 <= eps_1 < eps_inf <= 700.
        options: further parameters of the mechanism's class: `calibration` of longitudinal mechanisms (``"exact"``, the
            default, or ``"paper"``), `g` of local hashing, `omega` of SS and L-SS, `memo_size` of L-SS, `width` of SW, and
            `choices` of a name in `SETS`, with k at most 30; `steps` and `guess_at_most` of ``"auto"``. None stands for the
            default.

    Raises:
        ValueError: if an argument is invalid or missing, or if the mechanism does not take it; the message says which.
        TypeError: if the mechanism lacks a method or an attribute; the message names what is missing.

    >>> mechanism("L-GRR", k=4, eps_inf=2.0, eps_1=1.0)
    L-GRR(k=4, eps_inf=2.0, eps_1=1.0, exact)
    """
    one_of("mechanism", name, (*registered(), "auto"))
    given = {"eps": eps, "eps_inf": eps_inf, "eps_1": eps_1, **options}
    given = {key: value for key, value in given.items() if value is not None}
    if "choices" in given:
        for_sets = PaddedSampling if "eps" in given else LongitudinalPaddedSampling
        given = {key: value for key, value in given.items() if key not in AUTO_OPTIONS} if name == "auto" else given
        name = for_sets.name if name == "auto" else name
        one_of("mechanism for several answers (choices)", name, tuple(SETS))
    auto = _auto_once if "eps" in given and "eps_inf" not in given else _auto
    make = auto if name == "auto" else _maker(name)
    takes = {key: one for key, one in signature(make).parameters.items() if key != "k"}
    needed = [key for key, one in takes.items() if one.default is Parameter.empty]
    for argument in given:
        if argument not in takes:
            raise ValueError(f"{name} does not take {argument}; it takes {', '.join(takes)}")
    for argument in needed:
        if argument not in given:
            raise ValueError(f"{name} needs {argument}")
    made = make(k=k, **given)
    missing = [key for key in ATTRIBUTES + (MEMO_ATTRIBUTES if made.memoized else ()) if not hasattr(made, key)]
    if missing:
        raise TypeError(f"the mechanism {name} lacks {', '.join(missing)}")
    made.claims_by(made)  # raises TypeError if a method is missing
    return made


def _auto(
    k: int, eps_inf: float, eps_1: float, calibration: str = "exact", steps: int = 1, guess_at_most: float | None = None
) -> Mechanism:
    return choose(k, eps_inf=eps_inf, eps_1=eps_1, calibration=calibration, steps=steps, guess_at_most=guess_at_most)[0]


def _auto_once(k: int, eps: float, steps: int = 1, guess_at_most: float | None = None) -> Mechanism:
    return choose_once(k, eps=eps)[0]


def lightest(options: Sequence[tuple[M, float]]) -> M:
    """Returns the mechanism whose estimates one false report changes least, among those with a variance near the smallest.

    A variance is near the smallest one if it is at most 3 % larger. Weights (`Mechanism.outweighs`) up to 25 %
    above the smallest count as equal; then the earlier option wins.

    Args:
        options: mechanisms with their variances, in the order of preference.
    """
    near = [m for m, variance in options if variance <= LIKE_VARIANCE * min(v for _, v in options)]
    return next(m for m in near if m.outweighs() <= LIKE_WEIGHT * min(o.outweighs() for o in near))


def choose(
    k: int,
    *,
    eps_inf: float,
    eps_1: float,
    steps: int = 1,
    guess_at_most: float | None = None,
    calibration: str = "exact",
) -> tuple[Mechanism, str]:
    """Returns one of L-GRR, L-OLH, L-OSUE and L-SS, and the reason for the choice as text.

    The rule is ALLOMFREE's (Arcolezi et al., Algorithm 1: the smallest exact variance at f = 0), extended by L-OLH, L-SS and
    `lightest`. It compares the mean of `steps` reports of an unchanged value. If values change, L-OLH loses less than the
    others (`Mechanism.eps_sequence`): then name it.

    Args:
        steps: number of steps of the window that the service publishes.
        guess_at_most: the largest chance of a right guess from all reports of an unchanged value; None for no limit. With a
            limit, the memos of L-SS are as large as they must be.
        calibration: with ``"paper"``, L-SS is no candidate.

    Raises:
        ValueError: if an argument is invalid, or if no candidate guesses at most so well; the message has the least chance.

    >>> [choose(k, eps_inf=2.0, eps_1=1.0, steps=24)[0].name for k in (4, 7, 10, 20, 1000)]
    ['L-GRR', 'L-SS', 'L-SS', 'L-SS', 'L-SS']
    """
    integer("steps", steps, 1, MAX_COUNT)
    if guess_at_most is not None:
        real("guess_at_most", guess_at_most, 1e-9, 1.0)
    losses: dict[str, Any] = {"eps_inf": eps_inf, "eps_1": eps_1, "calibration": calibration}
    built: list[Mechanism] = [LONGITUDINAL[name](k=k, **losses) for name in AUTO_CANDIDATES if name != "L-SS"]
    first = built[0]
    if calibration == "exact" and first.k <= LongitudinalSubset.most_values:
        needed = 1 if guess_at_most is None else least_memo_size(first.k, first.eps_inf, guess_at_most)
        with suppress(ValueError):  # the odds or the integers of a device would be too large
            sizes = best_sizes(first.k, first.eps_inf, first.eps_1, least=needed, steps=steps)
            built.append(LongitudinalSubset(first.k, eps_inf, eps_1, *sizes))
    built.sort(key=lambda m: AUTO_CANDIDATES.index(m.name))
    allowed = [m for m in built if guess_at_most is None or m.guess(math.inf) <= guess_at_most * (1 + SAME)]
    if not allowed:
        least = min(m.guess(math.inf) for m in built)
        raise ValueError(
            f"guess_at_most must be at least {math.ceil(1e4 * least) / 1e4:.4f} for auto with k={first.k} and "
            f"eps_inf={eps_inf:g}, got {guess_at_most}"
        )
    return _lightest_reason(allowed, steps)


def choose_once(k: int, *, eps: float) -> tuple[Mechanism, str]:
    """Returns one of GRR, OLH and SS, and the reason for the choice as text, by the same rule for one report.

    >>> [choose_once(k, eps=1.0)[0].name for k in (4, 10, 50, 1000)]
    ['GRR', 'SS', 'SS', 'OLH']
    """
    return _lightest_reason([ONE_TIME[name](k=k, eps=eps) for name in ONCE_CANDIDATES], 1)


def _lightest_reason(built: Sequence[Mechanism], steps: int) -> tuple[Mechanism, str]:
    noise = {m: m.variance(steps=steps) for m in built}
    chosen = lightest(list(noise.items()))
    others = ", ".join(f"{m.name} {noise[m] / noise[chosen]:.3g}" for m in built if m is not chosen)
    others = f" (others relative to it: {others})" if others else ""
    span = f"of a window of {steps} steps" if steps > 1 else "of a step"
    size = plural(chosen.report_dtype.itemsize, "byte")
    return chosen, f"{chosen.name}: smallest variance {span} to within 3 %{others}; {size} a report"
