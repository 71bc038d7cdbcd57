"""The label as an SVG picture, for documents and other pages. `check.toml` has its colours and its frame."""

import textwrap
from collections.abc import Sequence
from html import escape

from ldpstream.promises.filling import of_check
from ldpstream.promises.label import Label

LETTERS, LINE_PX, GAP_PX = 62, 18, 8  # letters in a line of text; its height; the space between two lines of the label


def picture(label: Label) -> str:
    """Returns the label as the text of an SVG file, light or dark as the reader prefers."""
    drawn, title = list[str](), f"Privacy of {label.title}"

    def write(text: str, x: int, y: int, kind: str = "", height: int = LINE_PX) -> int:
        """Draws a text from y on, and returns its lower end."""
        for part in textwrap.wrap(text, LETTERS):
            y += height
            drawn.append(f'<text class="{kind}" x="{x}" y="{y - 5}">{escape(part)}</text>')
        return y

    y = write(title, 20, 14, "heading title", 22) + GAP_PX
    for line in label.lines:
        drawn.append(f'<path class="rule" d="M20 {y}H640"/>')
        write(line.heading, 20, y + GAP_PX, "heading")
        y = write(line.text, 180, y + GAP_PX) + GAP_PX
        for chance in label.chances if line.name == "how_strong" else ():
            for kind, width in (("track", 1.0), ("bar", chance.chance)):
                drawn.append(f'<rect class="{kind}" x="430" y="{y + 5}" width="{100 * width:.1f}" height="10"/>')
            write(chance.heading, 180, y)
            y = write(chance.text, 538, y)
        y += GAP_PX if line.name == "how_strong" else 0
    return framed(title, " ".join(f"{line.heading}: {line.text}" for line in label.lines), y, drawn)


def framed(title: str, described: str, height: int, drawn: Sequence[str]) -> str:
    """Returns elements in a frame 660 pixels wide, as an SVG file with a title and a description."""
    facts = {"title": escape(title), "described": escape(described), "height": height, "inner": height - 1}
    return "\n".join(of_check("svg", facts | {"drawn": "\n".join(drawn)})) + "\n"
