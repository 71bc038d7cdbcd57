"""Output of several commands: tables for people, and the same data as JSON for programs."""

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from rich.markup import escape
from rich.table import Table

from ldpstream.mechanisms.wording import plural
from ldpstream.output.terminal import table
from ldpstream.surveys import Survey

if TYPE_CHECKING:  # these modules load slowly
    from ldpstream.planning.proposal import Proposal
    from ldpstream.publishing.estimates.frequencies import TrueAnswers
    from ldpstream.publishing.estimates.publication import Publication

MOST_ROWS = 20


def share(frequency: float) -> str:
    return "–" if math.isnan(frequency) else f"{100 * frequency:.1f} %"


def numbers_lines(publication: "Publication", several: bool, truth: dict[str, float]) -> list[str]:
    of = "number of values of a person, " if several else ""
    return [
        f"{of}{name} {x.value:.4g}"
        + ("" if x.low is None or x.high is None else f" ({x.low:.4g} … {x.high:.4g})")
        + (f", truth {truth[name]:.4g}" if name in truth else "")
        for name, x in publication.numbers.items()
    ]


def histogram_table(survey: Survey, publication: "Publication", truth: "TrueAnswers | None") -> Table:
    """Returns the default estimate of a window, with the true shares if they are known."""
    shares, numbers = truth or (None, {})
    attribute = survey.attributes[survey.index(publication.attribute)]
    first, last = max(0, publication.step - survey.window_steps + 1), publication.step
    steps = f"steps {first} to {last}" if first < last else f"step {last}"
    late = "" if publication.complete else ", incomplete"
    silence = "nobody reported" if publication.complete else "no report counted"
    reports = plural(publication.reports, "report") if publication.reports else silence
    heads = ("value", "estimate", "95 % interval", *(["truth"] if shares is not None else []))
    caption = "\n".join(numbers_lines(publication, attribute.most is not None, numbers))
    shown = table(f"{attribute.name} · {steps} · {reports}{late}", *heads, caption=caption)
    found = publication.estimators[publication.main].estimate()
    low, high = found.interval(0.95)
    order = np.arange(attribute.k)
    if attribute.k > MOST_ROWS:
        order = np.argsort(-found.frequencies, kind="stable")[:MOST_ROWS]
    for v in order.tolist():
        interval = "–" if math.isnan(low[v]) else f"{share(low[v])[:-2]} … {share(high[v])}"
        truths = [share(shares[v])] if shares is not None else []
        shown.add_row(escape(attribute.label(v)), share(found.frequencies[v]), interval, *truths)
    if attribute.k > MOST_ROWS:
        shown.add_row(f"… {attribute.k - MOST_ROWS} more")
    return shown


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


def as_json(survey: Survey, publications: "list[Publication]", truths: "list[TrueAnswers]") -> dict[str, Any]:
    estimates = [msgspec.to_builtins(p) for p in publications]
    for estimate, truth in zip(estimates, truths, strict=True):
        estimate["values"] = list(survey.attributes[survey.index(estimate["attribute"])].labels)
        estimate["truth"], estimate["true_numbers"] = truth.shares, truth.numbers
    return {"survey": survey.name, "fingerprint": survey.fingerprint.hex(), "estimates": estimates}


def proposal_table(found: "Proposal") -> Table:
    shown = Table(title=f"Columns of {plural(found.n_people, 'person', 'people')}", title_justify="left")
    for name in ("column", "missing", "in the survey", "mechanism"):
        shown.add_column(name, justify="right" if name == "missing" else "left", overflow="fold")
    for asked in found.asked:
        shown.add_row(asked.column.name, f"{asked.column.missing.total():,}", asked.domain.words, asked.mechanism.name)
    for column, dropped in found.dropped:
        shown.add_row(column.name, f"{column.missing.total():,}", f"not: {dropped.why}", "–", style="dim")
    return shown
