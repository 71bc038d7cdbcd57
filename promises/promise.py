"""The promise of a survey to a participant, in plain words and in numbers."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from ldpstream.mechanisms import Mechanism, choose
from ldpstream.mechanisms.guessing import Chance, percent
from ldpstream.mechanisms.wording import plural, up
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.false_reports import client_line, weight_line
from ldpstream.promises.pair_costs import cost_lines
from ldpstream.surveys import Cohort, Survey

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
MANY_MEMOS = 8  # with more memos, the promise has advice for changing values; local hashing usually needs fewer
DELETIONS = (2, 4, 9)  # numbers of deletions of a device's storage in the promise
SHARING = 4  # people who share a value in the promise


def odds(eps: float) -> str:
    """Formats e^eps, the largest factor by which odds may change, rounded up."""
    if math.isinf(eps):
        return "any factor"
    return f"a factor of {up(math.exp(eps), 3) if eps < 50 else f'e^{up(eps)}'}"


def duration(seconds: int) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds and seconds % length == 0:
            return plural(seconds // length, unit)
    return plural(seconds, "second")


def device_loss(survey: Survey, loss: Callable[[Mechanism], float]) -> float:
    """Returns the loss of a device over all its attributes, in nats, at the levels with the largest loss.

    With spl this is the sum over the attributes, otherwise the largest loss of an attribute.
    """
    dearest = [max(loss(m) for m in levels) for levels in survey.mechanisms]
    return sum(dearest) if survey.collection == "spl" else max(dearest)


def nats(loss: float) -> str:
    """Formats a loss, rounded up."""
    return plural(up(loss), "nat")


def device_line(survey: Survey) -> str:
    t = survey.window_steps
    eps_1, eps_t = device_loss(survey, lambda m: m.eps_1), device_loss(survey, lambda m: m.eps_t(m.reports_in(t)))
    any_values = device_loss(survey, lambda m: m.eps_sequence(m.reports_in(t)).value)
    eps_for_ever = loss_for_ever(survey)
    steps = plural(t, "step")
    forever = "no bound" if math.isinf(eps_for_ever) else up(eps_for_ever)
    all_steps = "in any number of steps" if survey.n_steps is None else "until the survey ends"
    return (
        f"A device in all, at the levels of largest loss, while its values stay the same: {nats(eps_1)} a step, "
        f"{up(eps_t)} in {steps}, {forever} {all_steps}. If its values change: at most {nats(any_values)} in "
        f"{steps}.{_device_window(survey)}"
    )


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


def _device_window(survey: Survey) -> str:
    loss, w = device_window_loss(survey), max(m.every_steps for levels in survey.mechanisms for m in levels)
    if loss is None:
        return ""
    return f" If its values change only within {w} consecutive steps: at most {nats(loss)}, for any number of reports."


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
            lines += [f"  {line}" for line in _level(survey, i, m)]
            if level.mechanism == "auto":
                several = f"{m.name}: the memoized mechanism for several answers"
                reason = choose(m.k, eps_inf=m.eps_inf, eps_1=m.eps_1)[1] if m.choices is None else several
                lines.append(f"  Chosen for you: {reason}.")
    if d > 1:
        lines += ["", device_line(survey)]
    if any(m.max_memos > MANY_MEMOS for levels in survey.mechanisms for m in levels):
        lines += [
            "",
            "If people's values change, use a one-time mechanism with every_steps. Of the memoized mechanisms, local hashing "
            "with few symbols (L-BLH, L-OLH) reveals the changes least: compare eps_sequence.",
        ]
    return lines


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
    return f"The losses are about the values. A report carries the device's cohort ({cohort.name}) in clear."


def _end(survey: Survey, n_steps: int) -> str:
    last = f"It has {plural(n_steps, 'step')}, the last one ends at "
    time = datetime.fromtimestamp(survey.opens_ms(n_steps) / 1000, UTC)
    return f"{last}{time:%Y-%m-%d %H:%M %Z}. Then devices stop, and no later report counts."


def _whole_device(survey: Survey, attribute: int, m: Mechanism, *asked: tuple[float, bool]) -> str:
    if len(survey.attributes) == 1:
        return ""
    chances = [str(device_chance(survey, attribute, m, steps, any_values=any_values)) for steps, any_values in asked]
    return f" From the whole device: {'; '.join(chances)}."


def _spaced(survey: Survey, attribute: int, m: Mechanism) -> list[str]:
    window = survey.window_steps
    w, limit = m.every_steps, m.lifetime_reports
    fresh = all(o.eps_window is not None for levels in survey.mechanisms for o in levels)  # a memo links all steps
    inside = _whole_device(survey, attribute, m, (w, True)) if fresh else ""
    if inside:
        inside = inside[:-1] + ", if the value hints at no answer outside these steps."
    steps = plural(w, "consecutive step")
    often = f"once in {w} steps, from a random first step on" if w > 1 else "at every step"
    stops = "" if limit is None else f", and stops for good after {plural(limit, 'report')}"
    loss = m.eps_sequence(m.reports_in(window)).value
    total = ""
    if limit is not None:
        total = f", and at most {nats(m.eps_lifetime)} in all reports (eps_lifetime)"
    elif survey.n_steps is None:  # otherwise `_level` has the bound until the survey ends
        total = ", and there is no bound for all reports (eps_lifetime)"
    lines = [
        f"A device reports {often}{stops}. Every report is fresh, and the promise is the same for values that change. "
        "The device's clock determines the steps.",
        f"Value sequences that differ only within {steps}: odds change by at most {odds(m.eps_1)}, for any number "
        f"of reports (eps_window = {up(m.eps_1)}). Chance of a right guess of a value that hints at no value of this attribute "
        f"outside {steps}, from the reports of this attribute: {m.guess()}.{inside}",
        f"Any two value sequences lose at most {nats(loss)} in {plural(window, 'step')} (eps_sequence){total}.",
    ]
    if limit is not None:
        lines.append(
            f"Chance of a right guess of a value that never changes, from all reports of this attribute: {m.guess(limit)}."
            + _whole_device(survey, attribute, m, (math.inf, False))
        )
    return lines


RARELY = (
    "A device makes up for no missed step. If half of the people have a program that runs at only a quarter of the steps, 20 "
    "of 100 reports are theirs, not 50. If programs do not run at every step, choose longer steps without every_steps, such as "
    "steps of {longer}: then a program needs to run only once in each step."
)


def guess_enrolments(m: Mechanism, n: int) -> Chance:
    """Chance of a right guess of a value from the reports of n enrolments of one device, or of n people who share the value.

    At a memoized level, the value never changes, and each enrolment makes any number of reports. At a one-time level, each
    enrolment makes one report.
    """
    return m.guess_memos(n) if m.memoized else m.guess(n)


def _several_enrolments(m: Mechanism) -> list[str]:
    times, chances = _listed(DELETIONS), _listed([guess_enrolments(m, n + 1) for n in DELETIONS])
    people = f"{SHARING} people at this level who are known to share a value, such as a household"
    if m.memoized:
        return [
            f"A device whose storage is deleted draws a new memo. After {times} deletions, the chance of a right guess of a "
            f"value that never changes is {chances}, from any number of reports of this attribute. From such reports of "
            f"{people}, it is {guess_enrolments(m, SHARING)}. The guesser knows which reports come from which memo.",
        ]
    where = "the same step" if m.every_steps == 1 else plural(m.every_steps, "consecutive step")
    limit = "" if m.lifetime_reports is None else " It also counts its reports from 0 again."
    return [
        f"A device whose storage is deleted starts again, and may make another report within {where}.{limit} After {times} "
        f"deletions in this time, with a report before and after each, the chance of a right guess of a value that stays the "
        f"same is {chances}, from these reports.",
        f"From one report of each of {people}, the chance of a right guess of this value is {guess_enrolments(m, SHARING)}.",
    ]


def _listed(items: Sequence[object]) -> str:
    return f"{', '.join(map(str, items[:-1]))} and {items[-1]}"


def _level(survey: Survey, attribute: int, m: Mechanism) -> list[str]:
    window, year = survey.window_steps, survey.steps_a_year
    reports = m.reports_in(window)
    sequence = m.eps_sequence(reports)
    exact = "" if sequence.exact else "at most "
    of_window, lose = plural(window, "report"), plural(window, "report loses", "reports lose")
    lines = [
        f"One report changes anybody's odds between two values by at most {odds(m.eps_1)} (eps_1 = {up(m.eps_1)}). "
        f"Chance of a right guess from one report: {m.guess()}; without any report: {percent(1 / m.guessed)}.",
    ]
    if m.memoized:
        lines += [
            "While the value stays the same, any number of reports change the odds by at most "
            f"{odds(m.eps_inf)} (eps_inf = {up(m.eps_inf)}); "
            f"{of_window} by at most {odds(m.eps_t(window))} (eps_t = {up(m.eps_t(window))}). "
            f"Chance of a right guess from the reports of this attribute: {m.guess(math.inf)} from any number of reports, "
            f"{m.guess(window)} from {of_window}." + _whole_device(survey, attribute, m, (math.inf, False), (window, False)),
            f"A changed value can draw a new memo, at most {plural(m.max_memos, 'memo')} in all. "
            "Memos do not hide when a value changed: between any two value sequences, "
            f"{lose} {exact}{nats(sequence.value)} (eps_sequence).",
        ]
    elif m.every_steps > 1 or m.lifetime_reports is not None:
        lines += _spaced(survey, attribute, m)
    else:
        lines.append(
            f"Every further report costs the same: {lose} {exact}{nats(sequence.value)}. "
            f"Chance of a right guess of one value from {of_window} of this attribute: {m.guess(window)}; "
            "with more reports it approaches certainty." + _whole_device(survey, attribute, m, (window, False))
        )
    lines += _several_enrolments(m)
    in_year = m.reports_in(year)
    lines.append(
        f"After a year ({plural(in_year, 'report')} of this attribute): chance of a right guess of a value that never changed: "
        f"{m.guess(in_year)}; of the value at one step, if it may change at every step: {m.guess_any_values(in_year)}."
        + _whole_device(survey, attribute, m, (year, False), (year, True))
    )
    until_end = survey.loss_until_end(m)
    if survey.n_steps is not None and until_end is not None:
        number = m.reports_in(survey.n_steps)
        lines.append(
            f"Until the survey ends ({plural(number, 'report')} of this attribute): any two value sequences "
            f"lose at most {nats(until_end)} (eps_survey)."
        )
    if m.n_enrolments > 1:
        lines.append(
            f"A device sends the same hash function in every report, one of {m.n_enrolments}. This links its reports. "
            "With many functions it nearly identifies the device."
        )
    size = m.report_dtype.itemsize
    if m.every_steps > 1:
        lines.append(RARELY.format(longer=duration(m.every_steps * survey.step_seconds)))
        lines.append(
            f"A device's reports are {m.every_steps} steps apart. This links its reports: about one device in {m.every_steps} "
            "reports at the same steps."
        )
    return [*lines, weight_line(survey, m), f"A report takes {plural(size, 'byte')}."]
