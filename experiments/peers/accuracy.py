"""Estimates of multi-freq-ldpy. `experiments.peers` runs this file in a separate virtual environment.

The file imports nothing of this project. Standard input is a JSON list of `{"mechanism", "k", "eps", "counts"}`. Every line of
standard output is one of `{"task": index, "estimates": {"MI": [...], "IBU": [...]}, "seconds": {"MI", "IBU"}}` (processor time
of the second of two runs, since the first run may compile) or `{"task": index, "error"}`.
"""

import json
import sys
import time
from importlib import import_module  # the project's environment does not have the libraries
from typing import Any

ONCE = {
    "GRR": ("GRR", {}), "SS": ("SS", {}), "SUE": ("UE", {"optimal": False}), "OUE": ("UE", {"optimal": True}),
    "THE": ("HE", {}), "BLH": ("LH", {"optimal": False}), "OLH": ("LH", {"optimal": True}),
}  # fmt: skip
MEMOIZED = {
    "L-GRR": ("L_GRR", {}), "L-SUE": ("L_SUE", {}), "L-OSUE": ("L_OSUE", {}), "L-SOUE": ("L_SOUE", {}), "L-OUE": ("L_OUE", {}),
    "L-BLH": ("L_LH", {"optimal": False}), "L-OLH": ("L_LH", {"optimal": True}),
}  # fmt: skip


def estimate(task: dict[str, Any]) -> dict[str, Any]:
    """Runs both of the library's estimators on the library's reports. If `"time"` is true, a second run is the timed run."""
    name, k, eps = task["mechanism"], task["k"], task["eps"]
    theirs, options = (MEMOIZED if name in MEMOIZED else ONCE)[name]
    folder = "long_freq_est" if name in MEMOIZED else "pure_frequency_oracles"
    module = import_module(f"multi_freq_ldpy.{folder}.{theirs}")
    budgets = (2 * eps, eps) if name in MEMOIZED else (eps,)
    values = [v for v, count in enumerate(task["counts"]) for _ in range(count)]
    reports = [getattr(module, f"{theirs}_Client")(v, k, *budgets, **options) for v in values]
    domain = () if theirs.endswith("UE") else (k,)  # bit aggregators have no parameter k
    estimates, seconds = {}, {}
    for name, where in (("MI", domain), ("IBU", (k,))):
        for _ in range(2 if task.get("time") else 1):
            start = time.process_time()
            found = getattr(module, f"{theirs}_Aggregator_{name}")(reports, *where, *budgets, **options)
            estimates[name], seconds[name] = [float(x) for x in found], time.process_time() - start
    return {"estimates": estimates, "seconds": seconds}


def main() -> None:
    """Runs every task in turn. If a task fails, prints the error and continues."""
    for i, task in enumerate(json.load(sys.stdin)):
        try:
            line: dict[str, Any] = {"task": i, **estimate(task)}
        except Exception as error:
            line = {"task": i, "error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
