"""Draws the pictures of the documents with the real mechanisms:  python -m docs.draw_pictures [NAME]…"""

import csv
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from lab.bench.accuracy.picture import draw_ratios
from lab.pictures import STYLE
from ldpstream.estimators import matrix_inversion
from ldpstream.mechanisms import CountTable, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.promises.label import label
from ldpstream.promises.label_picture import picture
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.filtering import conclude_filtered
from ldpstream.publishing.estimates.publication import Jump
from ldpstream.surveys import Survey, load_survey

ROOT = Path(__file__).parents[1]
HERE = ROOT / "docs" / "pictures"
REPORTS = np.unique(np.geomspace(1, 100, 40).astype(int))
DAY, YEAR = 24, 24 * 365  # steps
PEOPLE, CHAT, SEARCH = 60_000, 3, 1  # the year's population, and two of the survey's values
JUMP = 5610  # the step of the jump
ANSWERS = {"car": 50, "bus": 25, "bicycle": 15, "walk": 10}  # the true shares in %, in the picture of the idea


def save(name: str) -> None:
    plt.tight_layout()
    plt.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close()


def idea() -> None:
    """Draws some of many people, their reports and the histogram. Reports and estimates are the mechanism's own."""
    rng, m = np.random.default_rng(5), mechanism("GRR", len(ANSWERS), eps=1.0)
    values = rng.permutation(np.repeat(np.arange(m.k), np.array(list(ANSWERS.values())) * 100))
    reports = m.report(values, rng)
    found = matrix_inversion(m, m.tabulate(reports))
    drawn = []
    for i, (value, report) in enumerate(zip(values[:48].tolist(), reports[:48].tolist(), strict=True)):
        x, y = 40 + 30 * (i % 8), 76 + 35 * (i // 8)
        drawn.append(f'<use href="#person" x="{x}" y="{y}" class="c{value}"/>')
        drawn.append(f'<use href="#report" x="{x + 316}" y="{y}" class="c{report}"/>')
    for v, (answer, percent) in enumerate(ANSWERS.items()):
        x = 668 + 60 * v
        top, low, high, truth = (
            283 - 3.6 * share
            for share in (*(100 * number[v] for number in (found.frequencies, *found.interval(0.95))), percent)
        )
        drawn += [
            f'<rect x="{x - 21}" y="{top:.1f}" width="42" height="{283 - top:.1f}" class="c{v}" opacity=".7"/>',
            f'<path d="M{x - 7} {low:.1f}h14m-7 0V{high:.1f}m-7 0h14" class="line"/>',
            f'<circle cx="{x}" cy="{truth:.1f}" r="5" class="truth"/>',
            f'<text x="{x}" y="304">{answer}</text>',
        ]
    (HERE / "idea.svg").write_text((ROOT / "docs" / "idea_template.svg").read_text().replace("<!--drawn-->", "\n".join(drawn)))


def losses() -> None:
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    for name, k in (("L-GRR", 10), ("L-OSUE", 10), ("L-OLH", 10)):
        m = mechanism(name, k=k, eps_inf=2.0, eps_1=1.0)
        left.plot(REPORTS, [m.eps_t(int(t)) for t in REPORTS], label=name)
        right.plot(REPORTS, [m.eps_sequence(int(t)).value for t in REPORTS], label=name)
    left.plot(REPORTS, REPORTS.astype(float), ":", color="gray", label="fresh reports")
    left.axhline(2, color="gray", lw=0.8)
    left.set(ylim=(0.9, 2.4), xscale="log", xlabel="reports t", ylabel="loss in nats", title="ε_t: the value never changed")
    right.set(xscale="log", yscale="log", xlabel="reports t", title="eps_sequence: any two sequences of values")
    left.legend()
    right.legend()
    save("eps_t")


def windows() -> None:
    steps, m = np.arange(1, 49), mechanism("L-OSUE", k=100, eps_inf=2.0, eps_1=1.0)
    same = [100 * np.sqrt(m.variance(0.1, 10_000, int(w))) for w in steps]
    naive = [100 * np.sqrt(m.variance(0.1, 10_000) / w) for w in steps]
    plt.figure(figsize=(6.4, 3.4))
    plt.plot(steps, same, label="the same people at every step (published)")
    plt.plot(steps, naive, "--", label="if the noise averaged out (too narrow)")
    plt.ylim(0)
    plt.xlabel("steps in the window")
    plt.ylabel("standard error in %")
    plt.title("L-OSUE, k = 100, ε∞ = 2, ε₁ = 1, 10 000 people, share 10 %")
    plt.legend()
    save("window")


@dataclass
class Curves:
    """A year's curves by name, (YEAR, k) each, and the detected jumps with the steps of their publications."""

    truth: FloatArray
    shares: dict[str, FloatArray] = field(default_factory=dict)
    errors: dict[str, FloatArray] = field(default_factory=dict)
    inside: dict[str, FloatArray] = field(default_factory=dict)  # 1 if the interval contains the truth, otherwise 0
    jumps: list[tuple[int, Jump]] = field(default_factory=list)

    def describe(self, value: int) -> str:
        """Returns every curve's mean squared error and coverage of 95 % intervals for a value, without the first day."""
        parts = []
        for name, shares in self.shares.items():
            off = np.abs(shares - self.truth)[DAY:, value]
            covered = self.inside[name][DAY:, value].mean()
            parts.append(f"{name} {(off**2).mean():.2e} ({100 * covered:.1f} %)")
        return ", ".join(parts)


def moving_shares() -> FloatArray:
    """(YEAR, k) true shares: "chat" has a season and a jump, and "search" has a weekly wave."""
    t = np.arange(YEAR)
    truth = np.tile([0.0, 0.22, 0.16, 0.12, 0.09, 0.07], (YEAR, 1))
    truth[:, CHAT] += 0.04 * np.sin(2 * np.pi * t / YEAR) + np.where(t >= JUMP, 0.08, 0)
    truth[:, SEARCH] += 0.01 * np.sin(2 * np.pi * t / (7 * DAY))
    truth[:, 0] = 1 - truth.sum(axis=1)
    return truth


def counted(survey: Survey, truth: FloatArray) -> list[CountTable]:
    rng, m = np.random.default_rng(1), survey.mechanisms[0][0]
    groups = [np.sort(rng.random(n)) for n in rng.multinomial(PEOPLE, np.full(m.every_steps, 1 / m.every_steps))]
    order = [CHAT, 0, SEARCH, 2, 4, 5]  # "home" between the two values that move, so that the other people keep their values
    tables = []
    for step, shares in enumerate(truth):
        group, people = groups[step % m.every_steps], np.zeros(m.k, int)
        ends = np.searchsorted(group, np.cumsum(shares[order])[:-1])
        people[order] = np.diff(ends, prepend=0, append=group.size)
        tables.append(m.table(group.size, rng.multinomial(people, m.channel()).sum(axis=0)))
    return tables


def published(survey: Survey, truth: FloatArray) -> Curves:
    """Returns the raw, window and filtered estimates of reports with these true shares, and the detected jumps."""
    curves, names, m = Curves(truth), ("raw", "window", "filtered"), survey.mechanisms[0][0]
    curves.shares, curves.errors, curves.inside = ({name: np.empty(truth.shape) for name in names} for _ in range(3))
    window: deque[CountTable] = deque(maxlen=survey.window_steps)
    state = None
    for t, table in enumerate(counted(survey, truth)):
        window.append(table)
        step = conclude(survey, 0, t, "step", [[table]], complete=True)
        found, state = conclude_filtered((m,), [table], [step], state)
        together = matrix_inversion(m, sum(window, m.empty_table()))
        for name, one in zip(names, (step.estimators["mi"].estimate(), together, found.estimators["filter"].estimate())):
            curves.shares[name][t], curves.errors[name][t] = one.frequencies, one.standard_errors
            low, high = one.interval(0.95)
            curves.inside[name][t] = (low <= truth[t]) & (truth[t] <= high)
        if found.change is not None:
            curves.jumps.append((t, found.change))
    return curves


def year() -> None:
    survey = load_survey(ROOT / "surveys" / "samples" / "changing.toml")
    curves = published(survey, moving_shares())
    lines = [f"{name}: {curves.describe(value)}" for name, value in (("chat", CHAT), ("search", SEARCH))]
    lines += [f"published at step {t}, {t - JUMP} steps after the jump: {jump}" for t, jump in curves.jumps]
    sys.stdout.write("\n".join([*lines, ""]))
    _, (above, below) = plt.subplots(2, 1, figsize=(9, 7))
    _draw(above, curves, range(0, YEAR, DAY))
    _draw(below, curves, range(JUMP - 4 * DAY, JUMP + 5 * DAY))
    above.set_title("a year of hourly steps: one step of each day")
    below.set_title("nine days around the jump: every step")
    below.set_xlabel("day of the year")
    below.legend(loc="lower right", ncols=2)
    save("year")


def _draw(panel: Axes, curves: Curves, steps: range) -> None:
    days = np.array(steps) / DAY
    shown = {name: 100 * shares[steps, CHAT] for name, shares in curves.shares.items()}
    half = 196 * curves.errors["filtered"][steps, CHAT]
    panel.plot(days, shown["raw"], ".", ms=2.5, color="0.72", rasterized=True, label="one step")
    panel.plot(days, shown["window"], lw=0.7, color="C1", label="window of 25 steps")
    panel.fill_between(days, shown["filtered"] - half, shown["filtered"] + half, color="C0", alpha=0.25, lw=0)
    panel.plot(days, shown["filtered"], lw=1.2, color="C0", label="filtered, with 95 % intervals")
    panel.plot(days, 100 * curves.truth[steps, CHAT], "--", lw=1, color="black", label="true share")
    for t, jump in curves.jumps:
        if jump.value == CHAT and t in range(steps.start, steps.stop):
            panel.axvline(t / DAY, color="C7", lw=0.8, label=f"jump detected, {t - JUMP} hours after it")
    panel.set(xlim=(days[0], days[-1]), ylim=(0, 27), ylabel="share of “chat” in %")


def promises() -> None:
    """Draws the mechanisms with ε = 2 of the benchmark's table."""
    _, _, table = (HERE.parent / "evidence" / "streams.md").read_text().partition("**Values that change often")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.partition("\n\n")[2].split("\n\n")[0].splitlines()
    ]
    plt.figure(figsize=(7.4, 4))
    for name, eps, _, _, window, filtered, loss, *_ in rows[2:]:
        if eps != "2":
            continue
        x, y, spaced = float(loss.removeprefix("≤ ")), 0.1 * float(window) ** 0.5, filtered != "–"
        plt.plot(x, y, "o" if spaced else "x", color="C0" if spaced else "C1", ms=8)
        if name in ("L-GRR", "L-OLH", "L-OSUE", "OUE"):
            plt.annotate(name, (x, y), (8, 5), textcoords="offset points")
    plt.plot([], [], "o", color="C0", label="spaced: a fresh report every 24 steps")
    plt.plot([], [], "x", color="C1", label="memoized: a report at every step")
    plt.annotate("lower left\nis better", (0.03, 0.04), (0.13, 0.2), "axes fraction", "axes fraction", {"arrowstyle": "->"})
    plt.xscale("log")
    plt.xlim(3, 4e5)
    plt.ylim(0)
    plt.xlabel("privacy loss of 120 steps, for any values, in nats")
    plt.ylabel("error of a share, in percentage points")
    plt.legend(loc="upper right")
    save("promises")


def accuracy() -> None:
    """Draws the accuracy benchmark from its committed table of every cell."""
    views: dict[str, dict[str, list[float]]] = {}
    with (HERE.parent / "evidence" / "results" / "accuracy.csv").open() as file:
        for cell in csv.DictReader(file):
            found = views.setdefault(cell["view"], {})
            for method in list(cell)[list(cell).index("error") + 1 :]:
                found.setdefault(method, []).extend([float(cell[method])] if cell[method] else [])
    draw_ratios(views, HERE / "accuracy.svg")


def privacy_label() -> None:
    survey = load_survey(ROOT / "surveys" / "samples" / "commute.toml")
    (HERE / "label.svg").write_text(picture(label(survey, None)))


DRAWN = {
    "label": privacy_label, "idea": idea, "eps_t": losses, "window": windows, "year": year, "promises": promises,
    "accuracy": accuracy,
}  # fmt: skip

if __name__ == "__main__":
    plt.rcParams.update(STYLE)
    for name in sys.argv[1:] or DRAWN:
        DRAWN[name]()
