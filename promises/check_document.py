"""The statements of `check` as JSON for a program: the document of `check --json`. `docs/check.schema.json` is its schema.

A loss is in nats; a loss of null has no bound. Keys may be added; a key never changes its meaning without a new `format`.
"""

import math
from datetime import UTC, datetime

import msgspec

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.guessing import Chance
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.false_reports import weight
from ldpstream.promises.pair_costs import people_factor
from ldpstream.promises.promise import (
    DELETIONS,
    SHARING,
    device_loss,
    device_window_loss,
    guess_enrolments,
    loss_for_ever,
    promise,
)
from ldpstream.promises.second_promise import SecondPromise, second_promise, second_promise_lines
from ldpstream.surveys import Survey

FORMAT = 2


class CheckedChance(msgspec.Struct, frozen=True, kw_only=True):
    """The probability that the best guesser guesses a value right, who at first considers all values equally likely.

    Attributes:
        chance: the probability, or its upper bound.
    """

    chance: float
    exact: bool
    text: str


class CheckedChances(msgspec.Struct, frozen=True, kw_only=True):
    """Chances of a right guess, for different reports that the guesser sees.

    The names with `any_values` are about the value at one step, if values may change. All others but `every_steps` are about a
    value that never changes.

    Attributes:
        no_report, one_report: without any report, and from the reports of one step.
        window, window_any_values: from the reports of `window_steps` steps.
        year, year_any_values: from the reports of a year, or of the whole survey if it is shorter.
        for_ever: from all reports that a device may ever make; None for a one-time level without `lifetime_reports`.
        every_steps: of the value at one step, if it tells nothing about the values outside `every_steps` consecutive steps.
            None for a memoized level; in `device_chances` also if another level of the survey is memoized.
    """

    no_report: CheckedChance
    one_report: CheckedChance
    window: CheckedChance
    window_any_values: CheckedChance
    year: CheckedChance
    year_any_values: CheckedChance
    for_ever: CheckedChance | None
    every_steps: CheckedChance | None


class CheckedWeight(msgspec.Struct, frozen=True, kw_only=True):
    """The number of honest people whom false reports outweigh.

    `one_value` is for one share and one report. `set_size` values together have the weight `set`; they are half of all, and
    with `choices` half of all symbols of a report, rounded down. `in_window` and `in_year` are for one share, and a liar who
    sends one report at every step.
    """

    one_value: float
    set_size: int
    set: float
    in_window: float
    in_year: float


class CheckedLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A level. The losses are those of this attribute's reports.

    Attributes:
        mechanism: its name and parameters.
        memoized: true if all reports of a value come from one memo.
        every_steps, lifetime_reports: how often a device reports, and how many times in all; None for no limit.
        reports_a_year: largest number of reports of a device in a year.
        eps_1: loss of one report.
        eps_t: loss of the reports of `window_steps` steps, if the value stays the same.
        eps_inf: loss of any number of reports, if the value stays the same.
        eps_sequence: loss of the reports of `window_steps` steps, for any values.
        eps_sequence_exact: false if eps_sequence is an upper bound.
        eps_window: loss between value sequences that differ only within `every_steps` consecutive steps; null for a memoized
            level.
        eps_lifetime: loss of all reports, for any values, from `lifetime_reports`; null without this key.
        eps_survey: upper bound of the loss of all reports until the survey ends, for any values; null without `ends`.
        max_memos: largest number of memos of a device.
        hash_functions: number of hash functions of which a device repeats one in every report; 1 if it repeats none.
        attribute_chances: from the reports of this attribute.
        device_chances: from all reports of the device, if other answers give the strongest possible hints.
        after_deletions: chance of a right guess, by the number of deletions of the device's storage. At a memoized level: of a
            value that never changes, from any number of reports of this attribute. At a one-time level: of a value that stays
            the same within `every_steps` consecutive steps, if all deletions are within these steps, from one report before the
            deletions and one after each of them.
        four_people: chance of a right guess of a value that four people at this level share: from any number of reports of each
            of them, for a one-time level from one report of each.
    """

    name: str
    mechanism: str
    memoized: bool
    every_steps: int
    lifetime_reports: int | None
    reports_a_year: int
    report_bytes: int
    eps_1: float
    eps_t: float
    eps_inf: float | None
    eps_sequence: float
    eps_sequence_exact: bool
    eps_window: float | None
    eps_lifetime: float | None
    eps_survey: float | None
    max_memos: int
    hash_functions: int
    false_report: CheckedWeight
    attribute_chances: CheckedChances
    device_chances: CheckedChances
    after_deletions: dict[str, CheckedChance]
    four_people: CheckedChance


class CheckedAttribute(msgspec.Struct, frozen=True, kw_only=True):
    """An attribute.

    `pair`: the names of a pair's two attributes. `people_factor`: the largest factor by which the pair raises the
    number of people that another attribute needs for the same precision. None if this factor is unknown. Both are None for an
    attribute that is no pair.
    """

    name: str
    domain: str
    n_values: int
    pair: list[str] | None
    people_factor: float | None
    levels: list[CheckedLevel]


class CheckedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The losses of a device over all attributes, at the levels with the largest losses.

    `eps_for_ever` is the loss of all reports while the values stay the same. `eps_window` is the loss between values that
    differ only within the longest `every_steps` consecutive steps; null with a memoized level, or if no device skips a step.
    """

    eps_1: float
    eps_t: float
    eps_for_ever: float | None
    eps_sequence: float
    eps_window: float | None


class CheckedCohort(msgspec.Struct, frozen=True, kw_only=True):
    """The cohort that each report shows in clear. `least`: fewest people for a published histogram of a cohort."""

    name: str
    values: list[str]
    least: int


class CheckedSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `check --json`.

    Attributes:
        format: number of the document's format.
        relay: "required" if devices send only through a relay; None if they send directly.
        crowd: number of honest people with the same attribute, level, cohort and step that the second promise assumes; or None.
        ends: end of the last step; None for a survey without end.
        second_promise: both promises by attribute, level and span, for the survey's `crowd`; empty without `crowd`.
        promise: the lines that `check` prints.
    """

    format: int
    survey: str
    fingerprint: str
    pin: str
    title: str | None
    description: str | None
    purpose: str | None
    owner: str | None
    contact: str | None
    replaces: str | None
    start: datetime
    ends: datetime | None
    n_steps: int | None
    step_seconds: int
    window_steps: int
    lateness_steps: int
    retention_steps: int
    collection: str
    relay: str | None
    crowd: int | None
    cohort: CheckedCohort | None
    device: CheckedDevice
    attributes: list[CheckedAttribute]
    second_promise: list[SecondPromise]
    promise: list[str]


def check_document(survey: Survey) -> CheckedSurvey:
    t, cohort = survey.window_steps, survey.cohort
    hidden = [] if survey.crowd is None else second_promise(survey, None)
    return CheckedSurvey(
        format=FORMAT, survey=survey.name, fingerprint=survey.fingerprint.hex(), pin=survey.pin, title=survey.title,
        description=survey.description, purpose=survey.purpose, owner=survey.owner, contact=survey.contact,
        replaces=survey.replaces, start=survey.start.astimezone(UTC), n_steps=survey.n_steps,
        ends=None if survey.n_steps is None else datetime.fromtimestamp(survey.opens_ms(survey.n_steps) / 1000, UTC),
        step_seconds=survey.step_seconds, window_steps=t, lateness_steps=survey.lateness_steps,
        retention_steps=survey.retention_steps, collection=survey.collection, relay=survey.relay, crowd=survey.crowd,
        cohort=None if cohort is None else CheckedCohort(name=cohort.name, values=list(cohort.values), least=cohort.least),
        device=CheckedDevice(
            eps_1=device_loss(survey, lambda m: m.eps_1),
            eps_t=device_loss(survey, lambda m: m.eps_t(m.reports_in(t))),
            eps_for_ever=_bound(loss_for_ever(survey)),
            eps_sequence=device_loss(survey, lambda m: m.eps_sequence(m.reports_in(t)).value),
            eps_window=device_window_loss(survey),
        ),
        attributes=[
            CheckedAttribute(
                name=attribute.name, domain=attribute.domain, n_values=attribute.k - (attribute.most or 0),
                pair=None if attribute.pair is None else list(attribute.pair),
                people_factor=None if attribute.pair is None else people_factor(survey, i),
                levels=[_level(survey, i, level.name, m) for level, m in zip(attribute.levels, mechanisms, strict=True)],
            )
            for i, (attribute, mechanisms) in enumerate(zip(survey.attributes, survey.mechanisms, strict=True))
        ],
        second_promise=hidden,
        promise=[*promise(survey), *(["", *second_promise_lines(survey, None, hidden)] if hidden else [])],
    )  # fmt: skip


def _level(survey: Survey, i: int, name: str, m: Mechanism) -> CheckedLevel:
    t = survey.window_steps
    sequence = m.eps_sequence(m.reports_in(t))
    return CheckedLevel(
        name=name, mechanism=m.signature, memoized=m.memoized, every_steps=m.every_steps,
        lifetime_reports=m.lifetime_reports, reports_a_year=m.reports_in(survey.steps_a_year),
        report_bytes=m.report_dtype.itemsize, eps_1=m.eps_1, eps_t=m.eps_t(m.reports_in(t)), eps_inf=_bound(m.eps_inf),
        eps_sequence=sequence.value, eps_sequence_exact=sequence.exact, eps_window=m.eps_window,
        eps_lifetime=_bound(m.eps_lifetime), eps_survey=survey.loss_until_end(m), max_memos=m.max_memos,
        hash_functions=m.n_enrolments,
        false_report=CheckedWeight(**weight(survey, m)),
        attribute_chances=_chances(survey, i, m, whole=False), device_chances=_chances(survey, i, m, whole=True),
        after_deletions={str(n): _told(guess_enrolments(m, n + 1)) for n in DELETIONS},
        four_people=_told(guess_enrolments(m, SHARING)),
    )  # fmt: skip


def _chances(survey: Survey, i: int, m: Mechanism, whole: bool) -> CheckedChances:
    def chance(steps: float, any_values: bool = False) -> Chance:
        if whole:
            return device_chance(survey, i, m, steps, any_values=any_values)
        reports = math.inf if math.isinf(steps) else m.reports_in(int(steps))
        return m.guess_any_values(int(reports)) if any_values else m.guess(min(reports, m.lifetime_reports or math.inf))

    t, year = survey.window_steps, survey.steps_a_year
    ends = m.memoized or m.lifetime_reports is not None
    fresh = m.eps_window is not None and (not whole or all(o.eps_window is not None for os in survey.mechanisms for o in os))
    return CheckedChances(
        no_report=_told(Chance(1 / m.guessed)), one_report=_told(m.guess() if not whole else chance(1)),
        window=_told(chance(t)), window_any_values=_told(chance(t, True)),
        year=_told(chance(year)), year_any_values=_told(chance(year, True)),
        for_ever=_told(chance(math.inf)) if ends else None,
        every_steps=_told(chance(m.every_steps, True) if whole else m.guess()) if fresh else None,
    )  # fmt: skip


def _told(chance: Chance) -> CheckedChance:
    return CheckedChance(chance=float(chance), exact=chance.exact, text=str(chance))


def _bound(loss: float) -> float | None:
    return None if math.isinf(loss) else loss
