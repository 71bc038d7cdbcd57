"""The latest estimates as a plain HTML page, for browsers without JavaScript."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from operator import attrgetter
from urllib.parse import quote, urlencode

from ldpstream.mechanisms.claims.guessing import Chance, percent
from ldpstream.mechanisms.wording import plural
from ldpstream.promises.outlook import Chances, KnownShares, Outlook
from ldpstream.publishing.answers.queries import HistogramQuery, PageQuery, TableQuery
from ldpstream.publishing.answers.responses import ApiResponses, NotAllowed, NotFound
from ldpstream.publishing.answers.schema import Histogram
from ldpstream.publishing.estimates.publication import COHORT_SPANS, spans
from ldpstream.surveys import Attribute, Survey

FEW_ROWS, MANY_ROWS = 10, 1000  # number of values shown: of each of several attributes, and of a single attribute
SPANS = {"window": "sliding window", "step": "one step", "filtered": "filtered curve"}
NUMBERS = {"mean": "mean", "p50": "median", "p90": "90th percentile", "p99": "99th percentile"}
NUMBER = ' class="number"'
BEHIND_RELAY = (
    "These promises hold against everybody. Reports come through a relay: somebody who cannot see the sender of a report "
    "learns less, if at least {crowd:,} honest people report at the same steps. The service counts reports, and cannot tell "
    "which are honest."
)
SAME_CROWD = (
    " At a memoized level, these must be the same people at all steps of the participant. Neither they nor the participant may "
    "change a value or draw a new memo. One step that breaks this ends the lower chance for the reports of all steps. The "
    "service cannot check this."
)
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="/page/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/page.css">
</head>
<body class="plain">
<header><h1>{title}</h1></header>
<main>
"""
FOOT = """</main>
<footer>
<p>Estimates from randomized reports. <a href="./">The live page</a> needs JavaScript. <a href="/openapi.json">API</a></p>
</footer>
</body>
</html>
"""


def with_query(index: str, query: str) -> str:
    return re.sub(r'(?<=["=])table"', lambda _: f'table?{escape(query)}"', index) if query else index


def page_table(survey: Survey, responses: ApiResponses, query: PageQuery) -> tuple[str, int]:
    """Returns the page and its HTTP status.

    Args:
        query: an attribute without the span is shown for the window.

    Raises:
        StoreUnavailable, StoreDamaged: if the store of results does not answer, or is damaged.
    """
    parts, status = [HEAD.format(title=escape(f"{survey.title or survey.name} · ldpstream")), _whose(survey)], 200
    shown = [a for a in survey.attributes if query.attribute in (None, a.name)]
    try:
        if not shown:
            raise NotFound(f"no attribute {query.attribute!r} in this survey")
        for a in shown:
            rows = MANY_ROWS if query.attribute else FEW_ROWS
            asked = HistogramQuery(
                step=query.step, span=query.span if query.span in spans(a) else "window", estimator=query.estimator,
                cohort=query.cohort, top=min(rows, a.k),
            )  # fmt: skip
            h = responses.histogram(a.name, asked)
            outlook = responses.outlook(a.name, h.step, responses.published(a.name, TableQuery(span=h.span, step=h.step)))
            parts.append(_section(survey, a, h, outlook, alone=query.attribute is not None))
    except (NotFound, NotAllowed) as error:
        status = 404 if isinstance(error, NotFound) else 422
        parts.append(f'<section class="card"><p>{escape(str(error))}</p><p><a href="table">All attributes</a></p></section>')
    return "".join([*parts, FOOT]), status


def _whose(survey: Survey) -> str:
    asked = [f"Purpose: {survey.purpose}"] if survey.purpose else []
    asked += [f"Owner: {survey.owner}"] if survey.owner else []
    asked += [f"Contact: {survey.contact}"] if survey.contact else []
    words = [*([survey.description] if survey.description else []), *asked]
    return f'<section class="card">{"".join(f"<p>{escape(text)}</p>" for text in words)}</section>' if words else ""


def _section(survey: Survey, a: Attribute, h: Histogram, outlook: dict[str, Outlook], alone: bool) -> str:
    here = {"attribute": a.name, "step": h.step} | _of(h.cohort)
    query = escape(urlencode({**here, "span": h.span, "estimator": h.estimator}))
    csv = f'<a href="api/v1/attributes/{quote(a.name)}/histogram.csv?{query}">CSV</a>'
    if alone:
        others = [span for span in (spans(a) if h.cohort is None else COHORT_SPANS) if span != h.span]
        links = [f'<a href="table?{escape(urlencode({**here, "span": span}))}">{SPANS[span]}</a>' for span in others]
        links += ['<a href="table">All attributes</a>', csv, *_cohort_links(survey, h)]
    else:
        links = [f'<a href="table?{query}">All values</a>', csv]
    columns = ["Share", "95 % from", "to", *(["Truth"] if h.truth else [])]
    head = '<th scope="col">Value</th>' + "".join(f'<th scope="col"{NUMBER}>{name}</th>' for name in columns)
    rows = "".join(_row(cells) for cells in _rows(h))
    several = "" if a.most is None else f" People choose up to {plural(a.most, 'value')}, so the shares do not sum to 100 %."
    left = several or (
        ""
        if h.others is None
        else f" The other {plural(a.k - len(h.values), 'value has', 'values have')} {_percent(h.others)} together."
    )
    return (
        f'<section class="card"><h2>{escape(a.name)}{_name(survey, h.cohort)}</h2>\n<p>{_about(survey, h)}{left}</p>\n'
        f"{_numbers(h, a.most is not None)}{_privacy(survey, a, outlook)}"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>\n'
        f'<p class="links">{" ".join(links)}</p></section>\n'
    )


def _of(cohort: str | None) -> dict[str, str]:
    return {} if cohort is None else {"cohort": cohort}


def _name(survey: Survey, cohort: str | None) -> str:
    return "" if survey.cohort is None or cohort is None else escape(f", {survey.cohort.name} {cohort}")


def _cohort_links(survey: Survey, h: Histogram) -> list[str]:
    if survey.cohort is None:
        return []
    shown = "step" if h.span == "step" else "window"
    here: dict[str, str | int] = {"attribute": h.attribute, "step": h.step, "span": shown}
    others = [cohort for cohort in (None, *survey.cohort.values) if cohort != h.cohort]
    names = ["All people" if cohort is None else f"{survey.cohort.name} {cohort}" for cohort in others]
    return [
        f'<a href="table?{escape(urlencode({**here, **_of(cohort)}))}">{escape(name)}</a>'
        for cohort, name in zip(others, names, strict=True)
    ]


def _privacy(survey: Survey, a: Attribute, outlook: dict[str, Outlook]) -> str:
    same = SAME_CROWD if any(m.memoized for m in survey.mechanisms[survey.index(a.name)]) else ""
    relayed = "" if survey.crowd is None else f"<p>{BEHIND_RELAY.format(crowd=survey.crowd)}{same}</p>\n"

    def both(name: str) -> str:
        now = max((of.now for of in outlook.values()), key=attrgetter(name))
        year = max((of.year for of in outlook.values()), key=attrgetter(name))
        return f"{_guess(now, name)} now and {_guess(year, name)} in a year"

    blind = escape(percent(1 / survey.mechanisms[survey.index(a.name)][0].guessed))
    weakest = " (weakest level)" if len(outlook) > 1 else ""
    return (
        f"<details><summary><strong>Privacy of {escape(a.name)}:</strong> the chance of a right guess from a whole "
        f"device is {both('guess_device')} if the value stays the same, {both('guess_any_values_device')} if it changes"
        f"{weakest}; {blind} without reports.</summary>{_levels(outlook, blind)}{relayed}</details>\n"
    )


def _levels(outlook: dict[str, Outlook], blind: str) -> str:
    return "".join(
        f"<p>Level {escape(name)}: chance of a right guess of a participant's value from all {plural(of.now.t, 'report')} of "
        f"this attribute so far: {_guess(of.now, 'guess')} if the value never changed, "
        f"{_guess(of.now, 'guess_any_values')} if it may change at every step. In a year: {_guess(of.year, 'guess')}; "
        f"{_guess(of.year, 'guess_any_values')}. From the whole device: "
        f"{_guess(of.now, 'guess_device')}; {_guess(of.now, 'guess_any_values_device')}. In a year: "
        f"{_guess(of.year, 'guess_device')}; {_guess(of.year, 'guess_any_values_device')}. Without reports: "
        f"{blind}.{_known(of.known_shares)}</p>\n"
        for name, of in outlook.items()
    )


def _known(known: KnownShares | None) -> str:
    if known is None:
        return ""
    one, year = (escape(str(Chance(chance, exact=False))) for chance in (known.one_report, known.year))
    return (
        " All these chances are for a guesser who at first considers all values equally likely. If the published shares are "
        f"right, somebody who knows them guesses right with a chance of {percent(known.no_report)} without a report, {one} "
        f"with one report of this attribute, and {year} after a year, if the value never changes."
    )


def _about(survey: Survey, h: Histogram) -> str:
    if h.below_least and survey.cohort is not None:
        return (
            f"{time_text(h.start_ms)} to {time_text(h.end_ms)} (step {h.step}), {SPANS[h.span]}: "
            f"{plural(h.reports, 'report')}, which may come from fewer than {plural(survey.cohort.least, 'person', 'people')}. "
            f"No histogram is published."
            f"{_crowd(h)}"
        )
    if not h.converged and h.reports == 0:
        silence = "nobody reported" if h.complete else "no report counts so far. Incomplete: reports may be missing"
        return f"{time_text(h.start_ms)} to {time_text(h.end_ms)} (step {h.step}): {silence}."
    kept = "" if h.complete else " <strong>Incomplete: reports may be missing.</strong>"
    few = " <strong>Too few reports to tell which values are more frequent.</strong>" if h.too_few else ""
    withheld = "" if h.interval_withheld is None else " The intervals are withheld: this estimate may be biased."
    failed = f" Could not be calculated from these counts: {', '.join(h.diagnostics.failed)}." if h.diagnostics.failed else ""
    width = f" of {plural(survey.window_steps, 'step')}" if h.span == "window" else ""
    return (
        f"{time_text(h.start_ms)} to {time_text(h.end_ms)} "
        f"(step {h.step}), {SPANS[h.span]}{width}, estimator {escape(h.estimator)}: "
        f"{plural(h.reports, 'report')} of at least {plural(h.people_at_least, 'person', 'people')}."
        f"{few}{kept}{withheld}{escape(failed)}{_crowd(h)}"
    )


def _crowd(h: Histogram) -> str:
    if h.crowd is None or h.crowd.reached:
        return ""
    few = ((level not in h.crowd.memoized, n, level) for level, n in h.crowd.reports.items() if 0 < n < h.crowd.assumed)
    fresh, least, level = min(few)
    steps = "" if fresh else " for any report of the people who reported"
    return (
        f" <strong>Level {escape(level)} has {plural(least, 'report')}, fewer than the crowd of {h.crowd.assumed:,}: "
        f"the promise behind the relay is not claimed{steps} in this step.</strong>"
    )


def _numbers(h: Histogram, several: bool) -> str:
    shown = []
    for name, number in h.numbers.items():
        beside = [] if number.low is None else [f"95 %: {_four_digits(number.low)} to {_four_digits(number.high)}"]
        beside += [f"truth {_four_digits(h.true_numbers[name])}"] if name in h.true_numbers else []
        in_brackets = f" ({'; '.join(beside)})" if beside else ""
        shown.append(f"{NUMBERS[name]} {_four_digits(number.value)}{in_brackets}")
    if several:
        means = ", ".join(text.removeprefix(f"{NUMBERS['mean']} ") for text in shown)
        return f"<p>People choose on average {means} values.</p>\n" if shown else ""
    source = "the filter's shares" if h.span == "filtered" else "the default estimate"
    return f"<p>In the attribute's unit, from {source}: {', '.join(shown)}.</p>\n" if shown else ""


def _four_digits(number: float | None) -> str:
    return "–" if number is None else f"{float(f'{number:.4g}'):,.10g}".replace("-", "−")


def _rows(h: Histogram) -> Iterable[list[str]]:
    for i, label in enumerate(h.labels):
        numbers = [h.frequencies[i], h.low[i], h.high[i], *([h.truth[i]] if h.truth else [])]
        yield [escape(label), *map(_percent, numbers)]


def _row(cells: list[str]) -> str:
    return f'<tr><th scope="row">{cells[0]}</th>{"".join(f"<td{NUMBER}>{cell}</td>" for cell in cells[1:])}</tr>\n'


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %".replace("-", "−")


def _guess(chances: Chances, name: str) -> str:
    return escape(str(Chance(getattr(chances, name), exact=name not in chances.bounds)))


def time_text(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
