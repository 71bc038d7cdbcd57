"""How many people use an application: people a step, a day and a month, and the retention triangle.

All numbers come from the published histograms of the attributes with a recipe, and from their numbers of reports. A device
reports such an attribute exactly at the steps at which its application is used. So the reports of a step count the people, but
for liars.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import hypot, sqrt
from typing import NamedTuple

import msgspec
from scipy.special import ndtri

from ldpstream.estimators.estimate import NORMAL
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.answers.earlier import kept_steps, of_steps
from ldpstream.publishing.answers.schema import OfSteps
from ldpstream.publishing.estimates.catalogue import INVERSION
from ldpstream.publishing.estimates.publication import Publication, publication_key
from ldpstream.publishing.results import KeptResults
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.questions import DAY_S

BOTH_ENDS = float(ndtri(1 - 0.05 / 4))  # half the width of two intervals that hold together in 95 of 100 cases


class People(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of people, or shares of them, with the ends of their 95 % intervals; None without an estimate."""

    values: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The people whose first use was in step `step`.

    Attributes:
        people, low, high: their number, with its 95 % interval.
        shares: the share of them who used the application again after 1, 2, … steps; None also if their number may be 0. The
            intervals hold in at least 95 of 100 cases.
    """

    step: int
    people: float | None
    low: float | None
    high: float | None
    shares: People


class Usage(OfSteps, frozen=True, kw_only=True):
    """The people who use an application. It needs attributes with a recipe.

    Attributes:
        survey: the survey's name.
        reports, complete: of the step alone; under smp, reports of all attributes with a recipe.
        at_least: true if a level has `lifetime_reports`: devices that made all their reports are missing.
        people: people in each step. If every device reports at every step, the number is exact but for liars. Under smp, the
            attributes with a recipe are added up, and with `every_steps` the devices of the other phases are estimated.
        a_day: mean number of people a day: people × mean days of use, from an attribute with the measure "active_days" whose
            window is a step, and with a value for each number of days; empty without it. The mean is about the last step of
            use of the people who used the application before. The others, and people in their last step of use, are taken to
            use it on as many days.
        in_steps, in_many: people in the last `in_many` steps, from an attribute with the measure "absence"; empty without it.
        retention: from an attribute with the measure "age", for ages that have a value of their own; empty without them.
    """

    survey: str
    at_least: bool
    people: People
    a_day: People | None
    in_many: int | None
    in_steps: People | None
    retention: list[Retention]


Row = tuple[float | None, float | None, float | None]  # a number and the ends of its interval
NO_ROW: Row = (None, None, None)


class Number(NamedTuple):
    """An estimate with its standard error."""

    value: float
    error: float

    def times(self, share: float, error: float) -> "Number":
        return Number(self.value * float(share), hypot(self.error * share, self.value * error))

    def ends(self, width: float = NORMAL) -> tuple[float, float]:
        return max(0.0, self.value - width * self.error), self.value + width * self.error

    def row(self) -> tuple[float, float, float]:
        return max(0.0, self.value), *self.ends()


Found = Mapping[tuple[str, int], Publication]  # by attribute and step, for the span "step"


def read_usage(survey: Survey, source: KeptResults, step: int, last: int) -> Usage:
    """Returns the answer for the last `last` kept steps up to `step`."""
    steps = kept_steps(survey, source.progress(), step, last)
    places = [(attribute.name, step) for step in steps for attribute in recipes_of(survey)]
    published = source.get([publication_key(name, "step", step) for name, step in places])
    return usage_of(survey, {place: p for place, p in zip(places, published, strict=True) if p is not None}, steps)


def usage_of(survey: Survey, found: Found, steps: range) -> Usage:
    """Returns the answer for consecutive steps."""
    recipes = recipes_of(survey)
    asked = recipes if survey.collection == "smp" else recipes[:1]  # a person reports one of them
    people = {step: n for step in steps if (n := _people(survey, asked, found, step)) is not None}
    days, absence, age = (_measured(recipes, measure) for measure in ("active_days", "absence", "age"))
    many = None if absence is None else next(n for n in range(1, absence.k + 1) if n + 1 not in _cuts(absence))
    spans = of_steps(survey, [found[asked[0].name, step] for step in people], steps.step)
    return Usage(
        **spans | {"reports": [sum(found[a.name, step].reports for a in asked) for step in people]}, survey=survey.name,
        at_least=any(level.lifetime_reports for a in recipes for level in a.levels),
        people=_line([n.row() for n in people.values()]),
        a_day=None if days is None else _a_day(survey, days, found, people), in_many=many,
        in_steps=None if absence is None or many is None else _in_steps(survey, absence, found, people, many),
        retention=[] if age is None else list(_retention(age, found, people)),
    )  # fmt: skip


def recipes_of(survey: Survey) -> list[Attribute]:
    return [attribute for attribute in survey.attributes if attribute.recipe is not None]


def _people(survey: Survey, asked: Sequence[Attribute], found: Found, step: int) -> Number | None:
    """Each person is in the reports of one of `asked` with a chance of 1 / weight, by the devices' own draws."""
    share = len(asked) / len(survey.attributes) if survey.collection == "smp" else 1.0
    total = variance = 0.0
    for attribute in asked:
        if (p := found.get((attribute.name, step))) is None:
            return None
        weights = [m.every_steps / share for m in survey.mechanisms[survey.index(attribute.name)]]
        reports = [level.reports for level in p.levels.values()] or [p.reports]
        if len(reports) < len(set(weights)):  # too many values: the levels are not published
            return None
        for n, weight in zip(reports, weights, strict=False):
            total += weight * n
            variance += weight * (weight - 1) * (n + 1)
    return Number(total, sqrt(variance))


def _measured(asked: Sequence[Attribute], measure: str) -> Attribute | None:
    return next((a for a in asked if a.recipe and a.recipe.measure == measure and a.recipe.of is None), None)


def _cuts(attribute: Attribute) -> Sequence[float]:
    """The numbers at which the next value begins."""
    assert attribute.recipe is not None
    return attribute.recipe.edges or (attribute.bins or range(attribute.k + 1))[1:-1]


def _a_day(survey: Survey, days: Attribute, found: Found, people: Mapping[int, Number]) -> People | None:
    step_days = survey.step_seconds // DAY_S
    if days.recipe is None or days.recipe.window_days != step_days or days.edges is None or (days.size or 0) <= step_days:
        return None
    rows: list[Row] = []
    for step, n in people.items():
        mean, known = found[days.name, step].numbers.get("mean"), _estimate(days, found, step)
        if mean is None or mean.low is None or mean.high is None or known is None:
            rows.append(NO_ROW)
            continue
        (new, *shares), (new_error, *_) = (numbers.tolist() for numbers in known)
        before = 1 - new
        if before <= BOTH_ENDS * new_error:  # perhaps nobody used the application before
            rows.append(NO_ROW)
            continue
        share = sum(day * of_day for day, of_day in enumerate(shares, 1)) / before / step_days
        mean_error = (mean.high - mean.low) / (2 * NORMAL * step_days)
        a_day = n.times(share, hypot(mean_error, share * new_error) / before)  # more new people: a smaller mean
        rows.append(_each(min, a_day, n))
    return _line(rows)


def _estimate(attribute: Attribute, found: Found, step: int) -> tuple[FloatArray, FloatArray] | None:
    p = found.get((attribute.name, step))
    if p is None or not p.reports or INVERSION not in p.estimators or p.estimators[INVERSION].interval_withheld:
        return None
    estimate = p.estimators[INVERSION].estimate()
    return estimate.frequencies, estimate.standard_errors


def _in_steps(survey: Survey, absence: Attribute, found: Found, people: Mapping[int, Number], many: int) -> People:
    """The people of each of the last `many` steps who did not come in an earlier one of them."""
    memoized = any(m.memoized for m in survey.mechanisms[survey.index(absence.name)])
    cuts, rows = list(_cuts(absence)), list[Row]()
    for step in people:
        parts = []
        for i, at in enumerate(range(step - many + 1, step + 1)):
            if at in people and (i == 0 or not people[at].value):
                parts.append(people[at])
            elif at in people and (known := _estimate(absence, found, at)) is not None:
                shares, errors = known
                place = cuts.index(i + 1) + 1  # the values from here on: no use in the i steps before
                below, above = hypot(*errors[:place]), hypot(*errors[place:])  # estimated shares need not add up to 1
                share = shares[place:].sum() if above < below else 1 - shares[:place].sum()
                parts.append(people[at].times(share, min(below, above)))
        if len(parts) < many:
            rows.append(NO_ROW)
        else:  # a memo adds the same noise in each step
            error = sum(part.error for part in parts) if memoized else hypot(*(part.error for part in parts))
            rows.append(_each(max, Number(sum(part.value for part in parts), error), people[step]))
    return _line(rows)


def _retention(age: Attribute, found: Found, people: Mapping[int, Number]) -> Iterator[Retention]:
    own = next((i for i, cut in enumerate([*_cuts(age), None]) if cut != i + 1))  # each age below has a value of its own
    by_age: dict[tuple[int, int], Number] = {}
    for step, n in people.items():
        if (known := _estimate(age, found, step)) is not None:
            by_age |= {(step - i, i): n.times(known[0][i], known[1][i]) for i in range(own)}
    for step in people:
        if (new := by_age.get((step, 0))) is not None:
            rows = [_share(by_age.get((step, i)), new) for i in range(1, own)]
            value, low, high = new.row()
            yield Retention(step=step, people=value, low=low, high=high, shares=_line(rows))


def _share(back: Number | None, new: Number) -> Row:
    """The share of `new` people who came back. Its interval holds if those of both numbers hold, also with common noise."""
    low, high = new.ends(BOTH_ENDS)
    if back is None or low == 0:
        return NO_ROW
    least, most = back.ends(BOTH_ENDS)
    return min(max(back.value / new.value, 0.0), 1.0), min(least / high, 1.0), min(most / low, 1.0)


def _each(choose: Callable[[float, float], float], number: Number, people: Number) -> Row:
    """A number that is at most, or at least, the number of people of a step, as its ends are."""
    value, low, high = (choose(x, y) for x, y in zip(number.row(), people.row(), strict=True))
    return value, low, high


def _line(rows: Sequence[Row]) -> People:
    values, low, high = zip(*rows, strict=True) if rows else ((), (), ())
    return People(values=list(values), low=list(low), high=list(high))
