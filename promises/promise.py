"""The promise of a survey to a participant, in plain words and in numbers. `check.toml` has the words."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ldpstream.mechanisms import Mechanism, choose
from ldpstream.mechanisms.claims.guessing import percent_up
from ldpstream.mechanisms.wording import plural, up
from ldpstream.promises.false_reports import LEAST_REPORTS, weight_line
from ldpstream.promises.filling import Facts, facts_of, of_check
from ldpstream.promises.statements import SHARING, checked_device, checked_level
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.questions import Level

TIME = "%Y-%m-%d %H:%M %Z"
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


def promise(survey: Survey) -> list[str]:
    """Returns the promise as lines: for the whole survey, then for every attribute and level, then for a device in all."""
    lines = of_check("survey", _of_survey(survey))
    for i, attribute, level, m in survey.levels:
        told = [*of_check("level", _of_level(survey, i, level.name, m)), *_choice(level, m, survey.window_steps)]
        lines += ["", f"{attribute.name} ({attribute.domain}), level {level.name}: {m.signature}"]
        lines += [f"  {line}" for line in told]
        lines += [] if m.portable else [f"  Only devices in Python have {m.name}: others refuse this survey."]
    if len(survey.attributes) > 1:
        lines += ["", device_line(survey)]
    if any(m.max_memos > MANY_MEMOS for levels in survey.mechanisms for m in levels):
        lines += ["", *of_check("many_memos", {})]
    return lines


def device_line(survey: Survey) -> str:
    device, forever = checked_device(survey), "in any number of steps" if survey.n_steps is None else "until the survey ends"
    (line,) = of_check("device", {
        "eps_1": nats(device.eps_1), "eps_t": up(device.eps_t), "window": plural(survey.window_steps, "step"),
        "limited": device.eps_for_ever, "for_ever": up(device.eps_for_ever), "all_steps": forever,
        "eps_sequence": nats(device.eps_sequence), "eps_window": device.eps_window and nats(device.eps_window),
        "within": max(m.every_steps for levels in survey.mechanisms for m in levels),
    })  # fmt: skip
    return line


def _of_survey(survey: Survey) -> Facts:
    n, cohort = survey.n_steps, survey.cohort
    ends = None if n is None else datetime.fromtimestamp(survey.opens_ms(n) / 1000, UTC)
    about = [*(f"{a.name}: {a.rest}" for a in survey.attributes), *map(_set, survey.attributes)]
    return facts_of(survey) | {
        "d": len(survey.attributes), "step": duration(survey.step_seconds), "start": f"{survey.start:{TIME}}",
        "lateness": duration(survey.lateness_steps * survey.step_seconds), "window": plural(survey.window_steps, "step"),
        "ends": ends and f"{ends:{TIME}}", "n_steps": n and plural(n, "step"), "pairs": any(a.pair for a in survey.attributes),
        "attributes": "\n".join(filter(None, about)), "least": cohort and plural(cohort.least, "person", "people"),
        "client_reports": f"{LEAST_REPORTS:,}", "client_share": percent_up(LEAST_REPORTS / (10_000 + LEAST_REPORTS)),
    }  # fmt: skip


def _set(attribute: Attribute) -> str:
    if attribute.most is None:
        return ""
    facts = {"name": attribute.name, "most": attribute.most, "silent": attribute.most < len(attribute.values or ())}
    return of_check("set", facts)[0]


def _of_level(survey: Survey, attribute: int, name: str, m: Mechanism) -> Facts:
    level, several, w = checked_level(survey, attribute, name, m), len(survey.attributes) > 1, m.every_steps
    spaced, reports = w > 1 or level.lifetime_reports is not None, m.reports_in(survey.window_steps)
    chances = {
        prefix + key: chance and chance.text
        for prefix, own in (("", level.attribute_chances), ("device_", level.device_chances))
        for key, chance in ((key, getattr(own, key)) for key in own.__struct_fields__)
    }
    in_all = ", and there is no bound for all reports (eps_lifetime)" if survey.n_steps is None else ""
    if level.eps_lifetime is not None:
        in_all = f", and at most {nats(level.eps_lifetime)} in all reports (eps_lifetime)"
    limit = level.lifetime_reports
    return chances | {
        "several": several, "memoized": level.memoized, "spaced": not level.memoized and spaced,
        "plain": not level.memoized and not spaced, "limited": limit, "skips": w > 1, "ends": survey.n_steps is not None,
        "odds_1": odds(level.eps_1), "eps_1": up(level.eps_1), "odds_inf": odds(m.eps_inf), "eps_inf": up(m.eps_inf),
        "odds_t": odds(level.eps_t), "eps_t": up(level.eps_t), "of_window": plural(reports, "report"),
        "lose": plural(reports, "report loses", "reports lose"), "at_most": "" if level.eps_sequence_exact else "at most ",
        "eps_sequence": nats(level.eps_sequence), "in_all": in_all, "eps_survey": nats(level.eps_survey),
        "memos": plural(level.max_memos, "memo"), "every": w, "within": plural(w, "consecutive step"),
        "where": "the same step" if w == 1 else plural(w, "consecutive step"),
        "often": f"once in {w} steps, from a random first step on" if w > 1 else "at every step",
        "stops": "" if limit is None else f", and stops for good after {plural(limit, 'report')}",
        "window_steps": plural(survey.window_steps, "step"), "longer": duration(w * survey.step_seconds),
        "device_within": several and chances["device_every_steps"], "sharing": SHARING, "shared": level.four_people.text,
        "times": _listed([*level.after_deletions]), "deleted": _listed([one.text for one in level.after_deletions.values()]),
        "of_year": plural(level.reports_a_year, "report"), "hashes": level.hash_functions > 1 and level.hash_functions,
        "of_survey": survey.n_steps and plural(m.reports_in(survey.n_steps), "report"),
        "weight": weight_line(level.false_report), "bytes": plural(level.report_bytes, "byte"),
    }  # fmt: skip


def _listed(items: Sequence[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _choice(level: Level, m: Mechanism, window_steps: int) -> list[str]:
    """Says why ``"auto"`` chose this mechanism."""
    if level.mechanism != "auto":
        return []
    if m.choices is not None:
        return [f"Chosen for you: {m.name}: the {'memoized' if m.memoized else 'one-time'} mechanism for several answers."]
    limits: dict[str, Any] = {"reports": m.lifetime_reports or math.inf, "guess_at_most": level.guess_at_most}
    _, reason = choose(m.k, **m.epsilons(), steps=window_steps, calibration=level.calibration, **limits)
    changing = " If values change, name L-OLH in its place." if m.memoized and m.name != "L-OLH" else ""
    return [f"Chosen for you: {reason}.{changing}"]
