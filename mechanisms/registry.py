"""All mechanisms by their names in the literature, and the automatic choice of a mechanism."""

import math
from bisect import bisect_left
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
from ldpstream.mechanisms.families.memoized_subset import LongitudinalSubset
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
AUTO_CANDIDATES = ("L-GRR", "L-OLH", "L-SS", "L-OSUE")  # in the order of preference; L-OSUE reveals changes of a value most
ONCE_CANDIDATES = ("GRR", "OLH", "SS")  # in the order of preference
HINTS = ("steps", "reports", "guess_at_most")  # only ``"auto"`` and L-SS choose by these arguments
LIKE_VARIANCE, LIKE_WEIGHT = 1.009, 1.25  # variances and weights within these ratios count as equal: see `lightest`
MOST_BYTES = 1024  # ``"auto"`` takes a longer report only if there is no shorter one


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


def portable() -> tuple[str, ...]:
    """The names of the mechanisms that devices in every language have."""
    return tuple(name for family in FAMILIES if family.portable for name in family.names)


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
        name: one of `registered`, or ``"auto"``: see `choose`; with `choices`, ``"auto"`` is L-PS-GRR, and with eps PS-GRR.
        k: domain size, at least 2. For a name in `NUMERIC`, the values are bins in the order of their numbers.
        eps: loss of the report of a one-time mechanism (of THE, the ε of the noise), in [1e-9, 700] nats; for PS-GRR at most
            about 700 - ln(choices).
        eps_inf, eps_1: losses of the memo and of a single report of a longitudinal mechanism, in nats,
            1e-9 <= eps_1 < eps_inf <= 700.
        options: further parameters of the mechanism's class: `calibration` of longitudinal mechanisms (``"exact"``, the
            default, or ``"paper"``), `g` of local hashing, `omega` of SS and L-SS, `memo_size` of L-SS, `width` of SW, and
            `choices` of a name in `SETS`, with k at most 30. `steps`, `reports` and `guess_at_most` are those of `choose`; a
            named mechanism with a larger chance of a guess is refused. None stands for the default.

    Raises:
        ValueError: if an argument is invalid or missing, or if the mechanism does not take it; the message says which.
        TypeError: if the mechanism lacks a method; the message names it.

    >>> mechanism("L-GRR", k=4, eps_inf=2.0, eps_1=1.0)
    L-GRR(k=4, eps_inf=2.0, eps_1=1.0, exact)
    """
    one_of("mechanism", name, (*registered(), "auto"))
    given = {"eps": eps, "eps_inf": eps_inf, "eps_1": eps_1, **options}
    given = {key: value for key, value in given.items() if value is not None}
    if "choices" in given:
        for_sets = PaddedSampling if "eps" in given else LongitudinalPaddedSampling
        name = for_sets.name if name == "auto" else name
        one_of("mechanism for several answers (choices)", name, tuple(SETS))
    make: Callable[..., Any] = choose if name == "auto" else _maker(name)
    takes = {key: one for key, one in signature(make).parameters.items() if key != "k"}
    reports, limit = given.get("reports", math.inf), given.get("guess_at_most")
    given = {key: value for key, value in given.items() if key in takes or key not in HINTS}
    for argument in given:
        if argument not in takes:
            raise ValueError(f"{name} does not take {argument}; it takes {', '.join(takes)}")
    for argument, one in takes.items():
        if one.default is Parameter.empty and argument not in given:
            raise ValueError(f"{name} needs {argument}")
    made: Mechanism = make(k=k, **given)[0] if name == "auto" else make(k=k, **given)
    made.claims_by(made)  # raises TypeError if a method is missing
    if limit is not None and made.guess(reports) > real("guess_at_most", limit, 1e-9, 1.0) * (1 + SAME):
        raise ValueError(f"guess_at_most must be at least {_up(made.guess(reports))} for {made.signature}, got {limit}")
    return made


def _up(chance: float) -> str:
    return f"{math.ceil(1e4 * chance) / 1e4:.4f}"


def lightest(options: Sequence[tuple[M, float]]) -> M:
    """Returns the mechanism whose estimates one false report changes least, among those with a variance near the smallest.

    A variance is near the smallest one if it is at most 0.9 % larger. Weights (`Mechanism.outweighs`) up to 25 %
    above the smallest count as equal; then the earlier option wins.

    Args:
        options: mechanisms with their variances, in the order of preference.
    """
    near = [m for m, variance in options if variance <= LIKE_VARIANCE * min(v for _, v in options)]
    return next(m for m in near if m.outweighs() <= LIKE_WEIGHT * min(o.outweighs() for o in near))


def choose(
    k: int,
    *,
    eps: float | None = None,
    eps_inf: float | None = None,
    eps_1: float | None = None,
    steps: int = 1,
    reports: float = math.inf,
    guess_at_most: float | None = None,
    calibration: str | None = None,
) -> tuple[Mechanism, str]:
    """Returns one of L-GRR, L-OLH, L-SS and L-OSUE, or with eps one of GRR, OLH and SS, and the reason for the choice as text.

    The rule is ALLOMFREE's (Arcolezi et al., Algorithm 1: the smallest exact variance at f = 0), extended by candidates and by
    `lightest`. It compares the mean of `steps` reports of an unchanged value, with eps a single report. If values change, L-OLH
    loses less than the others (`Mechanism.eps_sequence`): then name it. Reports of more than 1024 bytes are chosen only if no
    candidate has shorter ones.

    Args:
        steps: number of steps of the window that the service publishes.
        reports: largest number of reports of a device, for `guess_at_most`.
        guess_at_most: the largest chance of a right guess from all reports of an unchanged value; None for no limit. With a
            limit, the sets of SS and L-SS are as large as they must be. With eps, only a limited number of `reports` allows a
            chance below 1.
        calibration: with ``"paper"``, L-SS is no candidate.

    Raises:
        ValueError: if an argument is invalid, or if no candidate guesses at most so well; the message has the least chance.

    >>> [choose(k, eps_inf=2.0, eps_1=1.0, steps=24)[0].name for k in (4, 7, 10, 20, 1000)]
    ['L-GRR', 'L-SS', 'L-SS', 'L-SS', 'L-SS']
    >>> [choose(k, eps=1.0)[0].name for k in (4, 10, 50, 5000)]
    ['GRR', 'SS', 'SS', 'OLH']
    """
    integer("steps", steps, 1, MAX_COUNT)
    limit = None if guess_at_most is None else real("guess_at_most", guess_at_most, 1e-9, 1.0) * (1 + SAME)
    if (eps is None) != (eps_inf is not None) or (eps is None) != (eps_1 is not None) or (eps is not None and calibration):
        raise ValueError("auto needs either eps alone, or eps_inf and eps_1; calibration needs eps_inf")
    if eps is not None:
        built, span = _once(k, eps, reports, limit), 1
    else:
        built, span = _memoized(k, {"eps_inf": eps_inf, "eps_1": eps_1}, calibration or "exact", steps, limit), steps
    allowed = [m for m in built if limit is None or m.guess(reports) <= limit]
    if not allowed:
        least, loss = min(m.guess(reports) for m in built), f"eps_inf={eps_inf:g}" if eps is None else f"eps={eps:g}"
        raise ValueError(
            f"guess_at_most must be at least {_up(least)} for auto with k={built[0].k} and {loss}, got {guess_at_most}"
        )
    short = [m for m in allowed if m.row_bytes <= MOST_BYTES]
    noise = {m: m.variance(steps=span) for m in short or allowed}
    chosen = lightest(list(noise.items()))
    others = ", ".join(f"{m.name} {noise[m] / noise[chosen]:.3g}" for m in noise if m is not chosen)
    reason = f"{chosen.name}: smallest variance {f'of a window of {span} steps' if span > 1 else 'of a step'} to within 1 %"
    reason += f" (others relative to it: {others})" if others else ""
    return chosen, f"{reason}; {plural(chosen.row_bytes, 'byte')} a report"


def _memoized(k: int, losses: dict[str, Any], calibration: str, steps: int, limit: float | None) -> list[Mechanism]:
    """The candidates in the order of preference. The memos of L-SS are large enough for this chance of a guess."""
    built: list[Mechanism] = []
    for name in AUTO_CANDIDATES:
        if name != "L-SS":
            built.append(LONGITUDINAL[name](k=k, calibration=calibration, **losses))
        elif calibration == "exact" and k <= LongitudinalSubset.most_values:
            with suppress(ValueError):  # the odds or the integers of a device would be too large
                built.append(LongitudinalSubset(k, **losses, steps=steps, guess_at_most=limit))
    return built


def _once(k: int, eps: float, reports: float, limit: float | None) -> list[Mechanism]:
    """The same for one-time mechanisms, with a larger set for SS if it is needed."""
    built: list[Mechanism] = [ONE_TIME[name](k=k, eps=eps) for name in ONCE_CANDIDATES]
    subset = built[-1]
    if limit is not None and limit < subset.guess(reports) < 1:
        sizes = range(subset.parameters().omega or 1, subset.k // 2)
        enough = bisect_left(sizes, -limit, key=lambda size: -SubsetSelection(k, eps, size + 1).guess(reports))
        built[-1] = SubsetSelection(k, eps, sizes[enough] + 1 if enough < len(sizes) else max(1, subset.k // 2))
    return built
