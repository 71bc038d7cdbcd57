"""Coverage of the numbers of people and of the recipes' shares, for simulated years.

People come, pause, upgrade and leave. The survey is the sample with a cohort: the version of the tool. Three versions come out
within the year.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.survey_file import toml_document

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "usage.toml"
VERSIONS = {"name": "version", "values": ["1.0", "1.1", "1.2"], "least": 100}
STEPS, MONTH = 52, 4
SHARES = {"age": "older", "last_use": "last week", "export": "yes", "build_seconds": "10 to 60"}
MEANS = ("active_days", "days_without_crash")
OF_VERSION = "export"


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
        people: reports of each step and version; they equal the people who used this version.
        a_day: estimated people a day, and the people who used the application on a day, both as means over the steps.
    """

    checked: list[Checked]
    people: list[tuple[int, int]]
    a_day: tuple[float, float]


def sample(**attribute: Any) -> Survey:
    """The sample with versions. `attribute` replaces keys of all attributes."""
    document = toml_document(SAMPLE.read_text()) | {"cohort": VERSIONS}
    return parse_survey(document | {"attribute": [asked | attribute for asked in document["attribute"]]})


def year(installations: int, seed: int, steps: int = STEPS, survey: Survey | None = None) -> Year:
    survey = survey or sample()
    source = UsageValues(survey, installations, steps, seed)
    population, found, true = Population(survey, source, seed), dict[tuple[str, int], Publication](), list[Truth]()
    of_versions, people = list[tuple[Publication, float]](), list[tuple[int, int]]()
    for step in range(steps):
        versions = [[[m.empty_table() for m in levels] for levels in survey.mechanisms] for _ in range(survey.n_cohorts)]
        for pane in population.reports(step):
            table = survey.mechanisms[pane.attribute][pane.level].tabulate(pane.reports)
            versions[pane.cohort][pane.attribute][pane.level] += table
        for a, attribute in enumerate(survey.attributes):
            tables = [[sum(of[1:], of[0]) for of in zip(*(version[a] for version in versions), strict=True)]]
            found[attribute.name, step] = conclude(survey, a, step, "step", tables, True)
        t = Truth(survey, source, step)
        true.append(t)
        people += [
            (sum(table.n for of in version for table in of), n) for version, n in zip(versions, t.of_version, strict=True)
        ]
        newest, a = int(np.flatnonzero(t.of_version)[-1]), survey.index(OF_VERSION)
        of_versions.append((conclude(survey, a, step, "step", [versions[newest][a]], True), t.in_newest))
    usage = usage_of(survey, found, range(steps))
    days = [(x, t.a_day) for x, t in zip(usage.a_day.values if usage.a_day else [], true, strict=True) if x is not None]
    return Year(
        [*_checked(survey, usage, found, true), *_checked_versions(survey, of_versions)],
        people,
        (float(np.mean([x for x, _ in days])), float(np.mean([x for _, x in days]))),
    )


class Truth:
    """The true numbers of a step.

    Attributes:
        present: the people who used the application.
        new: those of them who used it for the first time.
        a_day: mean number of people who used it on a day.
        of_version: their number with each version; `in_newest`: the share of `OF_VERSION` of those with the newest one.
    """

    def __init__(self, survey: Survey, source: UsageValues, step: int) -> None:
        self.present, ages = source.at(step, survey.index("age"))
        self.new = self.present[ages == 0]
        self.a_day = float(source.days_of_use()[0].sum(axis=0).mean())
        self.shares, self.means = dict[str, float](), dict[str, float]()
        for name, label in SHARES.items():
            attribute = survey.attributes[survey.index(name)]
            self.shares[name] = float(np.mean(source.at(step, survey.index(name))[1] == attribute.labels.index(label)))
        versions = source.cohorts_at(step)[self.present]
        self.of_version = np.bincount(versions, minlength=survey.n_cohorts).tolist()
        self.in_newest = float(source.at(step, survey.index(OF_VERSION))[1][versions == versions.max()].mean())
        for name in MEANS:
            self.means[name] = float(source.at(step, survey.index(name))[1].mean())


def _checked_versions(survey: Survey, found: Sequence[tuple[Publication, float]]) -> Iterator[Checked]:
    i = survey.attributes[survey.index(OF_VERSION)].labels.index(SHARES[OF_VERSION])
    for p, truth in found:
        yield Checked(f"share of {OF_VERSION} in the newest version", p.step, *_share(p, i), truth)


def _share(p: Publication, i: int) -> tuple[float, float, float]:
    estimate = p.estimators[p.main].estimate()
    low, high = (float(end[i]) for end in estimate.interval(PUBLISHED_LEVEL))
    return float(estimate.frequencies[i]), low, high


def _checked(survey: Survey, usage: Usage, found: Found, true: Sequence[Truth]) -> Iterator[Checked]:
    for step, t in enumerate(true):
        for name, label in SHARES.items():
            p, i = found[name, step], survey.attributes[survey.index(name)].labels.index(label)
            yield Checked(f"share of {name}: {label}", step, *_share(p, i), t.shares[name])
        for name in MEANS:
            mean = found[name, step].numbers["mean"]
            yield Checked(f"mean of {name}", step, mean.value, mean.low or 0.0, mean.high or 0.0, t.means[name])
        of_steps = usage.in_steps
        if of_steps is not None and step >= MONTH - 1:
            people = np.unique(np.concatenate([of.present for of in true[step - MONTH + 1 : step + 1]])).size
            yield Checked("people in 4 weeks", step, *_row(of_steps, step), people)
        if usage.a_day is not None and usage.a_day.values[step] is not None:
            yield Checked("people a day", step, *_row(usage.a_day, step), t.a_day)
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
        half = sum(checked.high - checked.low for checked in every) / 2 / sum(checked.truth for checked in every)
        shares = f"{np.mean([checked.covered for checked in every]):.1%}", f"{sum(c.covered for c in last)} of {len(last)}"
        shown.add_row(name, f"{len(every):,}", *shares, f"{half:.1%}")
    return shown


def totals(found: Sequence[Year]) -> str:
    wrong = sum(value != true for of_year in found for value, true in of_year.people)
    shares = [estimated / true for estimated, true in (of_year.a_day for of_year in found)]
    return (
        f"People a week of each version: wrong in {wrong} cases. People a day: {np.mean(shares):.1%} of the true mean of a"
        f" year, from {min(shares):.1%} to {max(shares):.1%}."
    )
