"""Output of `advise`: tables, reasons, an attribute to paste into a survey, and the data for a picture."""

import math
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from ldpstream.advice.advise import Advice, Candidate, Ranked, document
from ldpstream.advice.combinations import as_single, combination_labels
from ldpstream.advice.methods import DEFAULT
from ldpstream.advice.question import Question
from ldpstream.advice.windows import EVERY_STEPS
from ldpstream.mechanisms.registry import LIKE_VARIANCE
from ldpstream.mechanisms.wording import plural, up
from ldpstream.plots import Curve, Panel
from ldpstream.promises.promise import nats
from ldpstream.publishing.catalogue import INVERSION, find
from ldpstream.terminal import number, table
from ldpstream.toml_text import toml_lines

SHOWN = 15


def candidate_table(advice: Advice) -> Table:
    t = advice.question.horizon
    shown = table(f"Mechanisms by exact variance, {_size(advice)}, n = {advice.question.n:,}", "mechanism",
                  "exact sd", "weight", "bytes", "ε₁", "ε∞", f"ε_{t}", "any values")  # fmt: skip
    for c in advice.candidates:
        losses = map(up, (c.eps_1, c.eps_inf, c.eps_t, c.eps_any))
        weight = "–" if math.isnan(c.weight) else f"{c.weight:.3g}"
        own = number(c.deviation), weight, str(c.report_bytes or "–")
        shown.add_row(c.mechanism, *own, *losses, style="dim" if c.dropped else None)
    dropped = [f"{c.mechanism}, {c.dropped}" for c in advice.candidates if c.dropped]
    if dropped:
        shown.caption = f"not simulated: {'; '.join(dropped)}"
    return shown


def ranking_table(advice: Advice) -> Table:
    """Table of the first 15 simulated combinations, and of all others whose error is not significantly larger than the
    smallest."""
    shown = table(f"By simulated {advice.question.metric}, {plural(advice.repeats, 'repetition')} of {_people(advice)}", "rank",
                  "mechanism", "estimator", "post", advice.question.metric, "± s.e.", "bytes", texts=4)  # fmt: skip
    for i, row in enumerate(advice.ranking):
        if i < SHOWN or row.best:
            spread = "exact" if row.standard_error < 1e-9 * row.error else number(row.standard_error)
            length = str(advice.candidate(row.mechanism).report_bytes)
            shown.add_row(
                f"{i + 1}{'*' if row.best else ''}", row.mechanism, row.estimator, row.post, number(row.error), spread, length,
                style="bold" if row.best else None,
            )  # fmt: skip
    shown.caption = "* the best row, and each row whose paired difference from the best is at most three standard errors"
    return shown


def promise_table(advice: Advice) -> Table:
    shown = table(f"{advice.first.mechanism}, or reports every {EVERY_STEPS} steps, at equal promises", "equal promise",
                  "nats", "spaced", "sd of a step:\nmemo, spaced", f"sd of {EVERY_STEPS} steps:\nmemo, spaced")  # fmt: skip
    for row in advice.promises:
        of_step = f"{row.memoized_step:.2g}, {row.spaced_step:.2g}"
        of_window = f"{row.memoized_window:.2g}, {row.spaced_window:.2g}"
        shown.add_row(row.promise, up(row.loss), f"{row.mechanism}, ε = {row.eps:.3g}", of_step, of_window)
    shown.caption = (
        f"spaced: a one-time mechanism with every_steps = {EVERY_STEPS}, so a step counts one device in {EVERY_STEPS}.\n"
        "sd: exact, for values that do not change. If values change, read the row with any values."
    )
    return shown


def reasons(advice: Advice) -> list[str]:
    first, c = advice.first, advice.candidate(advice.first.mechanism)
    several = [] if advice.question.choices is None else [_why_sets(advice, c)]
    return [_why_mechanism(advice, c), *several, _why_estimate(advice, first), _cost(advice, c), *losses(advice.question, c)]


def _why_sets(advice: Advice, c: Candidate) -> str:
    one, several = advice.combinations, f"choices = {advice.question.choices}"
    if one is None:
        return (
            f"Use {several}: there are too many combinations of values to ask for one of them, "
            "or their texts or reports are too long."
        )
    people = f"{(one.deviation / c.deviation) ** 2:.2g} times the people"
    if advice.combined is None:
        return f"Use {several}: asking for one of the {one.k:,} combinations ({one.mechanism}) needs {people}."
    return (
        f"Ask for one of the {one.k:,} combinations instead ({one.mechanism}): this needs {people} of {several}, and tells "
        "which values people choose together. The share of a value is the sum over its combinations."
    )


def _why_mechanism(advice: Advice, c: Candidate) -> str:
    others = [o for o in advice.candidates if not o.dropped and o is not c]
    ratios = ", ".join(f"{o.mechanism} {o.variance_ratio(c):.3g} times" for o in others)
    dropped: dict[str, list[str]] = {}
    for o in advice.candidates:
        if o.dropped and o.deviation < c.deviation:
            dropped.setdefault(o.dropped, []).append(o.mechanism)
    lost = "".join(f" Smaller variance, but not simulated: {', '.join(names)} ({why})." for why, names in dropped.items())
    if len(advice.candidates) == 1:
        return f"{c.mechanism}: the only mechanism for this question."
    if all(o.deviation >= c.deviation for o in others):
        return (
            f"{c.mechanism}: the smallest exact variance of the simulated mechanisms{f' ({ratios})' if ratios else ''}.{lost}"
        )
    if all(c.variance_ratio(o) <= LIKE_VARIANCE for o in others):
        return f"{c.mechanism}: its exact variance is within 3 % of the smallest ({ratios}).{lost}"
    return f"{c.mechanism}: the smallest simulated error, but not the smallest exact variance ({ratios} as large).{lost}"


def _why_estimate(advice: Advice, first: Ranked) -> str:
    raw = next(r for r in advice.ranking if (r.mechanism, r.estimator, r.post) == (first.mechanism, INVERSION, "none"))
    row = find(first.estimator)
    assert row is not None
    name = row.label + ("" if first.post == "none" else f" with {first.post}")
    if raw is first:
        return f"{name[0].upper()}{name[1:]} without post-processing: no other estimate has a smaller error here."
    if math.isfinite(raw.error):
        gain = f"{first.error / raw.error:.3g} times that" if raw.error else "0, like that"
    else:
        gain = "finite, unlike that"
    if first.estimator == DEFAULT:
        why = "this estimate learns from the counts how the shares are distributed"
    elif advice.rare >= 0.05:
        why = f"{advice.rare:.0%} of the values have shares below the noise, and this estimate moves them towards zero"
    else:
        why = "this estimate assumes that shares are not negative and sum to one"
    return f"{name[0].upper()}{name[1:]}: its {advice.question.metric} is {gain} of the raw inversion; {why}."


def _cost(advice: Advice, c: Candidate) -> str:
    best = [advice.candidate(r.mechanism) for r in advice.ranking if r.best]
    shortest = min(best, key=lambda o: o.report_bytes)
    text = f"A report takes {c.report_bytes} byte{'s' if c.report_bytes > 1 else ''} in an envelope"
    if shortest.report_bytes < c.report_bytes:
        return f"{text}; {shortest.mechanism} is as good and takes {shortest.report_bytes}."
    longest = max((o for o in advice.candidates if o.report_bytes), key=lambda o: o.report_bytes)
    more = f"; {longest.mechanism} would take {longest.report_bytes}" if longest.report_bytes > c.report_bytes else ""
    return f"{text}{more}."


def losses(question: Question, c: Candidate) -> list[str]:
    honest = plural(f"{c.weight:.3g}", "honest person who has", "honest people who have")
    return [_horizon(question, c), f"One false report moves a share as much as {honest} this value."]


def _horizon(question: Question, c: Candidate) -> str:
    t = question.horizon
    lose = plural(t, "report loses", "reports lose")
    if c.eps_inf is None:
        return f"Losses add up: {lose} {nats(c.eps_t)}. For repeated reports give eps_inf (memoized)."
    unchanged = plural(t, "report of an unchanged value loses", "reports of an unchanged value lose")
    half = " (ε₁ was set to a half of ε∞)" if question.eps_1 is None and question.budget is None else ""
    return (
        f"{unchanged} {nats(c.eps_t)}; "
        f"any number of reports loses at most {nats(c.eps_inf)}{half}."
        f" Between any two sequences of values the loss of {plural(t, 'report')} is at most {nats(c.eps_any)}."
    )


def _size(advice: Advice) -> str:
    most = advice.question.choices
    return f"k = {advice.question.k:,}" + ("" if most is None else f", at most {most} of them")


def _people(advice: Advice) -> str:
    n = plural(advice.question.n, "person", "people")
    return f"{n} for each of five shapes" if advice.sample is None else f"{n} like the {advice.sample:,} of the sample"


def stanza(advice: Advice, name: str = "value", labels: Sequence[str] | None = None) -> str:
    """An attribute to paste into a survey; a comment names the estimate to use."""
    domain, m, estimate = advice.question.domain(labels), advice.question.build(advice.first.mechanism), use(advice)
    if (one := advice.combined) is not None:
        m, estimate = as_single(advice.question).build(one.mechanism), f"{INVERSION}, summed over a value's combinations"
        domain = {"values": combination_labels(domain["values"], domain["choices"])}
    asked = document(m, name, domain)
    (level,) = asked.pop("level")
    keys = "[[attribute]]", *toml_lines(asked), "[[attribute.level]]", *toml_lines(level)
    return "\n".join([f"# use this published estimate: {estimate}", *keys])


def use(advice: Advice) -> str:
    name, post = advice.first.estimator, advice.first.post
    return name if post == "none" else f"{name}; in the API, estimator={name}&post={post}"


def picture(advice: Advice) -> list[Panel]:
    """Two panels: the simulated errors that are finite, and the losses of up to `horizon` reports of an unchanged value."""
    finite = [row for row in advice.ranking if math.isfinite(row.error)]
    names = list(dict.fromkeys(row.mechanism for row in advice.ranking))
    estimates = list(dict.fromkeys(_estimate(row) for row in finite))
    errors = []
    for name in names:
        own = {estimates.index(_estimate(row)): row for row in finite if row.mechanism == name}
        rows = [own[x] for x in sorted(own)]
        errors.append(Curve(name, sorted(own), [r.error for r in rows], [2 * r.standard_error for r in rows]))
    times = np.unique(np.geomspace(1, advice.question.horizon, 30).astype(np.int64)).tolist()
    built = [advice.question.build(name) for name in names]
    losses = [Curve(m.name, times, [m.eps_t(t) for t in times]) for m in built]
    metric = f"{advice.question.metric} ± 2 standard errors"
    bounded = advice.question.eps_inf is not None
    return [
        Panel("simulated error", "estimator, post-processing", metric, errors, log_y=True, names=estimates),
        Panel("loss of an unchanged value", "reports t", "ε_t in nats", losses, log_x=True, log_y=not bounded),
    ]  # fmt: skip


def title(advice: Advice) -> str:
    first = advice.first
    return f"{_size(advice)}, {_people(advice)}: {first.mechanism}, {_estimate(first)}"


def _estimate(row: Ranked) -> str:
    return row.estimator if row.post == "none" else f"{row.estimator} {row.post}"
