"""Output of several commands: tables for people, and the same data as JSON for programs."""

import math
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace
from rich.markup import escape
from rich.table import Table

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MIN_EPS, integer, real
from ldpstream.mechanisms.guessing import SAME, percent, percent_up
from ldpstream.mechanisms.ledger.sequence_loss import MAX_T
from ldpstream.mechanisms.solvers import largest_within
from ldpstream.mechanisms.wording import plural, up
from ldpstream.promise import HORIZONS
from ldpstream.surveys import Attribute, Level, Survey
from ldpstream.terminal import number

if TYPE_CHECKING:  # these modules load slowly
    from ldpstream.advice.proposal import Plan, Proposal
    from ldpstream.publishing.frequencies import TrueAnswers
    from ldpstream.publishing.publication import Publication

MOST_ROWS = 20
MAX_BUDGET = 1e9  # in nats


def share(frequency: float) -> str:
    return "–" if math.isnan(frequency) else f"{frequency:.4f}"


def privacy_line(publication: "Publication") -> str:
    parts = [
        f"{level}: ε_t={up(p.eps_t)} (t={p.t}) of ε∞={up(p.eps_inf)}, "
        f"any changes {'' if p.eps_sequence_exact else '≤ '}{up(p.eps_sequence)}"
        + (f", within {p.every_steps} steps {up(p.eps_window)}" if p.every_steps > 1 else "")
        for level, p in publication.privacy.items()
    ]
    return "privacy loss in nats · " + " · ".join(parts)


def numbers_lines(publication: "Publication", several: bool, truth: dict[str, float]) -> list[str]:
    numbers = [
        f"{name} {x.value:.4g}"
        + ("" if x.low is None or x.high is None else f" ({x.low:.4g} … {x.high:.4g})")
        + (f", truth {truth[name]:.4g}" if name in truth else "")
        for name, x in publication.numbers.items()
    ]
    of = "number of values of a person, with 95 % interval" if several else "with 95 % intervals"
    return [f"{of}: {' · '.join(numbers)}"] if numbers else []


def histogram_table(survey: Survey, publication: "Publication", truth: "TrueAnswers | None") -> Table:
    shares, numbers = truth or (None, {})
    attribute = survey.attributes[survey.index(publication.attribute)]
    spans = {
        "step": "step",
        "window": f"window of {plural(publication.panes, 'step')} up to",
        "filtered": "filtered curve at step",
    }
    late = "" if publication.complete else ", incomplete"
    silence = "nobody reported" if publication.complete else "no report counted"
    reports = plural(publication.reports, "report") if publication.reports else silence
    table = Table(
        title=f"{attribute.name} · {spans[publication.span]} {publication.step} · {reports}{late}",
        caption="\n".join([*numbers_lines(publication, attribute.most is not None, numbers), privacy_line(publication)]),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("value")
    names, interval = list(publication.estimators), publication.main
    for name in names:
        table.add_column(name.upper(), justify="right")
    table.add_column(f"95 % interval ({interval.upper()})", justify="right")
    if shares is not None:
        table.add_column("truth", justify="right")
    found = {name: result.estimate() for name, result in publication.estimators.items()}
    low, high = found[interval].interval(0.95)
    order = np.arange(attribute.k)
    if attribute.k > MOST_ROWS:
        order = np.argsort(-found[publication.main].frequencies, kind="stable")[:MOST_ROWS]
    for v in order.tolist():
        row = [escape(attribute.label(v)), *(share(found[name].frequencies[v]) for name in names)]
        row.append("–" if math.isnan(low[v]) else f"{low[v]:.4f} … {high[v]:.4f}")
        if shares is not None:
            row.append(f"{shares[v]:.4f}")
        table.add_row(*row)
    if attribute.k > MOST_ROWS:
        table.add_row(f"… {attribute.k - MOST_ROWS} more")
    return table


def cohort_lines(survey: Survey, publications: "list[Publication]") -> list[str]:
    if survey.cohort is None:
        return []
    parts: dict[str, list[str]] = {attribute.name: [] for attribute in survey.attributes}
    for p in publications:
        if p.cohort is not None:
            below = (
                f" (perhaps fewer than {plural(survey.cohort.least, 'person', 'people')}: no histogram)"
                if p.below_least
                else ""
            )
            parts[p.attribute].append(f"{p.cohort} {p.reports:,}{below}")
    return [f"{name} · reports by {survey.cohort.name}: {' · '.join(found)}" for name, found in parts.items()]


def as_json(survey: Survey, publications: "list[Publication]", truths: "list[TrueAnswers] | None") -> dict[str, Any]:
    estimates = [msgspec.to_builtins(p) for p in publications]
    for i, estimate in enumerate(estimates):
        estimate["values"] = list(survey.attributes[survey.index(estimate["attribute"])].labels)
        if truths is not None:
            estimate["truth"], estimate["true_numbers"] = truths[i].shares, truths[i].numbers
    return {"survey": survey.name, "fingerprint": survey.fingerprint.hex(), "estimates": estimates}


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
        table = Table(title=title, title_justify="left", caption=spaced, caption_justify="left")
        for column in ("t", "same value", "right guess", "largest", "any values", "right guess", "largest"):
            table.add_column(column, justify="right")
        for row in group:
            mark = " " if row["eps_sequence_exact"] else "*"
            table.add_row(
                str(row["t"]), up(row["eps_t"]), *right_and_largest(row, ""),
                up(row["eps_sequence"]) + mark, *right_and_largest(row, "_any_values"),
            )  # fmt: skip
        tables.append(table)
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
    table = Table(
        title=f"largest ε₁ for which {reports} at most {plural(f'{budget:g}', 'nat')}{each}",
        title_justify="left",
        caption="Values: the same, for a value that never changes; any, for all sequences. Loss: of a device, in nats.",
        caption_justify="left",
    )
    for column in ("attribute", "level", "values", "mechanism", "ε∞", "ε₁", "loss"):
        table.add_column(column, justify="right" if column in ("ε∞", "ε₁", "loss") else "left")
    for row in rows:
        numbers = ("none", "–") if row["eps_1"] is None else (number(row["eps_1"]), up(row["loss"]))
        table.add_row(row["attribute"], row["level"], row["values"], row["mechanism"] or "–", number(row["eps_inf"]), *numbers)
    return table


def proposal_table(plan: "Plan", found: "Proposal") -> Table:
    shown = Table(title=f"Columns of {plural(plan.n_people, 'person', 'people')}", title_justify="left")
    for name in ("column", "missing", "in the survey", "mechanism"):
        shown.add_column(name, justify="right" if name == "missing" else "left", no_wrap=name == "column")
    for asked in found.asked:
        shown.add_row(asked.column.name, f"{asked.column.missing.total():,}", asked.domain.words, asked.mechanism.name)
    for column, dropped in plan.dropped:
        shown.add_row(column.name, f"{column.missing.total():,}", f"not: {dropped.why}", "–", style="dim")
    return shown
