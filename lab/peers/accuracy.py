"""Errors of other libraries' estimators; `lab.peers` runs this file in a separate virtual environment.

Standard input is a JSON list of tasks. A task is one cell of `bench accuracy`:

    k, p, q, n     number of values, support probabilities, number of reports
    people         (runs, k) numbers of people with each value
    counts         (runs, k) support counts of the same runs' reports
    ordered        true to measure Wasserstein distances too
    ibu            number of runs with multi-freq-ldpy's IBU
    fast           null, or {"eps", "functions", "seed"}: also pure-ldp's fast local hashing (FLH), with its own reports

Every line of standard output is `{"task": index, "mse": {method: [error of each run]}, "wasserstein": the same, "ibu_seconds":
processor time of the last IBU, or null}`, or `{"task": index, "error"}`.
"""

import json
import random
import sys
import time
import warnings
from importlib import import_module  # the project's environment does not have the libraries
from typing import Any

import numpy as np

NORMALISATIONS = ("none", "additive", "simplex", "cut")  # pure-ldp's numbers 0 to 3
warnings.simplefilter("ignore")  # pure-ldp warns if there are few reports, and while it fills an empty server


def measure(task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"mse": {}, "wasserstein": {}}
    seconds = None
    fast = FastHashing(task["k"], **task["fast"]) if task["fast"] else None
    for run, (people, counts) in enumerate(zip(task["people"], task["counts"], strict=True)):
        truth, support = np.array(people) / sum(people), np.array(counts, float)
        estimates = {"multi-freq-ldpy: MI": inverted(task, support), **pure_ldp(task, support)}
        if run < task["ibu"]:
            start = time.process_time()
            estimates["multi-freq-ldpy: IBU"] = iterated(task, support)
            seconds = time.process_time() - start
        if fast is not None:
            estimates.update(fast.estimates(people))
        for name, estimate in estimates.items():
            found["mse"].setdefault(name, []).append(float(np.mean((estimate - truth) ** 2)))
            if task["ordered"]:
                far = float(np.abs(np.cumsum(truth - estimate)).sum()) / task["k"]
                found["wasserstein"].setdefault(name, []).append(far)
    return {**found, "ibu_seconds": seconds}


def inverted(task: dict[str, Any], support: Any) -> Any:
    mi = import_module("multi_freq_ldpy.estimators.Histogram_estimator").MI
    return np.asarray(mi(support, task["n"], task["p"], task["q"]))


def iterated(task: dict[str, Any], support: Any) -> Any:
    ibu = import_module("multi_freq_ldpy.estimators.Histogram_estimator").IBU
    channel = np.full((task["k"], task["k"]), float(task["q"]))
    np.fill_diagonal(channel, task["p"])
    return np.asarray(ibu(task["k"], channel, support / support.sum(), 10_000, 1e-12, "max_abs"))


def pure_ldp(task: dict[str, Any], support: Any) -> dict[str, Any]:
    server = import_module("pure_ldp.frequency_oracles.unary_encoding").UEServer(1.0, task["k"])
    server.p, server.q, server.n, server.aggregated_data = task["p"], task["q"], task["n"], support
    return _normalised("pure-ldp", server, task["k"], task["n"])


def _normalised(name: str, server: Any, k: int, n: int) -> dict[str, Any]:
    return {
        f"{name}: {kind}": np.asarray(server.estimate_all(range(1, k + 1), suppress_warnings=True, normalization=number)) / n
        for number, kind in enumerate(NORMALISATIONS)
    }


class FastHashing:
    def __init__(self, k: int, eps: float, functions: int, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the library draws from this generator
        hashing = import_module("pure_ldp.frequency_oracles.local_hashing")
        self.k, self.client = k, hashing.FastLHClient(eps, k, functions, use_olh=True)
        self.server = hashing.FastLHServer(eps, k, functions, use_olh=True)

    def estimates(self, people: list[int]) -> dict[str, Any]:
        self.server.reset()
        self.server.hash_counts[:] = 0
        for value, number in enumerate(people, 1):
            for _ in range(number):
                self.server.aggregate(self.client.privatise(value))
        return _normalised("pure-ldp FLH", self.server, self.k, sum(people))


def main() -> None:
    for i, task in enumerate(json.load(sys.stdin)):
        try:
            line: dict[str, Any] = {"task": i, **measure(task)}
        except Exception as error:
            line = {"task": i, "error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
