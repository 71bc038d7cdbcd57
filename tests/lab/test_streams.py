"""The seven methods of LDP-IDS keep their privacy promise; the comparison is reproducible and complete."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lab import results_page
from lab.bench import streams
from lab.bench.__main__ import app
from lab.bench.stream_data import SYNTHETIC, Stream, of_shares, synthetic
from lab.bench.stream_memos import SPACED_MECHANISMS
from lab.bench.stream_rivals import RIVALS, Budget, oracle, publish, uniform
from lab.bench.stream_spaced import spaced_level
from lab.bench.stream_tables import stream_notes, stream_tables
from lab.bench.streams import FILTERED, RAW, Plan, Result, measure
from lab.processes import worker_pool
from ldpstream.mechanisms import LONGITUDINAL
from ldpstream.mechanisms.arguments import FloatArray

TINY = Plan(2000, 12, 4, (2, 3), (1.0,))


def jumping(w: int, k: int, rng: np.random.Generator, n: int = 4003) -> Stream:
    """A stream that jumps often and rests in between, so that the adaptive methods both publish and repeat histograms."""
    weights = rng.dirichlet(np.ones(k), 10 * w)[np.repeat(np.arange(10 * w), rng.integers(1, 2 * w, 10 * w))[: 10 * w]]
    return of_shares("jumping", weights, n)


# ---- streams


@pytest.mark.parametrize("k", [2, 10, 100])
@pytest.mark.parametrize("name", SYNTHETIC)
def test_streams_have_whole_people_and_all_of_them(name: str, k: int) -> None:
    stream = synthetic(name, k, 1000, 50, np.random.default_rng(1))
    assert stream.people.shape == (50, k + 1)
    assert (stream.k, stream.n) == (k, 1000)
    assert stream.people.min() >= 0
    assert (stream.people.sum(axis=1) == 1000).all()
    np.testing.assert_allclose(stream.shares.sum(axis=1), 1)


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


def assign(spent: FloatArray, n: int, w: int) -> None:
    """Draws people by number.

    People drawn in the last w-1 steps are not available; ValueError if a step asks for too many people.
    """
    rng, last_report = np.random.default_rng(6), np.full(n, -w)
    for t, asked in enumerate(spent.sum(axis=1).astype(int)):
        group = rng.choice(np.flatnonzero(t - last_report >= w), asked, replace=False)
        last_report[group] = t


@pytest.mark.parametrize("name", [name for name, (division, _) in RIVALS.items() if division is not Budget])
def test_nobody_reports_twice_in_a_window(name: str) -> None:
    stream = jumping(5, 3, np.random.default_rng(6))
    spent = publish(name, stream, 1.0, 5, np.random.default_rng(6)).spent
    assign(spent, stream.n, 5)
    with pytest.raises(ValueError, match=r"larger sample|cannot be empty"):  # control
        assign(2 * spent, stream.n, 5)


# ---- the spaced level


def test_the_spaced_level_has_the_stated_variances() -> None:
    """The mean of 2400 squared scores is 1 ± 0.035: a difference of 0.15 has a probability of 2e-5. Control: LBU's shares.

    The three scores of a step depend on each other, since the shares sum to 1.
    """
    stream = of_shares("rest", np.tile([0.5, 0.3, 0.2], (800, 1)), 20_000)
    raw, reports = spaced_level(stream, 1.0, 20, np.random.default_rng(14))
    assert reports[:20].sum() == 20_000
    assert (reports[20:40] == reports[:20]).all()
    fo = oracle(3, 1.0)
    hit = fo.q + stream.shares * (fo.p - fo.q)
    variances = hit * (1 - hit) / (reports[:, None] * (fo.p - fo.q) ** 2)
    assert ((raw - stream.shares) ** 2 / variances).mean() == pytest.approx(1, abs=0.15)
    worse = uniform(Budget(stream, 1.0, 20, np.random.default_rng(14))).shares
    assert ((worse - stream.shares) ** 2 / variances).mean() > 1.15


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


def test_the_command_prints_and_writes_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "QUICK", TINY)
    monkeypatch.setattr(streams, "worker_pool", lambda processes, tasks: worker_pool(1, tasks))
    file = tmp_path / "streams.json"
    done = CliRunner().invoke(app, ["streams", "--quick", "--repeats", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert "6 synthetic settings" in " ".join(done.output.split())
    written = json.loads(file.read_text())
    assert written["streams"] == msgspec.to_builtins(measure(TINY, None, 2, 1, lambda said: None, processes=1))
    assert [row["mechanism"] for row in written["memos"]] == [*LONGITUDINAL, *SPACED_MECHANISMS]
