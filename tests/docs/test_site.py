"""The site: strict about links, complete, and alike to what a repository's page shows."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from docs import build_site
from tests.docs.test_docs import DOCS, ROOT


def test_the_site_has_every_page_and_refuses_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    build_site.stage(tmp_path)
    ended = build_site.build(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for page in DOCS:
        made = tmp_path / "html" / page.relative_to(ROOT).with_suffix("")
        folder = made.parent if made.name == "README" else made
        text = (folder / "index.html").read_text()
        assert all((folder / to).exists() for to in re.findall(r'href="(?!#|\w+:)([^"#]+)', text))
        assert not re.search(r'<(?:script|link)[^>]*="https?:|class="mermaid"', text)  # a reader's browser asks no other host
    wrong = tmp_path / "pages" / "docs" / "howto" / "serve.md"
    before = wrong.read_text()
    for link in ("[x](nowhere.md)", "[x](operate.md#nowhere)"):
        wrong.write_text(f"{before}\n{link}\n")
        assert build_site.build(tmp_path).returncode != 0


def test_the_index_names_every_page_once() -> None:
    named = re.findall(r'= "(docs/[^"]+)"', build_site.navigation(build_site.INDEX.read_text()))
    assert sorted(named) == sorted(str(page.relative_to(ROOT)) for page in DOCS)


@pytest.mark.parametrize(
    "path", [*DOCS, *ROOT.glob("*.md"), ROOT / "devices" / "typescript" / "README.md"], ids=lambda p: p.name
)
def test_a_list_or_table_follows_a_blank_line(path: Path) -> None:
    """The site's Markdown shows it as a part of the paragraph otherwise."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text())
    lines = text.split("\n")
    starts = re.compile(r"(?:[-*]|\d+\.) |\|")
    for before, line in pairwise(lines):
        if starts.match(line) and before.strip() and not re.match(r"\s|#", before):
            assert starts.match(before), f"{before}\n{line}"
