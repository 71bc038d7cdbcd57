"""Tests the comparison of two versions' speed: the committed figures, the tasks, and the marks of slower tasks."""

from typing import Any

import msgspec
import pytest

from lab.bench import compare


def test_every_task_runs_and_has_a_committed_figure() -> None:
    committed = msgspec.json.decode(compare.BASELINE.read_bytes(), type=dict[str, float])
    measured = compare.measure(compare.tasks(), turns=1)
    assert list(measured) == list(committed)
    assert all(figure > 0 for figure in [*measured.values(), *committed.values()])


def test_a_figure_is_the_ratio_of_the_least_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def done() -> None:
        """A task."""

    seconds = {compare.unit: iter([2.0, 2.0, 4.0]), done: iter([3.0, 100.0, 2.0])}
    monkeypatch.setattr(compare, "_cpu_s", lambda run: next(seconds[run]))
    assert compare.measure({"done": done}, turns=3) == {"done": 1.0}


def test_slower_and_new_tasks_are_marked() -> None:
    shown: Any = compare.comparison({"slow": 3.0, "same": 1.0, "added": 2.0}, {"slow": 2.0, "same": 1.0, "gone": 5.0})
    cells = [list(column.cells) for column in shown.columns]
    assert cells[0] == ["slow", "same", "added"]
    assert cells[3] == ["[bold red]1.50[/]", "1.00", "new"]


def test_other_arguments_are_refused() -> None:
    with pytest.raises(SystemExit, match=r"usage: python -m lab.bench.compare \[--save\]"):
        compare.main(["--all"])
