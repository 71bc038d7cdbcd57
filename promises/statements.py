"""The numbers of the promise of a survey: losses in nats, chances of a right guess, weights of false reports."""

import math
from collections.abc import Callable

import msgspec

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.claims.guessing import Chance, percent_up, round_up
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.false_reports import CheckedWeight, weight
from ldpstream.promises.outlook import Privacy, spent
from ldpstream.surveys import Survey

DELETIONS = (2, 4, 9)  # numbers of deletions of a device's storage in the promise
SHARING = 4  # people who share a value in the promise


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


class CheckedLevel(Privacy, frozen=True, kw_only=True):
    """A level. The losses are those of this attribute's reports.

    Attributes:
        mechanism: its name and parameters.
        t: largest number of reports of a device in `window_steps` steps.
        memoized: true if all reports of a value come from one memo.
        every_steps: a device makes one report in so many steps.
        lifetime_reports: number of reports after which a device stops; None for no limit.
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
    memoized: bool
    lifetime_reports: int | None
    reports_a_year: int
    report_bytes: int
    eps_survey: float | None
    max_memos: int
    hash_functions: int
    false_report: CheckedWeight
    attribute_chances: CheckedChances
    device_chances: CheckedChances
    after_deletions: dict[str, CheckedChance]
    four_people: CheckedChance


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


def device_loss(survey: Survey, loss: Callable[[Mechanism], float]) -> float:
    """Returns the loss of a device over all its attributes, in nats, at the levels with the largest loss.

    With spl this is the sum over the attributes, otherwise the largest loss of an attribute.
    """
    dearest = [max(loss(m) for m in levels) for levels in survey.mechanisms]
    return sum(dearest) if survey.collection == "spl" else max(dearest)


def device_window_loss(survey: Survey) -> float | None:
    """Returns the loss between values that differ only within the longest `every_steps` consecutive steps.

    None if no level has `every_steps` above 1, or if a level is memoized.
    """
    every = [m for levels in survey.mechanisms for m in levels]
    w = max(m.every_steps for m in every)
    if w == 1 or any(m.eps_window is None for m in every):
        return None
    return device_loss(survey, lambda m: m.eps_sequence(m.reports_in(w)).value)


def loss_for_ever(survey: Survey) -> float:
    """Returns the loss of all reports of a device while its values stay the same, in nats; infinite if nothing bounds it."""

    def loss(m: Mechanism) -> float:
        reports = survey.most_reports(m)
        return m.eps_inf if reports is None else min(m.eps_inf, m.eps_t(reports))

    return device_loss(survey, loss)


def checked_device(survey: Survey) -> CheckedDevice:
    t = survey.window_steps
    return CheckedDevice(
        eps_1=device_loss(survey, lambda m: m.eps_1),
        eps_t=device_loss(survey, lambda m: m.eps_t(m.reports_in(t))),
        eps_for_ever=_bound(loss_for_ever(survey)),
        eps_sequence=device_loss(survey, lambda m: m.eps_sequence(m.reports_in(t)).value),
        eps_window=device_window_loss(survey),
    )


def guess_enrolments(m: Mechanism, n: int) -> Chance:
    """Chance of a right guess of a value from the reports of n enrolments of one device, or of n people who share the value.

    At a memoized level, the value never changes, and each enrolment makes any number of reports. At a one-time level, each
    enrolment makes one report.
    """
    return m.claims.guess_memos(n) if m.memoized else m.guess(n)


def checked_level(survey: Survey, i: int, name: str, m: Mechanism) -> CheckedLevel:
    return CheckedLevel(
        **msgspec.structs.asdict(spent(m, survey.window_steps)), name=name, memoized=m.memoized,
        lifetime_reports=m.lifetime_reports, reports_a_year=m.reports_in(survey.steps_a_year),
        report_bytes=m.row_bytes, eps_survey=survey.loss_until_end(m), max_memos=m.max_memos,
        hash_functions=m.n_enrolments,
        false_report=weight(survey, m),
        attribute_chances=_chances(survey, i, m, whole=False), device_chances=_chances(survey, i, m, whole=True),
        after_deletions={str(n): told(guess_enrolments(m, n + 1)) for n in DELETIONS},
        four_people=told(guess_enrolments(m, SHARING)),
    )  # fmt: skip


def _chances(survey: Survey, i: int, m: Mechanism, whole: bool) -> CheckedChances:
    def chance(steps: float, any_values: bool = False) -> Chance:
        if whole:
            return device_chance(survey, i, m, steps, any_values=any_values)
        reports = math.inf if math.isinf(steps) else m.reports_in(int(steps))
        return m.claims.guess_any_values(int(reports)) if any_values else m.guess(min(reports, m.lifetime_reports or math.inf))

    t, year = survey.window_steps, survey.steps_a_year
    ends = m.memoized or m.lifetime_reports is not None
    in_window, in_year = chance(t), chance(year)
    fresh = m.eps_window is not None and (not whole or all(o.eps_window is not None for os in survey.mechanisms for o in os))
    return CheckedChances(
        no_report=told(Chance(1 / m.claims.guessed)), one_report=told(m.guess() if not whole else chance(1)),
        window=told(in_window), window_any_values=told(chance(t, True)),
        year=told(in_year), year_any_values=told(chance(year, True)),
        for_ever=told(chance(math.inf), in_window, in_year) if ends else None,
        every_steps=told(chance(m.every_steps, True) if whole else m.guess()) if fresh else None,
    )  # fmt: skip


def told(chance: Chance, *fewer: Chance) -> CheckedChance:
    """The text of an exact chance is rounded up if otherwise a bound from `fewer` reports, rounded up, would look larger."""
    higher = chance.exact and any(not one.exact and round_up(one) > chance for one in fewer)
    return CheckedChance(chance=float(chance), exact=chance.exact, text=percent_up(chance) if higher else str(chance))


def _bound(loss: float) -> float | None:
    return None if math.isinf(loss) else loss
