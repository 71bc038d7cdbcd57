"""Coverage of the numbers of people and of the recipes' shares, for simulated years of people who come, pause and leave."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from rich.table import Table

from lab.processes import worker_pool
from ldpstream.estimators.estimate import PUBLISHED_LEVEL
from ldpstream.producers.population import Population
from ldpstream.producers.usage import UsageValues
from ldpstream.publishing.answers.usage import Found, People, Usage, usage_of
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Survey, load_survey

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "usage.toml"
STEPS, MONTH = 52, 4
SHARES = {"age": "older", "last_use": "last week", "export": "yes", "build_seconds": "10 to 60"}
MEANS = ("active_days", "days_without_crash")


class Checked(msgspec.Struct, frozen=True):
    """An interval of one number at one step, and the truth."""

    number: str
    step: int
    value: float
    low: float
    high: float
    truth: float

    @property
    def covered(self) -> bool:
        return self.low <= self.truth <= self.high


class Year(msgspec.Struct, frozen=True):
    """A simulated year.

    Attributes:
        people: reports of each step; they equal the people who used the application.
        a_day: estimated people a day, and the people who used the application on a day, both as means over the steps.
    """

    checked: list[Checked]
    people: list[tuple[float, int]]
    a_day: tuple[float, float]


def year(installations: int, seed: int, steps: int = STEPS, survey: Survey | None = None) -> Year:
    survey = survey or load_survey(SAMPLE)
    source = UsageValues(survey, installations, steps, seed)
    population, found, true = Population(survey, source, seed), dict[tuple[str, int], Publication](), list[Truth]()
    for step in range(steps):
        tables = [[m.empty_table() for m in levels] for levels in survey.mechanisms]
        for pane in population.reports(step):
            tables[pane.attribute][pane.level] += survey.mechanisms[pane.attribute][pane.level].tabulate(pane.reports)
        for a, attribute in enumerate(survey.attributes):
            found[attribute.name, step] = conclude(survey, a, step, "step", [tables[a]], True)
        true.append(Truth(survey, source, step))
    usage = usage_of(survey, found, range(steps))
    days = [(x, t.a_day) for x, t in zip(usage.a_day.values if usage.a_day else [], true, strict=True) if x is not None]
    return Year(
        list(_checked(survey, usage, found, true)),
        [(value or 0.0, t.present.size) for value, t in zip(usage.people.values, true, strict=True)],
        (float(np.mean([x for x, _ in days])), float(np.mean([x for _, x in days]))),
    )


class Truth:
    """The true numbers of a step.

    Attributes:
        present: the people who used the application.
        new: those of them who used it for the first time.
        a_day: mean number of people who used it on a day.
    """

    def __init__(self, survey: Survey, source: UsageValues, step: int) -> None:
        self.present, ages = source.at(step, survey.index("age"))
        self.new = self.present[ages == 0]
        self.a_day = source.days_of_use()[0].sum() / source.days_of_use()[0].shape[1]
        self.shares, self.means = dict[str, float](), dict[str, float]()
        for name, label in SHARES.items():
            attribute = survey.attributes[survey.index(name)]
            self.shares[name] = float(np.mean(source.at(step, survey.index(name))[1] == attribute.labels.index(label)))
        for name in MEANS:
            self.means[name] = float(source.at(step, survey.index(name))[1].mean())


def _checked(survey: Survey, usage: Usage, found: Found, true: Sequence[Truth]) -> Iterator[Checked]:
    for step, t in enumerate(true):
        for name, label in SHARES.items():
            p, i = found[name, step], survey.attributes[survey.index(name)].labels.index(label)
            estimate = p.estimators[p.main].estimate()
            low, high = (float(end[i]) for end in estimate.interval(PUBLISHED_LEVEL))
            value = float(estimate.frequencies[i])
            yield Checked(f"share of {name}: {label}", step, value, low, high, t.shares[name])
        for name in MEANS:
            mean = found[name, step].numbers["mean"]
            yield Checked(f"mean of {name}", step, mean.value, mean.low or 0.0, mean.high or 0.0, t.means[name])
        of_steps = usage.in_steps
        if of_steps is not None and step >= MONTH - 1:
            people = np.unique(np.concatenate([of.present for of in true[step - MONTH + 1 : step + 1]])).size
            yield Checked("people in 4 weeks", step, *_row(of_steps, step), people)
    for cohort in usage.retention:
        if cohort.step + 1 < len(true) and cohort.shares.values[0] is not None:
            new, back = true[cohort.step].new, true[cohort.step + 1].present
            row = _row(cohort.shares, 0)
            yield Checked("share back after a week", cohort.step, *row, float(np.isin(new, back).mean()))


def _row(line: People, place: int) -> tuple[float, float, float]:
    value, low, high = line.values[place], line.low[place], line.high[place]
    assert value is not None
    assert low is not None
    assert high is not None
    return value, low, high


def bench(installations: int, years: int, processes: int | None, seen: Callable[[str], None] = lambda _: None) -> list[Year]:
    found = []
    with worker_pool(processes, years) as spread:
        for made in spread(partial(year, installations), range(1, years + 1)):
            found.append(made)
            seen(f"year {len(found)}")
    return found


def table(found: Sequence[Year]) -> Table:
    """Returns a row for each number: its intervals at all steps, and those at the last step of each year."""
    shown = Table(title=f"{len(found)} years: how often the 95 % interval contains the truth")
    for head in ("number", "intervals", "with the truth", "at the last step of a year", "half width"):
        shown.add_column(head, justify="left" if head == "number" else "right")
    for name in dict.fromkeys(checked.number for of_year in found for checked in of_year.checked):
        own = [[checked for checked in of_year.checked if checked.number == name] for of_year in found]
        every, last = [checked for of_year in own for checked in of_year], [of_year[-1] for of_year in own if of_year]
        half = np.mean([(checked.high - checked.low) / 2 / max(checked.truth, 1e-9) for checked in every])
        shares = f"{np.mean([checked.covered for checked in every]):.1%}", f"{sum(c.covered for c in last)} of {len(last)}"
        shown.add_row(name, f"{len(every):,}", *shares, f"{half:.1%}")
    return shown


def totals(found: Sequence[Year]) -> str:
    wrong = sum(value != true for of_year in found for value, true in of_year.people)
    shares = [estimated / true for estimated, true in (of_year.a_day for of_year in found)]
    return (
        f"People a week: wrong at {wrong} steps. People a day: {np.mean(shares):.1%} of the true mean of a year, from "
        f"{min(shares):.1%} to {max(shares):.1%}; people who never came again do not report their last week."
    )
