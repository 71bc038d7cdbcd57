"""The label as an SVG picture, for documents and other pages."""

import textwrap
from html import escape

from ldpstream.promises.label import Label

WIDTH, LEFT, RIGHT = 660, 20, 180  # of the picture, of the headings and of the texts, in pixels
LETTERS, LINE_PX, GAP_PX = 62, 18, 8  # letters in a line of text; its height; the space between two lines of the label
BAR_LEFT, BAR_PX, BAR_END = 430, 100, 538
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1b1f24 } .heading { font-weight: 600 } .title { font-size: 17px }
.card { fill: #fff; stroke: #8a939e } .rule { stroke: #d5dae0 } .track { fill: #e3e7ec } .bar { fill: #3f6fb5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e8eaed } .card { fill: #16191d; stroke: #6b7480 } .rule { stroke: #343a42 } .track { fill: #2d333b }
  .bar { fill: #7fa8e6 }
}
"""


def picture(label: Label) -> str:
    """Returns the label as the text of an SVG file, light or dark as the reader prefers."""
    title = f"Privacy of {label.title}"
    drawn, y = list[str](), 14
    y = _write(drawn, title, LEFT, y, "heading title", 72, 22) + GAP_PX
    for line in label.lines:
        drawn.append(f'<path class="rule" d="M{LEFT} {y}H{WIDTH - LEFT}"/>')
        y += GAP_PX
        _write(drawn, line.heading, LEFT, y, "heading", LETTERS)
        y = _write(drawn, line.text, RIGHT, y, "", LETTERS) + GAP_PX
        if line.name == "how_strong":
            y = _bars(drawn, label, y) + GAP_PX
    described = escape(" ".join(f"{line.heading}: {line.text}" for line in label.lines))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img">\n'
        f"<title>{escape(title)}</title>\n<desc>{described}</desc>\n<style>{STYLE}</style>\n"
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{y - 1}" rx="6"/>\n'
    )
    return head + "\n".join(drawn) + "\n</svg>\n"


def _write(drawn: list[str], text: str, x: int, y: int, kind: str, letters: int, height: int = LINE_PX) -> int:
    """Draws a text from y on, and returns its lower end."""
    for part in textwrap.wrap(text, letters):
        y += height
        drawn.append(f'<text class="{kind}" x="{x}" y="{y - 5}">{escape(part)}</text>')
    return y


def _bars(drawn: list[str], label: Label, y: int) -> int:
    for chance in label.chances:
        drawn.append(f'<rect class="track" x="{BAR_LEFT}" y="{y + 5}" width="{BAR_PX}" height="10"/>')
        drawn.append(f'<rect class="bar" x="{BAR_LEFT}" y="{y + 5}" width="{BAR_PX * chance.chance:.1f}" height="10"/>')
        _write(drawn, chance.heading, RIGHT, y, "", LETTERS)
        y = _write(drawn, chance.text, BAR_END, y, "", LETTERS)
    return y
