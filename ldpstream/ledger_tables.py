"""The tables of `ledger`: losses and chances of t reports, the largest ε₁ within a budget, and both promises."""

import math
from collections.abc import Callable
from itertools import groupby
from typing import Any

from msgspec.structs import replace
from rich.table import Table

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MIN_EPS, integer, real
from ldpstream.mechanisms.guessing import SAME, Chance, percent, percent_up
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T
from ldpstream.mechanisms.solvers import largest_within
from ldpstream.mechanisms.wording import plural, up
from ldpstream.promises.crowds import SecondPromise
from ldpstream.promises.second_promise import loss_up
from ldpstream.surveys import Attribute, Level, Survey
from ldpstream.terminal import number, table

HORIZONS = (1, 2, 3, 5, 10, 20, 50, 100, 1000)
MAX_BUDGET = 1e9  # in nats


def ledger_rows(survey: Survey) -> list[dict[str, Any]]:
    """Returns the privacy ledger: one row per attribute, level and horizon t.

    The last horizon is the largest number of reports of a device, if there is a limit.
    """
    rows = []
    for attribute, mechanisms in zip(survey.attributes, survey.mechanisms, strict=True):
        for level, m in zip(attribute.levels, mechanisms, strict=True):
            limit = survey.most_reports(m)
            for t in sorted({min(t, limit or t) for t in HORIZONS} | ({limit} if limit else set())):
                sequence = m.eps_sequence(t)
                chances = {
                    "guess": m.guess(t), "guess_any_values": m.guess_any_values(t),
                    "largest_chance": m.largest_chance(t), "largest_chance_any_values": m.largest_chance_any_values(t),
                }  # fmt: skip
                rows.append({
                    "attribute": attribute.name, "level": level.name, "mechanism": m.signature, "t": t, "eps_t": m.eps_t(t),
                    "eps_inf": m.eps_inf, "eps_sequence": sequence.value, "eps_sequence_exact": sequence.exact,
                    "every_steps": m.every_steps, "eps_window": m.eps_window, "eps_lifetime": m.eps_lifetime,
                    **{name: float(chance) for name, chance in chances.items()},
                    **{f"{name}_exact": chance.exact for name, chance in chances.items()},
                })  # fmt: skip
    return rows


def right_and_largest(row: dict[str, Any], values: str) -> tuple[str, str]:
    right, largest = row[f"guess{values}"], row[f"largest_chance{values}"]
    exact, largest_exact = row[f"guess{values}_exact"], row[f"largest_chance{values}_exact"]
    same = not exact and math.isclose(right, largest, rel_tol=SAME)
    of_largest = percent_up if same or not largest_exact else percent
    return (
        percent(right) if exact else f"≤ {percent_up(right)}",
        f"{'' if largest_exact else '≤ '}{of_largest(largest)}",
    )


def ledger_tables(rows: list[dict[str, Any]]) -> list[Table]:
    tables = []
    for _, of_level in groupby(rows, key=lambda row: (row["attribute"], row["level"])):
        group = list(of_level)
        first = group[0]
        title = f"{first['attribute']} · {first['level']} · {first['mechanism']}"
        w, spaced = first["every_steps"], None
        if w > 1 or math.isfinite(first["eps_lifetime"]):
            spaced = f"ε_window {up(first['eps_window'])} within {w} step{'s' if w > 1 else ''}, "
            spaced += f"ε_lifetime {up(first['eps_lifetime'])}"
        columns = ("t", "same value", "right guess", "largest", "any values", "right guess", "largest")
        shown = table(title, *columns, texts=0, caption=spaced)
        for row in group:
            mark = " " if row["eps_sequence_exact"] else "*"
            shown.add_row(
                str(row["t"]), up(row["eps_t"]), *right_and_largest(row, ""),
                up(row["eps_sequence"]) + mark, *right_and_largest(row, "_any_values"),
            )  # fmt: skip
        tables.append(shown)
    return tables


def solved_rows(survey: Survey, horizon: int, budget: float) -> list[dict[str, Any]]:
    """Finds the largest ε₁ of every attribute and level within a device's budget, rounded to four digits for a survey file.

    Args:
        horizon: number of reports t.
        budget: limit of the loss of a device's t reports, in nats, at least 1e-9.

    Returns:
        If `values` is "the same", the loss is ε_t; if `values` is "any", the loss is eps_sequence. `eps_1` is None if even ε₁ =
        10⁻⁶ exceeds the budget.

    Raises:
        ValueError: if an argument is out of range.
    """
    integer("horizon", horizon, 1, MAX_T)
    share = real("budget", budget, MIN_EPS, MAX_BUDGET) / survey.share
    losses: dict[str, Callable[[Mechanism], float]] = {
        "the same": lambda m: m.eps_t(min(horizon, m.lifetime_reports or horizon)),
        "any": lambda m: m.eps_sequence(min(horizon, m.lifetime_reports or horizon)).value,
    }
    rows = []
    for attribute in survey.attributes:
        for level in attribute.levels:
            changed = "eps" if level.eps_1 is None else "eps_1"

            def build(eps: float, attribute: Attribute = attribute, level: Level = level, changed: str = changed) -> Mechanism:
                return attribute.build(replace(level, **{changed: eps}), survey.share)

            for values, loss in losses.items():
                found = largest_within(build, loss, share)
                rows.append({
                    "attribute": attribute.name, "level": level.name, "values": values, "eps_inf": level.eps_inf,
                    "mechanism": found and found[1].name, "eps_1": found and found[0],
                    "loss": found and loss(found[1]) * survey.share,
                })  # fmt: skip
    return rows


def solved_table(survey: Survey, horizon: int, budget: float, rows: list[dict[str, Any]]) -> Table:
    each = f", {budget / survey.share:.4g} for each of {survey.share} attributes" if survey.share > 1 else ""
    reports = plural(horizon, "report of a device costs", "reports of a device cost")
    shown = table(
        f"largest ε₁ for which {reports} at most {plural(f'{budget:g}', 'nat')}{each}",
        "attribute", "level", "values", "mechanism", "ε∞", "ε₁", "loss", texts=4,
        caption="Values: the same, for a value that never changes; any, for all sequences. Loss: of a device, in nats.",
    )  # fmt: skip
    for row in rows:
        numbers = ("none", "–") if row["eps_1"] is None else (number(row["eps_1"]), up(row["loss"]))
        shown.add_row(row["attribute"], row["level"], row["values"], row["mechanism"] or "–", number(row["eps_inf"]), *numbers)
    return shown


def second_promise_table(people: int | None, rows: list[SecondPromise]) -> Table:
    columns = ("crowd", "loss,\nall", "loss,\ncrowd", "guess,\nall", "guess,\ncrowd")
    shown = table("Two promises" + ("" if people is None else f", {people:,} people"), "attribute, level", "reports", *columns)
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
