"""Draws the pictures of the documents with the real mechanisms:  python docs/draw_pictures.py"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mechanisms import mechanism

HERE = Path(__file__).parent / "pictures"
REPORTS = np.unique(np.geomspace(1, 100, 40).astype(int))


def save(name: str) -> None:
    plt.tight_layout()
    plt.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close()


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
    plt.title("L-OSUE, k = 100, ε∞ = 2, ε₁ = 1, 10 000 people, share 10 %", fontsize=10)
    plt.legend()
    save("window")


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "ldpstream"
    losses()
    windows()
