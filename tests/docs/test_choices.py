"""Compares the table of windows in docs/evidence/choices.md with its computation."""

from pathlib import Path

from lab.bench import windows

PAGE = (Path(__file__).parents[2] / "docs" / "evidence" / "choices.md").read_text(encoding="utf-8")
PAIRS = ((1.0, 0.5), (2.0, 1.0), (4.0, 2.0), (4.0, 1.0))


def test_the_table_of_windows_is_the_computed_one() -> None:
    found = windows.ratios()
    for eps_inf, eps_1 in PAIRS:
        for steps in (1, 24):
            cells = [f"{r.ratio:.2f}" for r in found if (r.eps_inf, r.eps_1, r.steps) == (eps_inf, eps_1, steps)]
            assert f"| {eps_inf:g}, {eps_1:g} | {steps} | {' | '.join(cells)} |" in PAGE
