"""The tables of `check --people`: the forecast of accuracy, and both promises."""

from rich.table import Table

from ldpstream.mechanisms.claims.guessing import Chance, percent_up
from ldpstream.mechanisms.wording import plural, up
from ldpstream.output.terminal import table
from ldpstream.planning.forecast import Forecast
from ldpstream.promises.crowds import SecondPromise
from ldpstream.promises.filling import of_check
from ldpstream.promises.second_promise import loss_up
from ldpstream.surveys import Survey


def people_lines(survey: Survey, people: int, rows: list[Forecast]) -> list[str]:
    d = len(survey.attributes)
    spaced = [
        f"{row.attribute}, {row.level}: a device reports once in {row.every_steps} steps, so a step has about "
        f"{plural(round(row.reports), 'report')}."
        for row in rows
        if row.every_steps > 1
    ]
    return of_check("people", {
        "people": plural(people, "person", "people"), "split": survey.collection == "smp" and d > 1, "d": d,
        "each": plural(round(rows[0].people), "answers", "answer"), "all": "the attribute" if d == 1 else "all attributes",
        "spaced": "\n".join(spaced), "choice": len(rows) > d,
        "limited": any(m.lifetime_reports for mechanisms in survey.mechanisms for m in mechanisms),
    })  # fmt: skip


def forecast_table(survey: Survey, rows: list[Forecast], width: float) -> Table:
    names = {"step": "step", "window": plural(survey.window_steps, "step")}
    shown = Table("attribute, level")
    for column in ("share", "of a", "±", f"people for\n± {points(width)}"):
        shown.add_column(column, justify="right", overflow="fold")
    for row in rows:
        for i, (span, found) in enumerate(row.spans.items()):
            first = (f"{row.attribute}, {row.level}", points(row.share)) if i == 0 else ("", "")
            shown.add_row(*first, names[span], points(found.half_width), f"{found.people:,}")
        shown.add_section()
    return shown


def points(share: float) -> str:
    """Formats a share in per cent with two digits; "> 100 %" above 1."""
    return "> 100 %" if share > 1 else f"{float(f'{100 * share:.2g}'):g} %"


def second_promise_table(people: int, rows: list[SecondPromise]) -> Table:
    columns = ("crowd", "loss,\nall", "loss,\ncrowd", "guess,\nall", "guess,\ncrowd")
    shown = table(f"Two promises, {people:,} people", "attribute, level", "reports", *columns)
    for row in rows:
        reports = "one" if row.span == "report" else f"{row.span}: {'one memo' if row.reports is None else f'{row.reports:,}'}"
        known = Chance(row.guess_everybody, exact=row.guess_everybody_exact)
        shown.add_row(
            f"{row.attribute}, {row.level}" if row.span == "report" else "", reports,
            f"{row.crowd:,}", up(row.eps_everybody), f"≤ {loss_up(row.eps_in_crowd)}",
            str(known).replace("at most", "≤"), f"≤ {percent_up(row.guess_in_crowd)}",
            end_section=row.span == "life",
        )  # fmt: skip
    return shown
