"""The programs of docs/howto/your_language.md, each in a frame that gives it the pin, the gateway and the person's answer."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "your_language.md"
FRAMES = Path(__file__).parent / "frames"  # a frame has the lines IMPORTS and LINES(what stands for the gateway's URL)


def block(language: str) -> str:
    (found,) = re.findall(rf"(?s)```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"))
    return str(found)


def ten_lines(language: str) -> str:
    head, gateway, tail = re.split(r"LINES\((.*)\)", (FRAMES / f"{language}.txt").read_text(encoding="utf-8"))
    imports, statements = block(language).split("\n\n", 1)
    return head.replace("IMPORTS", imports) + statements.replace('"https://gateway.example"', gateway) + tail
