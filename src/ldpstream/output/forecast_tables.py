"""The tables of `check --people`: the forecast of accuracy, and both promises."""

from rich.table import Table

from ldpstream.estimators.filter.changes import RUN_LENGTH
from ldpstream.mechanisms.claims.guessing import Chance, percent_up
from ldpstream.mechanisms.wording import plural, up
from ldpstream.output.terminal import table
from ldpstream.planning.forecast import FILTER_STEPS, Forecast
from ldpstream.promises.crowds import SecondPromise
from ldpstream.promises.second_promise import loss_up
from ldpstream.surveys import Survey

LEGEND = (
    "±: half of a 95 % interval for the share in the second column, of the unbiased estimate mi, or of the filter in its rows. "
    "The default estimate is usually better.",
    "least share: its interval lies above 0 in 9 of 10 cases. If nobody has the value, it does in 1 of 40.",
    f"least jump: the filter finds it within five steps in about 9 of 10 cases, with a false alarm in {RUN_LENGTH:,.0f} steps.",
    f"filter: after {FILTER_STEPS} steps with constant shares. All numbers assume that people's values do not change.",
)
LIFETIME = "Levels with `lifetime_reports`: step and filter assume that no device has sent its last report yet."


def people_lines(survey: Survey, people: int, rows: list[Forecast]) -> list[str]:
    d = len(survey.attributes)
    split = f"a device answers one of {d} attributes, so about {plural(round(rows[0].people), 'answers', 'answer')} each"
    answer = split if survey.collection == "smp" and d > 1 else f"all answer {'the attribute' if d == 1 else 'all attributes'}"
    lines = [f"Accuracy with {plural(people, 'person', 'people')}: {answer}."]
    for row in rows:
        if row.every_steps > 1:
            often = f"a device reports once in {row.every_steps} steps"
            lines.append(f"{row.attribute}, {row.level}: {often}, so a step has about {plural(round(row.reports), 'report')}.")
    if any(m.lifetime_reports for mechanisms in survey.mechanisms for m in mechanisms):
        lines.append(LIFETIME)
    if len(rows) > d:
        lines.append("If an attribute has several levels, each row assumes that all its people choose this level.")
    return lines


def forecast_table(survey: Survey, rows: list[Forecast], width: float) -> Table:
    names = {"step": "step", "window": plural(survey.window_steps, "step"), "filter": "filter"}
    shown = Table("attribute, level")
    for column in ("share", "of a", "±", "least\nshare", "least\njump", f"people for\n± {points(width)}"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        for i, (span, found) in enumerate(row.spans.items()):
            first = (f"{row.attribute}, {row.level}", points(row.share)) if i == 0 else ("", "")
            jump = points(row.least_jump) if span == "filter" else ""
            shown.add_row(*first, names[span], points(found.half_width), points(found.least_share), jump, f"{found.people:,}")
        shown.add_section()
    return shown


def mean_lines(survey: Survey, rows: list[Forecast], width: float) -> list[str]:
    window = plural(survey.window_steps, "step")
    lines = [
        f"{row.attribute}, {row.level}: the unbiased mean has ± {step.half_width:.3g} in one step, ± {whole.half_width:.3g} in "
        f"{window}. ± {step.wished:.3g} ({points(width)} of the range) needs {step.people:,} people in one step, "
        f"{whole.people:,} in {window}."
        for row in rows
        if row.means
        for step, whole in [(row.means["step"], row.means["window"])]
    ]
    return (
        [
            *lines,
            "± of a mean: half of a 95 % interval of numbers in the middles of their bins, if all values are equally frequent.",
        ]
        if lines
        else []
    )


def points(share: float | None) -> str:
    """Formats a share in per cent with two digits: a dash for None, "> 100 %" above 1."""
    if share is None:
        return "–"
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
