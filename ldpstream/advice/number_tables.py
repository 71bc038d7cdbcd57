"""Output of `advise` for numbers: a table, the reasons, and an attribute to paste into a survey."""

from typing import Any

import msgspec
from rich.table import Table

from ldpstream.advice.advice_tables import losses
from ldpstream.advice.advise import SURVEY, document
from ldpstream.advice.numbers import TARGETS, Binned, NumberAdvice
from ldpstream.forecast import forecast
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import parse_survey
from ldpstream.terminal import number, table
from ldpstream.toml_text import toml_lines


def ranking_table(advice: NumberAdvice) -> Table:
    n = plural(advice.question.n, "person", "people")
    whom = f"{n} for each of five shapes" if advice.sample is None else f"{n} like the {advice.sample:,} of the sample"
    shown = table(f"By simulated error of the {advice.target}, {plural(advice.repeats, 'repetition')} of {whom}", "rank",
                  "mechanism", "bins", "exact sd\nof the mean", *(f"error of the\n{of}" for of in TARGETS), "± s.e.",
                  "bytes", texts=2)  # fmt: skip
    for i, row in enumerate(advice.ranking, 1):
        errors = (number(row.errors[of]) for of in TARGETS)
        shown.add_row(
            f"{i}{'*' if row.best else ''}", row.candidate.mechanism, str(row.bins), number(row.candidate.deviation), *errors,
            number(row.standard_errors[advice.target]), str(row.candidate.report_bytes), style="bold" if row.best else None,
        )  # fmt: skip
    shown.caption = (
        "* the best row, and each row whose paired difference from the best is at most three standard errors.\n"
        "Errors: of the default estimate; percentiles: median, 90th, 99th; histogram: Wasserstein distance."
    )
    return shown


def reasons(advice: NumberAdvice) -> list[str]:
    first, target = advice.first, advice.target
    others = [row for row in advice.ranking if row.candidate.mechanism != first.candidate.mechanism]
    why = f"{first.candidate.mechanism} with {first.bins} bins: the smallest simulated error of the {target}"
    if others:
        ratio = others[0].errors[target] / first.errors[target]
        why += f" ({others[0].candidate.mechanism} with {others[0].bins} bins: {ratio:.3g} times the error)"
    survey = parse_survey(SURVEY | {"attribute": [_document(advice, first, "value")]})
    [row] = forecast(survey, advice.question.n)
    half = row.means["step"].half_width
    return [
        f"{why}.",
        f"`check --people {advice.question.n}` prints ± {half:.3g} for the unbiased mean in one step, for equal shares.",
        *losses(advice.question, first.candidate),
    ]


def stanza(advice: NumberAdvice, name: str = "value") -> str:
    asked = _document(advice, advice.first, name)
    (level,) = asked.pop("level")
    return "\n".join(["[[attribute]]", *toml_lines(asked), "[[attribute.level]]", *toml_lines(level)])


def _document(advice: NumberAdvice, row: Binned, name: str) -> dict[str, Any]:
    question = msgspec.structs.replace(advice.question, k=row.bins)
    edges = [int(edge) if edge == int(edge) else edge for edge in row.edges]
    return document(question.build(row.candidate.mechanism), name, {"bins": edges})
