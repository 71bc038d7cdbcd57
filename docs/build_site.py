"""Builds the site of the documents from the same Markdown that a repository's page shows:  python docs/build_site.py [FOLDER]

The site is in FOLDER/html (default build/site). A link to a page or a heading that does not exist fails the build. The
navigation has the order of docs/README.md. The words of the glossary have their meaning as a tooltip on every page.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INDEX, GLOSSARY = ROOT / "docs" / "README.md", ROOT / "docs" / "reference" / "glossary.md"
PAGES = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "devices/typescript/README.md", "devices/rust/README.md",
    "devices/go/README.md", "devices/c/README.md", "devices/kotlin/README.md", "devices/swift/README.md", "surveys/samples",
    "promises/papers",
)  # fmt: skip


def navigation(index: str) -> str:
    """Returns the pages of the index in TOML: its headings become tabs, its bold lines groups, its lists pages."""
    parts = [_entry("ldpstream", '"README.md"'), _entry("All pages", '"docs/README.md"')]
    for part in re.split(r"(?m)^## ", index)[1:]:
        heading, _, body = part.partition("\n")
        loose, *groups = re.split(r"(?m)^\*\*(.+)\*\*$", body)
        entries = [
            *_pages(loose),
            *(_entry(title, f"[{', '.join(_pages(listed))}]") for title, listed in zip(groups[::2], groups[1::2], strict=True)),
        ]
        parts.append(_entry(heading, f"[{', '.join(entries)}]"))
    return f"[{', '.join(parts)}]"


def _pages(listed: str) -> list[str]:
    links = re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)", " ".join(" ".join(re.findall(r"(?m)^(?:- |  ).*", listed)).split()))
    return [_entry(title[0].upper() + title[1:], json.dumps(page_of(path))) for title, path in links]


def page_of(path: str) -> str:
    """Returns a page's path from the root, for a link of the index."""
    return str((INDEX.parent / path).resolve().relative_to(ROOT))


def _entry(title: str, value: str) -> str:
    return f"{{ {json.dumps(title, ensure_ascii=False)} = {value} }}"


def tooltips(glossary: str) -> str:
    """Returns each word of the glossary with the first sentence of its meaning, as abbreviations in Markdown."""
    rows = re.findall(r"(?m)^\| \*\*(.+?)\*\* \| (.+?)(?:\. .*)? \|$", glossary)
    plain = re.compile(r"[`*\[]|\]\(.*?\)|\]")
    return "".join(f"*[{word}]: {plain.sub('', meaning)}\n" for word, meaning in rows)


def stage(folder: Path) -> None:
    """Copies the pages to FOLDER/pages, where their links still lead to one another, and writes the configuration."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    for name in PAGES:
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, pages / name)
    words = tooltips(GLOSSARY.read_text(encoding="utf-8"))
    for page in pages.rglob("*.md"):
        page.write_text(f"{page.read_text(encoding='utf-8')}\n{words}", encoding="utf-8")
    config = (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8")
    nav = navigation(INDEX.read_text(encoding="utf-8"))
    (folder / "zensical.toml").write_text(config.replace("nav = []", f"nav = {nav}"), encoding="utf-8")


def build(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Builds the site of the staged pages. The exit status is not 0 if a link leads nowhere."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "zensical.toml")]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    stage(folder)
    ended = build(folder)
    sys.stdout.write(ended.stdout + ended.stderr)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
