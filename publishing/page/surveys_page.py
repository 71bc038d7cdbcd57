"""The start page of a process with several surveys: one row for each survey. The page works without scripts."""

from datetime import UTC, datetime
from html import escape
from urllib.parse import quote

from ldpstream.mechanisms.wording import plural, up
from ldpstream.publishing.answers.summaries import Alert, Surveys, SurveySummary

COLUMNS = (
    "Survey",
    "Latest step ended",
    "Reports",
    "People, at least",
    "Loss, value unchanged",
    "Loss, any values",
    "Warnings",
)
TEXTS = {
    "late": "the next estimate is overdue",
    "silent": "no report of the latest step has been counted",
    "fit": "the counts do not fit the mechanism",
    "incomplete": "reports may be missing",
    "levels": "the levels differ",
    "jump": "a share jumped",
    "other": "a value that is not listed may spread",
    "drift": "a share moved in the latest step",
}
MOST_ALERTS = 3  # warnings shown of one survey
NUMBER = ' class="number"'
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
<p id="lost" role="status"></p>
<p>Estimates from randomized reports. <a href="/openapi.json">API</a></p>
</footer>
<script src="/page/surveys.js" type="module"></script>
</body>
</html>
"""


def surveys_page(found: Surveys) -> str:
    """Returns the page."""
    warned = sum(bool(survey.alerts) for survey in found.surveys)
    n = len(found.surveys)
    about = f"{plural(n, 'survey')}, {warned} with warnings."
    head = "".join(f'<th scope="col"{NUMBER if 2 <= i <= 5 else ""}>{name}</th>' for i, name in enumerate(COLUMNS))
    rows = "".join(map(_row, found.surveys))
    return (
        f'{HEAD.format(title="Surveys · ldpstream")}<section class="card" id="surveys"><p>{about} Reports and people are those '
        "of the latest window, over all attributes. The loss is the largest of an attribute and level so far, in nats.</p>\n"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Surveys"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div></section>\n{FOOT}"
    )


def _row(survey: SurveySummary) -> str:
    link = f'<a href="/surveys/{quote(survey.name)}/">{escape(survey.title or survey.name)}</a>'
    if survey.title is not None:
        link += f' <span class="name">{escape(survey.name)}</span>'
    if survey.end_ms is None:
        when, numbers = "no estimate yet", ["", "", "", ""]
    else:
        ended = datetime.fromtimestamp(survey.end_ms / 1000, UTC)
        when = f'{ended:%Y-%m-%d %H:%M:%S} UTC <span class="name">step {survey.latest_step}</span>'
        losses = [up(loss, 3) for loss in (survey.eps_t, survey.eps_sequence)]
        numbers = [f"{survey.reports:,}", f"{survey.people_at_least:,}", *losses]
    cells = "".join(f"<td{NUMBER}>{number}</td>" for number in numbers)
    return f'<tr><th scope="row">{link}</th><td>{when}</td>{cells}<td>{_alerts(survey.alerts)}</td></tr>\n'


def _alerts(alerts: list[Alert]) -> str:
    shown = [f"{'' if alert.attribute is None else f'{escape(alert.attribute)}: '}{TEXTS[alert.kind]}" for alert in alerts]
    more = [f"{len(shown) - MOST_ALERTS} more"] if len(shown) > MOST_ALERTS else []
    return "".join(f'<span class="warning">{text}</span>' for text in [*shown[:MOST_ALERTS], *more])
