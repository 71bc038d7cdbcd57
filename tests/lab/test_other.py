"""The benchmark of values that nobody listed: the table in `docs/howto/other.md`, and its simulation."""

from pathlib import Path

from scipy.special import ndtr

from lab.bench.other import EPS, LIST, results, share_table, simulate, simulated_table

TEXT = (Path(__file__).parents[2] / "docs" / "howto" / "other.md").read_text()


def test_the_table_of_the_document_is_the_codes() -> None:
    rows = results()
    for r in rows:
        shares = " | ".join(f"{100 * x:.2f} %" for x in (r.four, r.any_bytes, r.letters, r.candidates))
        assert f"| {r.eps:g} | {shares} |" in TEXT
    assert share_table(rows).row_count == len(EPS)
    assert f"{round(256**3 * ndtr(-4), -1):.0f}" == "530"
    assert "about 530 wrong continuations" in TEXT.replace("\n", " ")
    assert f"{38**3:,}".replace(",", " ") in TEXT
    assert LIST == 1000


def test_the_simulation_finds_the_text() -> None:
    rows = simulate(20, 1, lambda _: None)
    assert all(r.found > 0.6 and r.wrong < 0.4 for r in rows)  # 20 runs of 90 % and 5 %
    assert simulated_table(rows).row_count == len(EPS)
