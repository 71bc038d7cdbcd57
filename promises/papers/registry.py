"""An entry of the public registry of deployments of differential privacy, in YAML. `check.toml` has the texts.

Schema: github.com/opendp/deployments-registry-data.
"""

import re
from datetime import UTC, datetime

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT
from ldpstream.mechanisms.wording import plural, up
from ldpstream.promises.device_chance import device_chance
from ldpstream.promises.filling import Facts, facts_of, of_check
from ldpstream.promises.label import label, of_100
from ldpstream.promises.promise import TIME, duration
from ldpstream.promises.statements import device_loss
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.questions import Level

UNKNOWN = "[…]"


def registry_entry(survey: Survey, version: str) -> str:
    """Returns the entry as YAML.

    Its ε is the loss of all reports of a device, whatever the answers; or of those of a year, if nothing
    bounds the loss of all.

    Args:
        version: the version of the software.
    """
    year, n = survey.steps_a_year, survey.n_steps
    bounded = n is not None or all(m.lifetime_reports for *_, m in survey.levels)
    steps = n or (MAX_COUNT if bounded else year)
    eps = device_loss(survey, lambda m: m.eps_sequence(m.reports_in(steps)).value)
    levels = [line for level in survey.levels for line in of_check("registry_level", _of_level(survey, *level))]
    told: Facts = {line.name: line.text for line in label(survey, None).lines}
    return "\n".join(of_check("registry", facts_of(survey) | told | {
        "slug": "-".join(re.findall(r"[a-z0-9]+", f"{survey.name} {survey.start.year}".lower())),
        "title": _quoted(survey.title or survey.name), "owner": _quoted(survey.owner or UNKNOWN),
        "purpose": _quoted(survey.purpose or UNKNOWN), "asked": ", ".join(a.name for a in survey.attributes),
        "step": duration(survey.step_seconds), "window": plural(survey.window_steps, "step"), "year": year,
        "published": f"{_utc(survey.closes_ms(0)):%Y-%m-%d}", "ends": n and f"{_utc(survey.opens_ms(n)):{TIME}}",
        "bounded": bounded, "eps": float(up(eps, 6)), "levels": "\n".join(levels), "crowd": survey.crowd, "version": version,
        "mechanisms": ", ".join(sorted({m.name for *_, m in survey.levels})),
    })) + "\n"  # fmt: skip


def _of_level(survey: Survey, i: int, attribute: Attribute, level: Level, m: Mechanism) -> Facts:
    steps = survey.steps_a_year
    return {
        "name": f"{attribute.name}, {level.name}", "mechanism": m.name, "memoized": m.memoized, "eps_1": up(m.eps_1),
        "eps_inf": up(m.eps_inf), "within": plural(m.every_steps, "consecutive step"), "steps": steps,
        "eps_year": up(m.eps_sequence(m.reports_in(steps)).value), "no_report": of_100(1 / m.claims.guessed),
        "one_step": of_100(device_chance(survey, i, m, 1)), "year": of_100(device_chance(survey, i, m, steps)),
    }  # fmt: skip


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _quoted(text: str) -> str:
    """A text as a scalar of YAML."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else rf"\U{ord(c):08x}" for c in text) + '"'
