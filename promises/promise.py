"""The promise of a survey to a participant, in plain words and in numbers."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ldpstream.mechanisms import Mechanism, choose
from ldpstream.mechanisms.wording import plural, up
from ldpstream.promises.false_reports import client_line, weight_line
from ldpstream.promises.pair_costs import cost_lines
from ldpstream.promises.statements import SHARING, CheckedChance, CheckedLevel, checked_device, checked_level
from ldpstream.surveys import Cohort, Survey
from ldpstream.surveys.questions import Level

COLLECTIONS = {
    "smp": "A device draws one of {d} attributes, once, and answers only that one.",
    "spl": "A device answers all {d} attributes and splits its budget evenly; the losses of the attributes add up.",
    "rs+fd": "A device draws one of {d} attributes, once and in secret. It answers the others with fake values. "
    "The losses below are losses of the whole answer. They use no privacy amplification, because amplification does not "
    "hold between people who differ in several attributes.",
}
HINTS = 'Other attributes can hint at a value. A chance "from the whole device" is for a guesser who also sees all reports of '
DEVICE_CHANCES = {
    "smp": HINTS
    + "other attributes, and knows the worst hints: the device drew the attribute that reveals most about the value, "
    "and the answer depends on the value in the worst possible way.",
    "spl": HINTS
    + "other attributes, and knows the worst hints: all other answers depend on the value in the worst possible way.",
    "rs+fd": HINTS
    + "other attributes, and knows the worst hints: which answer is true, and that it depends on the value in the worst "
    "possible way.",
}
PAIRS = (
    "The other value of a pair may change, at steps that depend on the value in the worst possible way. Equal memos show these "
    "steps, so many reports can reveal the value."
)
RELAY = (
    "Devices send reports only through a relay, at a random moment of the next step, and never directly. The relay sees "
    "addresses and times, and no report; the gateway sees reports, and no address. Relay and gateway together see who sent "
    "which report. The relay also sees at which steps a device sends nothing, and when it stops. A device sends nothing at a "
    "step without a value, or with a value that the survey refuses. If that depends on the value, this silence reveals it to "
    "the relay. The losses below hold against everybody, with or without a relay. Somebody who cannot see the sender of a "
    "report learns less, if enough honest people report at the same steps. `ldpstream check --people` prints how much less."
)
WORTH_MENTIONING = 0.97  # we name a mechanism that needs at most this share of the people
MANY_MEMOS = 8  # with more memos, the promise has advice for changing values; local hashing usually needs fewer


def odds(eps: float) -> str:
    return "any factor" if math.isinf(eps) else f"a factor of {factor(eps)}"


def factor(eps: float) -> str:
    """Formats e^eps, the largest factor by which odds may change, rounded up."""
    return up(math.exp(eps), 3) if eps < 50 else f"e^{up(eps)}"


def duration(seconds: int) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds and seconds % length == 0:
            return plural(seconds // length, unit)
    return plural(seconds, "second")


def nats(loss: float | None) -> str:
    """Formats a loss, rounded up; None stands for no bound."""
    return plural(up(loss), "nat")


def device_line(survey: Survey) -> str:
    device = checked_device(survey)
    steps = plural(survey.window_steps, "step")
    forever = "no bound" if device.eps_for_ever is None else up(device.eps_for_ever)
    all_steps = "in any number of steps" if survey.n_steps is None else "until the survey ends"
    line = (
        f"A device in all, at the levels of largest loss, while its values stay the same: {nats(device.eps_1)} a step, "
        f"{up(device.eps_t)} in {steps}, {forever} {all_steps}. If its values change: at most {nats(device.eps_sequence)} in "
        f"{steps}."
    )
    if device.eps_window is not None:
        w = max(m.every_steps for levels in survey.mechanisms for m in levels)
        line += f" If its values change only within {w} consecutive steps: at most {nats(device.eps_window)}, "
        line += "for any number of reports."
    return line


def promise(survey: Survey) -> list[str]:
    """Returns the promise as lines: for the whole survey, then for every attribute and level, then for a device in all."""
    d = len(survey.attributes)
    lines = [
        f"Survey {survey.name} is valid; fingerprint {survey.fingerprint.hex()}, pin {survey.pin}.",
        f"Steps of {duration(survey.step_seconds)} from {survey.start:%Y-%m-%d %H:%M %Z}; a step closes "
        f"{duration(survey.lateness_steps * survey.step_seconds)} after its end; windows of "
        f"{plural(survey.window_steps, 'step')}.",
        *([] if survey.n_steps is None else [_end(survey, survey.n_steps)]),
        COLLECTIONS[survey.collection].format(d=d) if d > 1 else "There is one attribute.",
        "A device randomizes a value before it sends it. A single report can still be the true value, and reports of one "
        "device can be linked. For each level we print the chance of a right guess: of 100 people, how many the best guesser "
        "gets right. The guesser sees all reports of this attribute of a device, and at first considers all values equally "
        'likely. "At most" marks an upper bound, rounded up; all other chances are exact.',
        "If one answer is known to be common, more guesses are right, also without any report. The survey's page prints these "
        "chances for the published shares.",
        "All numbers are for a device that keeps its storage, except where we name deletions.",
        *([DEVICE_CHANCES[survey.collection]] if d > 1 else []),
        *([PAIRS] if any(attribute.pair for attribute in survey.attributes) else []),
    ]
    lines += cost_lines(survey)
    lines += [f"{attribute.name}: {attribute.rest}" for attribute in survey.attributes]
    lines += [
        f"{a.name}: a person gives up to {a.most} answers, or none. A value is a set of answers. The guesser says whether one "
        "answer is in the set, and at first considers yes and no equally likely."
        + (
            " A device makes no report of more answers. Its silence can reveal that there are more."
            if a.most < len(a.values or ())
            else ""
        )
        for a in survey.attributes
        if a.most is not None
    ]
    if any(len(attribute.levels) > 1 for attribute in survey.attributes):
        lines += [
            "A participant must choose the level regardless of the value. If people with some values prefer a level, the "
            "combined estimates can be biased, and no interval shows it.",
            "A report carries its level in clear: everybody who sees it knows which level the participant chose.",
        ]
    if survey.cohort is not None:
        lines += _cohort(survey.cohort)
    if survey.relay is not None:
        lines.append(RELAY)
    lines.append(client_line(survey))
    for i, (attribute, mechanisms) in enumerate(zip(survey.attributes, survey.mechanisms, strict=True)):
        for level, m in zip(attribute.levels, mechanisms, strict=True):
            lines += ["", f"{attribute.name} ({attribute.domain}), level {level.name}: {m.signature}"]
            lines += [f"  {line}" for line in _level(survey, i, level.name, m)]
            lines += [f"  {line}" for line in _choice(level, m, survey.window_steps)]
            lines += [] if m.portable else [f"  Only devices in Python have {m.name}: others refuse this survey."]
    if d > 1:
        lines += ["", device_line(survey)]
    if any(m.max_memos > MANY_MEMOS for levels in survey.mechanisms for m in levels):
        lines += [
            "",
            "If people's values change, use a one-time mechanism with every_steps. Of the memoized mechanisms, local hashing "
            "with few symbols (L-BLH, L-OLH) reveals the changes least: compare eps_sequence.",
        ]
    return lines


def _choice(level: Level, m: Mechanism, window_steps: int) -> list[str]:
    """Says why ``"auto"`` chose this mechanism; for another name, whether ``"auto"`` would now choose a more accurate one."""
    if m.choices is not None:
        kind = "memoized" if m.memoized else "one-time"
        return [f"Chosen for you: {m.name}: the {kind} mechanism for several answers."] if level.mechanism == "auto" else []
    limits: dict[str, Any] = {"reports": m.lifetime_reports or math.inf, "guess_at_most": level.guess_at_most}
    try:
        chosen, reason = choose(m.k, **m.epsilons(), steps=window_steps, calibration=level.calibration, **limits)
    except ValueError:  # no candidate keeps to guess_at_most
        return []
    if level.mechanism == "auto":
        changing = " If values change, name L-OLH in its place." if m.memoized and m.name != "L-OLH" else ""
        return [f"Chosen for you: {reason}.{changing}"]
    steps = window_steps if m.memoized else 1
    share = chosen.variance(steps=steps) / m.device.variance(steps=steps) if m.device.pure else 1.0
    if share > WORTH_MENTIONING:
        return []
    better = f'mechanism = "auto" would choose {chosen.name} in a new survey: '
    if not m.memoized:
        return [f"{better}a step needs {share:.2f} times as many people for the same error."]
    often = "more" if chosen.guess(math.inf) > m.guess(math.inf) else "less"
    return [
        f"{better}a window of {window_steps} steps needs {share:.2f} times as many people for the same error, if values do not "
        f"change. A guess from all reports is then right {often} often."
    ]


def _cohort(cohort: Cohort) -> list[str]:
    return [
        f"A report carries the device's cohort in clear ({cohort.name}: one of {', '.join(cohort.values)}). Everybody who sees "
        "the report learns the cohort; the losses below are losses about the values. The app must never choose the cohort by a "
        "value.",
        "A rare cohort, and a change of the cohort when few others change theirs, link the reports of a device.",
        "The service publishes a histogram of a cohort only from the reports of at least "
        f"{plural(cohort.least, 'person', 'people')}. It publishes the number of reports of each cohort in any case.",
        "This least size is not a bound of the privacy loss: the histogram of all people, less those of the published cohorts, "
        "gives a noisy histogram of the others. Only the losses below limit what it reveals.",
    ]


def cohort_line(cohort: Cohort) -> str:
    return f"ε protects the answer, not the cohort: a report shows the device's cohort ({cohort.name}) openly."


def _end(survey: Survey, n_steps: int) -> str:
    last = f"It has {plural(n_steps, 'step')}, the last one ends at "
    time = datetime.fromtimestamp(survey.opens_ms(n_steps) / 1000, UTC)
    return f"{last}{time:%Y-%m-%d %H:%M %Z}. Then devices stop, and no later report counts."


def _whole_device(survey: Survey, *chances: CheckedChance | None) -> str:
    told = [chance.text for chance in chances if chance is not None]
    return f" From the whole device: {'; '.join(told)}." if len(survey.attributes) > 1 and told else ""


def _spaced(survey: Survey, level: CheckedLevel) -> list[str]:
    window, w, limit = survey.window_steps, level.every_steps, level.lifetime_reports
    own, device = level.attribute_chances, level.device_chances
    inside = _whole_device(survey, device.every_steps)
    if inside:
        inside = inside[:-1] + ", if the value hints at no answer outside these steps."
    steps = plural(w, "consecutive step")
    often = f"once in {w} steps, from a random first step on" if w > 1 else "at every step"
    stops = "" if limit is None else f", and stops for good after {plural(limit, 'report')}"
    total = ""
    if level.eps_lifetime is not None:
        total = f", and at most {nats(level.eps_lifetime)} in all reports (eps_lifetime)"
    elif survey.n_steps is None:  # otherwise `_level` has the bound until the survey ends
        total = ", and there is no bound for all reports (eps_lifetime)"
    lines = [
        f"A device reports {often}{stops}. Every report is fresh, and the promise is the same for values that change. "
        "The device's clock determines the steps.",
        f"Value sequences that differ only within {steps}: odds change by at most {odds(level.eps_1)}, for any number "
        f"of reports (eps_window = {up(level.eps_1)}). Chance of a right guess of a value that hints at no value of this "
        f"attribute outside {steps}, from the reports of this attribute: {own.one_report.text}.{inside}",
        f"Any two value sequences lose at most {nats(level.eps_sequence)} in {plural(window, 'step')} (eps_sequence){total}.",
    ]
    if own.for_ever is not None:
        lines.append(
            f"Chance of a right guess of a value that never changes, from all reports of this attribute: {own.for_ever.text}."
            + _whole_device(survey, device.for_ever)
        )
    return lines


RARELY = (
    "A device makes up for no missed step. If half of the people have a program that runs at only a quarter of the steps, 20 "
    "of 100 reports are theirs, not 50. If programs do not run at every step, choose longer steps without every_steps, such as "
    "steps of {longer}: then a program needs to run only once in each step."
)


def _several_enrolments(level: CheckedLevel) -> list[str]:
    times = _listed([*level.after_deletions])
    chances, four = _listed([chance.text for chance in level.after_deletions.values()]), level.four_people.text
    people = f"{SHARING} people at this level who are known to share a value, such as a household"
    if level.memoized:
        return [
            f"A device whose storage is deleted draws a new memo. After {times} deletions, the chance of a right guess of a "
            f"value that never changes is {chances}, from any number of reports of this attribute. From such reports of "
            f"{people}, it is {four}. The guesser knows which reports come from which memo.",
        ]
    where = "the same step" if level.every_steps == 1 else plural(level.every_steps, "consecutive step")
    limit = "" if level.lifetime_reports is None else " It also counts its reports from 0 again."
    return [
        f"A device whose storage is deleted starts again, and may make another report within {where}.{limit} After {times} "
        f"deletions in this time, with a report before and after each, the chance of a right guess of a value that stays the "
        f"same is {chances}, from these reports.",
        f"From one report of each of {people}, the chance of a right guess of this value is {four}.",
    ]


def _listed(items: Sequence[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _level(survey: Survey, attribute: int, name: str, m: Mechanism) -> list[str]:
    level = checked_level(survey, attribute, name, m)
    own, device = level.attribute_chances, level.device_chances
    exact = "" if level.eps_sequence_exact else "at most "
    reports = m.reports_in(survey.window_steps)
    of_window, lose = plural(reports, "report"), plural(reports, "report loses", "reports lose")
    lines = [
        f"One report changes anybody's odds between two values by at most {odds(level.eps_1)} (eps_1 = {up(level.eps_1)}). "
        f"Chance of a right guess from one report: {own.one_report.text}; without any report: {own.no_report.text}.",
    ]
    if level.memoized and own.for_ever is not None:
        lines += [
            "While the value stays the same, any number of reports change the odds by at most "
            f"{odds(m.eps_inf)} (eps_inf = {up(m.eps_inf)}); "
            f"{of_window} by at most {odds(level.eps_t)} (eps_t = {up(level.eps_t)}). "
            f"Chance of a right guess from the reports of this attribute: {own.for_ever.text} from any number of reports, "
            f"{own.window.text} from {of_window}." + _whole_device(survey, device.for_ever, device.window),
            f"A changed value can draw a new memo, at most {plural(level.max_memos, 'memo')} in all. "
            "Memos do not hide when a value changed: between any two value sequences, "
            f"{lose} {exact}{nats(level.eps_sequence)} (eps_sequence).",
        ]
    elif level.every_steps > 1 or level.lifetime_reports is not None:
        lines += _spaced(survey, level)
    else:
        lines.append(
            f"Every further report costs the same: {lose} {exact}{nats(level.eps_sequence)}. "
            f"Chance of a right guess of one value from {of_window} of this attribute: {own.window.text}; "
            "with more reports it approaches certainty." + _whole_device(survey, device.window)
        )
    lines += _several_enrolments(level)
    lines.append(
        f"After a year ({plural(level.reports_a_year, 'report')} of this attribute): chance of a right guess of a value that "
        f"never changed: {own.year.text}; of the value at one step, if it may change at every step: "
        f"{own.year_any_values.text}." + _whole_device(survey, device.year, device.year_any_values)
    )
    if survey.n_steps is not None:
        lines.append(
            f"Until the survey ends ({plural(m.reports_in(survey.n_steps), 'report')} of this attribute): any two value "
            f"sequences lose at most {nats(level.eps_survey)} (eps_survey)."
        )
    if level.hash_functions > 1:
        lines.append(
            f"A device sends the same hash function in every report, one of {level.hash_functions}. This links its reports. "
            "With many functions it nearly identifies the device."
        )
    if level.every_steps > 1:
        lines.append(RARELY.format(longer=duration(level.every_steps * survey.step_seconds)))
        lines.append(
            f"A device's reports are {level.every_steps} steps apart. This links its reports: about one device in "
            f"{level.every_steps} reports at the same steps."
        )
    return [*lines, weight_line(level.false_report, m), f"A report takes {plural(level.report_bytes, 'byte')}."]
