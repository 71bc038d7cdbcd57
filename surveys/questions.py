"""The questions of a survey: attributes with their values, privacy levels with their mechanisms, and the cohort."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, field, structs

from ldpstream.mechanisms.sets import MAX_SET_VALUES, code_of
from ldpstream.surveys.texts import require_apart

if TYPE_CHECKING:
    from ldpstream.mechanisms import Mechanism

MAX_VALUES = 100_000  # of an attribute; limits the bytes of a report, of a publication and of the API's answers
MAX_COHORTS = 64
MAX_PAIR_VALUES = 1024  # cells of a cross table, such as 32 × 32
ANY = "any"
SEPARATOR = ";"  # between the values of a set in a file's cell
PAIRED = "{} × {}"  # the text of a combination of two values
NAME = r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"
# No control characters: a terminal would execute them. None that reverses the text after it, and none that XML refuses.
LABEL = r"\A[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]*\Z"
Name = Annotated[str, Meta(pattern=NAME)]
LABEL_CHARACTERS = 200
Label = Annotated[str, Meta(min_length=1, max_length=LABEL_CHARACTERS, pattern=LABEL)]
Calibration = Literal["exact", "paper"]
Outside = Literal["nearest", "refuse"]
Measure = Literal["active_days", "days_without", "uses_per_day", "seconds_per_day", "age", "absence"]
DAY_S = 86_400
DEFAULT_RECIPE_DAYS, MAX_RECIPE_DAYS = 7, 28  # of a window and of a step: the days that an activity log keeps are enough
OTHER, REFUSE = "other", "refuse"
_OVERLAP = "The answers of many steps follow a habit, so they add up like answers about one value."
_TIMES = "Somebody who links the reports of a device learns it from their times; the noise protects it from all others."
_NOT_FOR = {  # the keys that an attribute with another key must not have
    "values": ("outside", "unit"),
    "size": ("unlisted", "choices"),
    "bins": ("unlisted", "choices"),
    "pair": ("unlisted", "outside", "unit", "ordered", "choices", "recipe"),
    "choices": ("ordered",),
    "recipe": ("unlisted", "outside", "choices"),
}
_INSTEAD = {  # the key to give in place of such a key
    ("values", "outside"): "unlisted",
    ("size", "unlisted"): "outside",
    ("bins", "unlisted"): "outside",
}
_NUMBER = re.compile(r" *[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)? *", re.ASCII | re.IGNORECASE)


def _require_ascending(what: str, edges: Sequence[float]) -> None:
    if not all(map(math.isfinite, edges)) or any(b <= a for a, b in pairwise(edges)):
        raise ValueError(f"{what} must be finite and in ascending order")


class Level(Struct, frozen=True, forbid_unknown_fields=True):
    """A privacy level that a participant may choose.

    Attributes:
        name: unique within the attribute.
        mechanism: a mechanism's name, or ``"auto"``; for numbers also ``"SW"``.
        eps_inf: for a mechanism with a memo, the largest loss of all reports while the value stays the same, in nats.
        eps_1: for a mechanism with a memo, the loss of one report, in nats.
        eps: for a one-time mechanism, the loss of each report, in nats; the losses add up. For THE, the ε of the noise.
        calibration: ``"exact"`` (default) or ``"paper"``, for mechanisms with a memo except L-SS and L-PS-GRR.
        memo_size: for L-SS, the number of values in a memo; by default the one with the least variance of many reports. A
            guesser who has all reports of a person is right less often with a larger memo.
        guess_at_most: the largest allowed chance of a right guess of a value that never changes, from all reports of this
            attribute by a device that keeps its storage; by default no limit. Other attributes can add hints. ``"auto"``
            and L-SS keep to it; another mechanism with a larger chance is refused. With `eps` it needs `lifetime_reports`.
        every_steps: for a one-time mechanism, w: a device makes one report in w consecutive steps (default: 1).
        lifetime_reports: for a one-time mechanism, the number of reports after which a device stops; by default no limit.
    """

    name: Name
    mechanism: str
    eps_inf: float | None = None
    eps_1: float | None = None
    eps: float | None = None
    calibration: Calibration | None = None
    memo_size: int | None = None
    guess_at_most: Annotated[float, Meta(gt=0, le=1)] | None = None
    every_steps: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    lifetime_reports: Annotated[int, Meta(ge=1, le=10**9)] | None = None


class Cohort(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A public fact about a device, such as its version, with a histogram of its own for each cohort.

    Every envelope states the cohort in clear. The cohort must never depend on a value of an attribute.

    Attributes:
        name: name of the fact, such as ``"version"``; no attribute has this name.
        values: the cohorts, 2 to 64.
        least: the service publishes a histogram of a cohort only if its reports come from at least this number of people.
    """

    name: Name
    values: Annotated[tuple[Label, ...], Meta(min_length=2, max_length=MAX_COHORTS)]
    least: Annotated[int, Meta(ge=1, le=10**9)]

    def __post_init__(self) -> None:
        require_apart("values", self.values)

    def index(self, value: str | None) -> int:
        """The index of a cohort.

        Raises:
            ValueError: if there is no such cohort.
        """
        if value not in self.values:
            raise ValueError(f"the cohort ({self.name}) must be one of {', '.join(self.values)}, got {value!r}")
        return self.values.index(value)


class Recipe(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number that a device computes from its activity log, so that every device computes the same.

    Days and steps are those of world time (UTC). The last step of use is the last step before the present one in which the
    application was used. The window has the `days` days that end with this step. A device without such a step has the number 0.

    Attributes:
        measure: ``"active_days"``: the window's days of use. ``"days_without"``: those of them without the event `of`.
            ``"uses_per_day"``, ``"seconds_per_day"``: number and duration of the events `of`, per day of use in the window.
            ``"age"``: number of steps since the first use, 0 for a new device. ``"absence"``: number of steps since the last
            step of use, 1 if it is the step before; infinite for a new device.
        of: name of an event that the application records; for ``"active_days"`` optional, to count only the days with it.
        days: length of the window, at least a step (default: 7).
        edges: for `values`: the first value is for numbers below the first edge, and so on. Without edges the attribute has
            `size` or `bins`.
    """

    measure: Measure
    of: Name | None = None
    days: Annotated[int, Meta(ge=1, le=MAX_RECIPE_DAYS)] | None = None
    edges: Annotated[tuple[float, ...], Meta(min_length=1, max_length=1000)] | None = None

    def __post_init__(self) -> None:
        for key in ("of", "days"):
            if getattr(self, key) is not None and not self.windowed:
                raise ValueError(f"recipe.{key} is not for {self.measure}")
        if self.of is None and self.windowed and self.measure != "active_days":
            raise ValueError(f"recipe.of is missing: {self.measure} counts an event")
        _require_ascending("recipe.edges", self.edges or ())

    @property
    def windowed(self) -> bool:
        """True if the number depends on a window of days."""
        return self.measure not in ("age", "absence")

    @property
    def window_days(self) -> int:
        return DEFAULT_RECIPE_DAYS if self.days is None else self.days

    def place(self, number: float) -> float:
        """Returns what a device reports for a number: with `edges` the index of a value, otherwise the number itself."""
        return number if self.edges is None else bisect_right(self.edges, number)


class Attribute(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """One question: its values, in the order of their indices 0 … k-1, and its levels.

    `ordered`, `unit` and `aliases` change only the estimates and their history, and not the survey's fingerprint.

    Attributes:
        name: unique within the survey.
        values: the answers; an attribute has one of `values`, `size`, `bins` and `pair`.
        size: k, for integers from 0 to k − 1.
        bins: edges of the bins of numbers, increasing.
        pair: names of two other attributes with at most 1024 combinations of their values; a device derives the answer.
        choices: for `values`, the largest number of values that a person may choose, or ``"any"``; a value is then the code of
            a set (`mechanisms.sets`).
        unlisted: for `values`, the value that a device reports for a text that is not listed, or ``"refuse"``; by default
            ``"other"`` if it is listed, else ``"refuse"``.
        outside: for `size` and `bins`, ``"nearest"`` (default) to report the nearest value for a number outside, or
            ``"refuse"`` to report nothing.
        recipe: how a device computes its value from the use of the application; by default the application gives the value.
        ordered: whether neighbouring values have similar shares; bins always are ordered.
        unit: for `size` and `bins`, the unit of the numbers, such as ``"km"``, which people read after each number.
        aliases: label in the survey that this survey replaces -> label of the same value here.
        levels: the privacy levels.
    """

    name: Name
    values: Annotated[tuple[Label, ...], Meta(min_length=2, max_length=MAX_VALUES)] | None = None
    size: Annotated[int, Meta(ge=2, le=MAX_VALUES)] | None = None
    bins: Annotated[tuple[float, ...], Meta(min_length=3, max_length=MAX_VALUES + 1)] | None = None
    pair: tuple[Name, Name] | None = None
    choices: Annotated[int, Meta(ge=1, le=MAX_SET_VALUES)] | Literal["any"] | None = None
    unlisted: Label | None = None
    outside: Outside | None = None
    recipe: Recipe | None = None
    ordered: bool = False
    unit: Label | None = None
    aliases: dict[Label, Label] = {}
    levels: Annotated[tuple[Level, ...], Meta(min_length=1, max_length=32)] = field(name="level")

    def __post_init__(self) -> None:
        given = [key for key in ("values", "size", "bins", "pair") if getattr(self, key) is not None]
        if len(given) != 1 and given != ["values", "pair"]:  # `of_pair` gives a pair its values
            raise ValueError(f"needs exactly one of values, size, bins and pair, got {' and '.join(given) or 'none'}")
        for kind, keys in _NOT_FOR.items():
            wrong = [key for key in keys if getattr(self, key)] if getattr(self, kind) is not None else []
            if wrong:
                instead = _INSTEAD.get((kind, wrong[0]))
                raise ValueError(f"{wrong[0]} is not for an attribute with {kind}" + (f"; give {instead}" if instead else ""))
        if self.values is not None:
            if self.choices is not None and len(self.values) > MAX_SET_VALUES:
                raise ValueError(f"choices needs at most {MAX_SET_VALUES} values, got {len(self.values)}")
            texts = "combinations of values" if self.pair else "values and numbers of choices" if self.choices else "values"
            require_apart(texts, self.labels)
        for text in self.values if self.values is not None and self.choices is not None else ():
            if SEPARATOR in text or text != text.strip():
                raise ValueError(
                    f"with choices, values must not contain {SEPARATOR!r}, or begin or end with a space, got {text!r}"
                )
        _require_ascending("bins", self.bins or ())
        if self.unlisted == REFUSE and REFUSE in (self.values or ()):
            raise ValueError(f"unlisted: {REFUSE!r} must not be one of the values, since it means that devices refuse a text")
        if self.unlisted not in (None, REFUSE, *(self.values or ())):
            raise ValueError(f"unlisted must be one of the values, or {REFUSE!r}, got {self.unlisted!r}")
        if self.recipe is not None:
            n_edges, n_values = len(self.recipe.edges or ()), len(self.values or ())
            if n_values != (n_edges + 1 if n_edges else 0):
                raise ValueError(
                    f"recipe.edges must be one less than values, or none without values, got {n_edges}, {n_values}"
                )
        for old, new in self.aliases.items():
            if self.values is None or new not in self.values:
                raise ValueError(f"aliases: {new!r} must be one of the values")
            if old in self.values:
                raise ValueError(f"aliases: {old!r} is one of the values, so it has no other name here")
        if self.pair is None and len(set(self.aliases.values())) < len(self.aliases):
            raise ValueError("aliases must rename different values: two values cannot become one")
        require_apart("names of levels", [level.name for level in self.levels])

    def of_pair(self, first: Attribute, second: Attribute) -> Attribute:
        """This pair with its values: all combinations of the two attributes' values.

        The combination of the values i and j has the index i k₂ + j, and the text "label × label".

        Raises:
            ValueError: if there are more than `MAX_PAIR_VALUES` combinations, two of them have the same text, or the pair has
                other values or other aliases.
        """
        if (k := first.k * second.k) > MAX_PAIR_VALUES:
            raise ValueError(
                f"pair: {first.k} values of {first.name} times {second.k} values of {second.name} must be at most "
                f"{MAX_PAIR_VALUES}, got {k}: use fewer values or wider bins"
            )
        first, second = (structs.replace(attribute, unit=None) for attribute in (first, second))
        values = tuple(PAIRED.format(one, other) for one in first.labels for other in second.labels)
        if self.values not in (None, values):
            raise ValueError("values must not be given for a pair: they follow from its two attributes")
        aliases = _paired_aliases(first, second)
        if self.aliases not in ({}, aliases):
            raise ValueError("aliases must not be given for a pair: they follow from those of its two attributes")
        return structs.replace(self, values=values, aliases=aliases)

    @property
    def catch_all(self) -> str | None:
        """The value that a device reports for a text that is not listed; None if it refuses the text, and for numbers."""
        if self.values is None or self.unlisted == REFUSE:
            return None
        return self.unlisted or (OTHER if OTHER in self.values else None)

    @property
    def nearest(self) -> bool:
        """True if a device reports the nearest value for a number outside the domain."""
        return self.values is None and self.outside != REFUSE

    @property
    def rest(self) -> str:
        """A text about what a device does with a value outside the domain; for a pair, about the values that a report needs;
        for a recipe, about what the answers of several steps tell."""
        if self.recipe is not None:
            repeats = _OVERLAP if self.recipe.windowed else _TIMES
            return f"A device computes it from the use of the application ({self.recipe.measure}). {repeats}"
        if self.pair is not None:
            both = f"a value of {self.pair[0]} and of {self.pair[1]}"
            return f"A device makes this report only if it has {both}. Its silence can reveal that one is missing."
        if self.nearest:
            return f"For a number outside {self.domain.split(' ', 1)[1]}, a device reports the nearest value."
        if self.catch_all is not None:
            return f"For a text that is not listed, a device reports {self.catch_all}."
        what = "text that is not listed" if self.values is not None else f"number outside {self.domain.split(' ', 1)[1]}"
        return f"A device makes no report of a {what}. Its silence can reveal such a value."

    @property
    def most(self) -> int | None:
        """The largest number of values that a person may choose; None without `choices`."""
        return len(self.values or ()) if isinstance(self.choices, str) else self.choices

    def build(self, level: Level, share: int, window_steps: int) -> Mechanism:
        """The mechanism of a level, with the budget divided by `share`. ``"auto"`` is chosen for windows of `window_steps`.

        Raises:
            ValueError: if there is no such mechanism, or the level's keys do not fit it.
        """
        from ldpstream.mechanisms import mechanism  # loads all mechanisms

        budgets = (None if budget is None else budget / share for budget in (level.eps, level.eps_inf, level.eps_1))
        eps, eps_inf, eps_1 = budgets
        built = mechanism(
            level.mechanism, self.k - (self.most or 0), eps=eps, eps_inf=eps_inf, eps_1=eps_1, calibration=level.calibration,
            memo_size=level.memo_size, choices=self.most, steps=window_steps, reports=level.lifetime_reports,
            guess_at_most=level.guess_at_most,
        )  # fmt: skip
        if level.every_steps is not None or level.lifetime_reports is not None:
            built = built.spaced(level.every_steps or 1, level.lifetime_reports)
        return built

    @cached_property
    def k(self) -> int:
        if self.most is not None:
            return len(self.values or ()) + self.most
        if self.values is not None:
            return len(self.values)
        return self.size if self.size is not None else len(self.bins or ()) - 1

    @property
    def in_order(self) -> bool:
        """True for bins, and if `ordered` is true."""
        return self.ordered or self.bins is not None

    @cached_property
    def edges(self) -> tuple[float, ...] | None:
        """The k + 1 edges of the values' numbers: the bins' edges, or i - ½ and i + ½ for an ordered integer i; else None."""
        if self.bins is None and self.size is not None and self.ordered:
            return tuple(i - 0.5 for i in range(self.size + 1))
        return self.bins

    def label(self, index: int) -> str:
        """The text of the value with this index: the value itself, the number, or the bin ``a to b``, each with the `unit`.

        A bin does not contain its upper edge, except the last bin.

        With `choices`, the last labels are ``at most m-1`` … ``at most 1``, ``none of these``.
        """
        if self.most is not None and index >= len(self.values or ()):
            few = self.k - 1 - index
            return f"at most {few}" if few else "none of these"
        if self.values is not None:
            return self.values[index]
        text = str(index) if self.bins is None else f"{_short(self.bins[index])} to {_short(self.bins[index + 1])}"
        return text if self.unit is None else f"{text} {self.unit}"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.label(i) for i in range(self.k))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.values or ())}

    def index(self, raw: str) -> int:
        """The index of the value that a device reports for a text, or for a number written as a text.

        Raises:
            ValueError: if a device refuses the text. The message does not show it, since it is private.
        """
        return self.find(raw)[0]

    def find(self, raw: str) -> tuple[int, bool]:
        """Like `index`; also returns true if the text is in the domain, and false if the device reports another value for
        it."""
        found: tuple[int, bool] | None = None
        if self.values is not None:
            listed = raw if raw in self._index or self.catch_all is None else self.catch_all
            found = (self._index[listed], listed == raw) if listed in self._index else None
        elif _NUMBER.fullmatch(raw):
            found = self.of_number(float(raw))
        if found is None:
            raise ValueError(f"not a value of the attribute {self.name} ({self.domain})")
        return found

    def set_code(self, given: Iterable[tuple[int, bool]]) -> int:
        """The code of a set.

        Args:
            given: for each value of the person its index, and whether it is listed (`find`).

        Raises:
            ValueError: if a listed value is given twice, or the set has more than `most` values. The message shows no value.
        """
        values = list(given)
        listed = [index for index, inside in values if inside]
        if len(set(listed)) < len(listed):
            raise ValueError(f"a value of the attribute {self.name} is given twice")
        chosen = {index for index, _ in values}
        if self.most is None or len(chosen) > self.most:
            raise ValueError(f"more than {self.most} values of the attribute {self.name}")
        return code_of(chosen)

    def of_number(self, number: float) -> tuple[int, bool] | None:
        """The index that a device reports for a number, and true if the number is in the domain.

        Returns None if a device refuses the number: NaN, a fraction for `size`, or a number outside if `outside` is
        ``"refuse"``.
        """
        low, high = (0, self.k - 1) if self.bins is None else (self.bins[0], self.bins[-1])
        inside = min(max(number, low), high)
        fraction = self.bins is None and abs(number) != math.inf and number % 1
        if number != number or fraction or not (inside == number or self.nearest):
            return None
        index = inside if self.bins is None else min(bisect_right(self.bins, inside) - 1, self.k - 1)
        return int(index), inside == number

    @property
    def domain(self) -> str:
        if self.values is not None:
            several = "" if self.most is None else ", any of them" if self.choices == ANY else f", at most {self.most} of them"
            return f"{len(self.values)} values, {self.values[0]} … {self.values[-1]}{several}"
        if self.bins is None:
            return f"integers 0 … {self.k - 1}"
        return f"numbers {_short(self.bins[0])} … {_short(self.bins[-1])}"


def _paired_aliases(first: Attribute, second: Attribute) -> dict[str, str]:
    one, other = ([*((label, label) for label in a.labels), *a.aliases.items()] for a in (first, second))
    names = {PAIRED.format(i, j): PAIRED.format(now_i, now_j) for i, now_i in one for j, now_j in other}
    return {was: now for was, now in names.items() if was != now}


def _short(number: float) -> str:
    return repr(number).removesuffix(".0")
