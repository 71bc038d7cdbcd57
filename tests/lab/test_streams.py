"""The seven methods of LDP-IDS keep their privacy promise; the comparison is reproducible and complete."""

import msgspec
import numpy as np
import pytest
from rich.console import Console

from lab import results_page
from lab.bench.stream_data import SYNTHETIC, Stream, of_shares
from lab.bench.stream_rivals import RIVALS, Budget, publish
from lab.bench.stream_tables import stream_notes, stream_tables
from lab.bench.streams import FILTERED, RAW, Plan, Result, measure
from ldpstream.mechanisms.arguments import FloatArray

TINY = Plan(2000, 12, 4, (2, 3), (1.0,))


def jumping(w: int, k: int, rng: np.random.Generator, n: int = 4003) -> Stream:
    """A stream that jumps often and rests in between, so that the adaptive methods both publish and repeat histograms."""
    weights = rng.dirichlet(np.ones(k), 10 * w)[np.repeat(np.arange(10 * w), rng.integers(1, 2 * w, 10 * w))[: 10 * w]]
    return of_shares("jumping", weights, n)


# ---- streams


# ---- privacy


def used(name: str, stream: Stream, w: int, seed: int) -> tuple[FloatArray, float]:
    """(T - w + 1,) allowance spent in every window, and the whole allowance: 1 nat, or all people."""
    spent = publish(name, stream, 1.0, w, np.random.default_rng(seed)).spent.sum(axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(spent, w).sum(axis=1)
    return windows, 1.0 if RIVALS[name][0] is Budget else float(stream.n)


@pytest.mark.parametrize("w", [1, 2, 5, 20])
@pytest.mark.parametrize("name", RIVALS)
def test_no_window_spends_more_than_its_allowance(name: str, w: int) -> None:
    largest = 0.0
    for seed in range(5):
        windows, whole = used(name, jumping(w, 3, np.random.default_rng(seed)), w, seed)
        assert (windows <= whole * (1 + 1e-12)).all()
        largest = max(largest, windows.max() / whole)
    assert largest > 0.7  # the allowance is used, so a method that spends more would be noticed


# ---- the spaced level


# ---- measures and tables


def table_text(result: Result) -> str:
    console = Console(width=250)
    with console.capture() as captured:
        for part in (*stream_tables(result), *stream_notes(result)):
            console.print(part)
    return captured.get()


def test_the_comparison_is_reproducible_and_complete() -> None:
    first, again, other = (measure(TINY, None, 2, seed, lambda said: None, processes=1) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert [(c.stream, c.k) for c in first.cells] == [(name, k) for k in (2, 3) for name in SYNTHETIC]
    for cell in first.cells:
        assert list(cell.errors) == [*RIVALS, RAW, FILTERED]
        assert cell.errors[cell.best("mse")].mse == min(cell.errors[name].mse for name in RIVALS)
        assert cell.errors[cell.best("auc")].auc == max(cell.errors[name].auc for name in RIVALS)
        assert cell.gain("mre") == cell.errors[cell.best("mre")].mre / cell.errors[FILTERED].mre
    text = table_text(first)
    assert all(f" {name} " in text for name in (*RIVALS, RAW, FILTERED))
    assert "6 synthetic settings" in text
    assert "real settings" not in text
    assert msgspec.convert(msgspec.to_builtins(first), Result) == first
    page = results_page.streamed({"streams": msgspec.to_builtins(first), "memos": []})
    assert all(f"| {cell.stream} | {cell.k} |" in page for cell in first.cells)
