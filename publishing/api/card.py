"""An attribute of the overview as an SVG picture, which other pages can embed."""

from html import escape

from ldpstream.promises.label_picture import framed
from ldpstream.publishing.answers.schema import AttributeOverview, Overview
from ldpstream.publishing.answers.sentences import percent, points

LEFT, ROW_PX, TOP = 20, 24, 64  # margin, a row, and the first row, in pixels
BAR_LEFT, BAR_PX, SHARE_LEFT, CHANGE_LEFT = 190, 120, 325, 480
LETTERS, LONGEST = 22, 80  # of a label, and of a line


def card(overview: Overview, one: AttributeOverview) -> str:
    """Returns the card of an attribute as the text of an SVG file, light or dark as the reader prefers."""
    lead = f"{overview.sentences[0].lead}, at least {one.people_at_least:,} people"
    height = TOP + ROW_PX * max(len(one.values), 1) + 14
    drawn = [f'<text class="heading title" x="{LEFT}" y="30">{escape(one.attribute)}</text>', _text(LEFT, 50, lead)]
    if one.too_few or all(share is None for share in one.frequencies):
        drawn.append(_text(LEFT, TOP + 14, "Too few reports to tell these values apart." if one.reports else "No reports."))
    else:
        drawn += [part for i in range(len(one.values)) for part in _row(one, i, TOP + ROW_PX * i)]
    return framed(one.attribute, lead, height, drawn)


def _row(one: AttributeOverview, i: int, y: int) -> list[str]:
    share, low, high = one.frequencies[i], one.low[i], one.high[i]
    drawn = [_text(LEFT, y + 14, one.labels[i], most=LETTERS), _bar("track", y, 1), _bar("bar", y, share or 0)]
    if share is None or low is None or high is None:
        return drawn
    begin, end = (BAR_LEFT + BAR_PX * min(max(x, 0), 1) for x in (low, high))
    drawn.append(f'<path class="whisker" stroke-width="2" d="M{begin:.1f} {y + 9}H{end:.1f}"/>')
    drawn.append(_text(SHARE_LEFT, y + 14, percent(share, low, high)))
    change, least, most = one.differences[i], one.difference_low[i], one.difference_high[i]
    if change is not None and least is not None and most is not None:
        drawn.append(_text(CHANGE_LEFT, y + 14, points(change, least, most), "heading" if one.clear[i] else ""))
    return drawn


def _bar(kind: str, y: int, share: float) -> str:
    return f'<rect class="{kind}" x="{BAR_LEFT}" y="{y + 4}" width="{BAR_PX * min(max(share, 0), 1):.1f}" height="10"/>'


def _text(x: int, y: int, text: str, kind: str = "", most: int = LONGEST) -> str:
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(shown)}</text>'
