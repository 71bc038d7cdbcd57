"""The papers of a data protection officer, filled in: impact assessment, record of processing, notice to participants.

A language file, such as `english.toml`, has the texts, in Markdown. Its first lines explain its form. All numbers are
those of `check_document`. […] in a paper marks what only people know.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from ldpstream.mechanisms.claims.guessing import bound, percent_up
from ldpstream.mechanisms.wording import up
from ldpstream.promises import filling
from ldpstream.promises.check_document import CheckedSurvey, check_document
from ldpstream.promises.filling import Facts
from ldpstream.promises.promise import factor
from ldpstream.promises.second_promise import loss_up
from ldpstream.promises.statements import SHARING, CheckedChance, CheckedLevel, device_loss
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError
from ldpstream.surveys.questions import Attribute
from ldpstream.surveys.survey import KEPT_MS

ENGLISH = Path(__file__).with_name("english.toml")
PAPERS = ("assessment", "record", "notice")
UNKNOWN = "[…]"
MOST_ANSWERS = 12  # with more possible answers, a paper names only some of them
DAY_S = 86_400
TIME = "%Y-%m-%d %H:%M %Z"
UNITS = {"day": DAY_S, "hour": 3_600, "minute": 60, "second": 1}
Language = dict[str, str]  # name of a text -> text


class LanguageError(UserError):
    """A language file cannot be read, or differs from the English file in more than its language."""


def read_language(path: Path = ENGLISH) -> Language:
    """Reads a language file.

    Raises:
        LanguageError: if a key is missing or unknown, or a line has other conditions or placeholders than the English line.
    """
    try:
        language = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, or not TOML
        raise LanguageError(f"{path}: {error}") from None
    english = language if path == ENGLISH else read_language()
    if wrong := [name for name in english | language if name not in english or not isinstance(language.get(name), str)]:
        raise LanguageError(f"{path}: must have the keys of the English file, each with a text; {wrong[0]} differs")
    for name, text in language.items():
        forms = (map(_form, one.splitlines()) for one in (english[name], text))
        for number, (asked, found) in enumerate(zip_longest(*forms, fillvalue="no such line"), 1):
            if asked != found:
                raise LanguageError(f"{path}: {name}, line {number}: must have '{asked}' as in English, got '{found}'")
    return language


def _form(line: str) -> str:
    """The conditions and the placeholders of a line."""
    return " ".join([*filling.split(line)[0], *sorted(found[0] for found in filling.PLACEHOLDER.finditer(line))])


def papers(survey: Survey, language: Language) -> dict[str, str]:
    """Returns the papers by their names, in Markdown."""
    document = check_document(survey)
    kept, served = (_duration(ms // 1000, language) for ms in (survey.kept_ms, KEPT_MS))  # in Kafka, and by `ldpstream serve`
    facts = _of_survey(survey, document, language) | {"kept": kept, "served": served}
    blocks: dict[str, list[str]] = {"level": [], "risk": [], "question": []}
    for own in _of_levels(survey, document, language):
        for part, block in blocks.items():
            every = facts | own | {"full": part == "level"}
            block.append(_fill(language[part], every | {"chances": _fill(language["chances"], every)}))
    facts |= {"levels": "\n\n".join(blocks["level"]), "risks": "\n".join(blocks["risk"])}
    facts["tables"] = "\n\n".join(blocks["question"])
    made = {name: re.sub(r"\n{3,}", "\n\n", _fill(language[name], facts)) for name in PAPERS}
    return {name: f"{text}\n\n<!-- {hashlib.sha256(text.encode()).hexdigest()} -->\n" for name, text in made.items()}


def missing(paper: str, written: str) -> list[str]:
    """Returns the lines of a paper that a file lacks, or has in another order. In the file, any text may be in place of […],
    lines may be wrapped, and other text may stand between them.

    The last line has the digest of the paper, so each change of the survey or of the texts is found.
    """
    found, end, lacking = " ".join(written.split()), 0, []
    for line in (" ".join(line.split()) for line in paper.splitlines()):
        if here := re.compile(".*?".join(map(re.escape, line.split(UNKNOWN)))).search(found, end):
            end = here.end()  # two tables may have the same row: each must be there
        else:
            lacking.append(line)
    return lacking


def _fill(text: str, facts: Facts) -> str:
    return "\n".join(filling.fill(text, facts))


def _of_survey(survey: Survey, document: CheckedSurvey, language: Language) -> Facts:
    day, cohort = -(-DAY_S // survey.step_seconds), survey.cohort
    day_loss = device_loss(survey, lambda m: m.eps_sequence(m.reports_in(day)).value)
    return filling.facts_of(survey) | {
        "title": _plain(survey.title or survey.name), "owner": _plain(survey.owner), "contact": _plain(survey.contact),
        "purpose": _plain(survey.purpose), "questions": _questions(survey), "crowd": survey.crowd,
        "memoized_questions": _questions(survey, True), "fresh_questions": _questions(survey, False),
        "step": _duration(survey.step_seconds, language), "start": f"{document.start:{TIME}}",
        "window": _duration(survey.step_seconds * survey.window_steps, language),
        "ends": language["no_end"] if document.ends is None else f"{document.ends:{TIME}}",
        "span": language["whole_survey" if survey.steps_a_year == survey.n_steps else "year"],
        "cohorts": cohort and _plain(", ".join(cohort.values)), "device_step": _number(up(document.device.eps_1), language),
        "device_day": _number(up(day_loss), language), "shares": any(a.most is None for a in survey.attributes),
    }  # fmt: skip


def _of_levels(survey: Survey, document: CheckedSurvey, language: Language) -> Iterator[Facts]:
    crowds = {(row.attribute, row.level): row for row in document.second_promise if row.span == "life"}
    for asked, attribute in zip(survey.attributes, document.attributes, strict=True):
        for level in attribute.levels:
            own, device, crowd = level.attribute_chances, level.device_chances, crowds.get((attribute.name, level.name))
            chances = {
                "no_report": own.no_report, "one_report": own.one_report, "all": own.for_ever or own.year,
                "any_values": own.year_any_values, "within": own.every_steps, "device": device.for_ever or device.year,
                "device_any_values": device.year_any_values, "device_within": device.every_steps, "shared": level.four_people,
            }  # fmt: skip
            facts: Facts = {name: chance and _right(chance, language) for name, chance in chances.items()}
            yield facts | _losses(level, language) | {
                "question": attribute.name, "level": level.name, "answers": _answers(asked), "mechanism": level.mechanism,
                "every": _duration(level.every_steps * survey.step_seconds, language), "spaced": level.every_steps > 1,
                "lifetime": level.lifetime_reports, "lasting": own.for_ever, "memoized": level.memoized, "set": asked.most,
                "hashes": level.hash_functions if level.hash_functions > 1 else None, "sharing": SHARING,
                "deletions": ", ".join(level.after_deletions),
                "after_deletions": "; ".join(_right(chance, language) for chance in level.after_deletions.values()),
                "in_crowd": crowd and _number(percent_up(crowd.guess_in_crowd).removesuffix(" %"), language),
                "eps_in_crowd": crowd and _number(loss_up(crowd.eps_in_crowd), language),
                "delta": crowd and _number(f"{crowd.delta:.12f}".rstrip("0"), language),
            }  # fmt: skip


def _losses(level: CheckedLevel, language: Language) -> Facts:
    of_any = level.eps_lifetime if level.eps_survey is None else level.eps_survey
    told: Facts = {"eps_any": language["no_limit"] if of_any is None else f"ε = {_number(up(of_any), language)}"}
    for name, eps in (("1", level.eps_1), ("all", level.eps_inf or level.eps_1)):
        sure = percent_up(bound(eps, 2)).removesuffix(" %")
        for fact, number in (("factor", factor(eps)), ("sure", sure), ("eps", up(eps))):
            told[f"{fact}_{name}"] = _number(number, language)
    return told


def _questions(survey: Survey, memoized: bool | None = None) -> str:
    """The questions with a level that has a memo, or has none; the names of these levels too, if the other levels differ."""
    asked = []
    for attribute, mechanisms in zip(survey.attributes, survey.mechanisms, strict=True):
        levels = zip(attribute.levels, mechanisms, strict=True)
        own = [level.name for level, m in levels if memoized is None or m.memoized is memoized]
        names = "" if len(own) == len(mechanisms) else f" ({', '.join(own)})"
        asked += [f"`{attribute.name}`{names}"] if own else []
    return ", ".join(asked)


def _answers(attribute: Attribute) -> str:
    labels = attribute.values or attribute.labels
    return _plain(", ".join(labels if len(labels) <= MOST_ANSWERS else (*labels[:3], "…", labels[-1])))


def _plain(text: str | None) -> str:
    """A text of the survey without Markdown's signs; UNKNOWN for None."""
    return UNKNOWN if text is None else re.sub(r"([\\*_<`\[|])", r"\\\1", text)


def _number(text: str, language: Language) -> str:
    return (f"{float(text):.0f}" if "e+" in text else text).replace(".", language["decimal"])


def _right(chance: CheckedChance, language: Language) -> str:
    """Formats a chance as right guesses of 100."""
    shown = _number(chance.text.removeprefix("at most ").removesuffix(" %"), language)
    return shown if chance.exact else language["at_most"].replace("{}", shown)


def _duration(seconds: int, language: Language) -> str:
    unit, length = next((unit, length) for unit, length in UNITS.items() if seconds % length == 0)
    return f"{seconds // length} {language[unit if seconds == length else f'{unit}s']}"
