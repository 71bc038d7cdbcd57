"""Runs of Balioglu, Khodaie and Gursoy 2025 (LDP³): a protocol's estimate with every post-processing, and its time."""

import hashlib
import json
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from lab import datasets
from lab.drawn_tables import tabulate
from lab.error_measures import mae
from lab.processes import one_thread_each, process_pool
from ldpstream.estimators import matrix_inversion, post_process
from ldpstream.mechanisms import CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray, IntArray

EPS = 1.0
FILES = {"kosarak": "kosarak.csv", "bms_pos": "bms_pos.csv", "porto": ""}
PORTO = 1_620_157, 225  # trips, cells of the grid
PROTOCOLS = {"GRR": "GRR", "OLH": "OLH", "BLH": "BLH", "OUE": "OUE", "RAPPOR": "SUE", "SS": "SS"}
PLAIN = {"w/o PP": "none", "Base-Pos": "base-pos", "Norm": "norm", "Norm-Cut": "norm-cut", "Norm-Mul": "norm-mul"}
PLAIN["Norm-Sub"] = "norm-sub"
WINDOW, GRAIN, FLOOR = 25_000, 10, 1e-32  # constants of the toolkit's Power post-processing


def dataset(name: str, folder: str | None, seed: int) -> datasets.Dataset:
    if name == "porto":
        return datasets.generated(name, PORTO[0], (PORTO[1],), seed)
    return datasets.load(name, Path(folder) if folder else None, seed)


def toolkit_variance(protocol: str, k: int, n: int, eps: float = EPS) -> float:
    """The variance of an estimated count, as the toolkit passes it to its Power post-processing for n people."""
    e = np.exp(eps)
    per_person = {
        "GRR": (k * e - 2) / (e - 1) ** 2,
        "SS": (k * e - 2) / (e - 1) ** 2,
        "BLH": ((e + 1) / (e - 1)) ** 2,
        "RAPPOR": np.sqrt(e) / (np.sqrt(e) - 1) ** 2,
    }
    return float(n / k * per_person.get(protocol, 4 * e / (e - 1) ** 2))


def toolkit_power(counts: FloatArray, n: int, variance: float) -> FloatArray:
    """(k,) frequencies by the toolkit's Power: the prior of a count j is proportional to j^-a on 1 … n."""
    possible = np.arange(1, n + 1, dtype=float)
    logs, mean = np.log(possible), counts.mean()
    low, high = 0.0, 2.0
    while _power_mean(high, logs, possible) > mean:
        low, high = high, 2 * high
    exponent = (low + high) / 2
    while abs((fitted := _power_mean(exponent, logs, possible)) - mean) > 0.01:
        low, high = (exponent, high) if fitted > mean else (low, exponent)
        exponent = (low + high) / 2
    prior = np.exp(-exponent * logs)
    grains = np.round(counts / GRAIN)
    means = {}
    for grain in np.unique(grains):
        x = grain * GRAIN + GRAIN / 2
        window = slice(max(0, int(x) - WINDOW), min(n, int(x) + WINDOW))  # if x is far below 0, stop < 0 cuts only the end
        likelihood = np.exp(-((x - possible[window]) ** 2) / (2 * variance))
        likelihood[likelihood == 0] = FLOOR
        weights = likelihood * prior[window]
        means[grain] = weights @ possible[window] / weights.sum()
    return np.array([means[grain] for grain in grains]) / n


def _power_mean(exponent: float, logs: FloatArray, possible: FloatArray) -> float:
    weights = np.exp(-exponent * logs)
    return float(weights @ possible / weights.sum())


def post_processed(protocol: str, m: Mechanism, table: CountTable, best: bool) -> dict[str, FloatArray]:
    inverted = matrix_inversion(m, table)
    raw = inverted.frequencies
    found = {name: post_process(raw, method) for name, method in PLAIN.items()}
    found["Power"] = toolkit_power(raw * table.n, table.n, toolkit_variance(protocol, m.k, table.n))
    found["PowerNS"] = post_process(found["Power"], "norm-sub")
    if best:
        found["best"] = post_process(raw, "power-ns", variance=inverted.standard_errors**2)
    return found


def errors(name: str, protocol: str, run: int, folder: str | None, best: bool, seed: int) -> dict[str, float]:
    """A run's mean absolute errors (the paper's l1 distance, divided by k) by post-processing."""
    digest = hashlib.sha256(json.dumps([name, protocol, run]).encode()).digest()
    rng = np.random.default_rng([seed, *digest[:8]])
    data = dataset(name, folder, seed)
    values, k = data.values[:, 0], data.sizes[0]
    truth = np.bincount(values, minlength=k) / len(values)
    m = mechanism(PROTOCOLS[protocol], k, eps=EPS)
    found = post_processed(protocol, m, tabulate(m, values, rng), best)
    return {method: mae(truth, f) for method, f in found.items()}


_loaded: dict[str, IntArray] = {}


def seconds(
    name: str, protocols: list[str], repetitions: int, processes: int, folder: str | None, seed: int
) -> dict[str, float]:
    """The seconds that each protocol takes for `repetitions` estimates on `processes` processes."""
    k = dataset(name, folder, seed).sizes[0]
    with one_thread_each(), process_pool(processes, _start, (name, folder, seed)) as pool:
        found = {}
        for protocol in protocols:
            m = mechanism(PROTOCOLS[protocol], k, eps=EPS)
            _estimate(pool, protocol, m.k, processes, seed, 50)  # starts all processes, and compiles their code
            start = time.perf_counter()
            for repetition in range(repetitions):
                _estimate(pool, protocol, m.k, processes, seed + repetition, 1)
            found[protocol] = time.perf_counter() - start
    return found


def _start(name: str, folder: str | None, seed: int) -> None:
    _loaded["values"] = dataset(name, folder, seed).values[:, 0]


def _estimate(pool: ProcessPoolExecutor, protocol: str, k: int, processes: int, seed: int, thin: int) -> FloatArray:
    m = mechanism(PROTOCOLS[protocol], k, eps=EPS)
    table = sum(pool.map(_share, *zip(*[(protocol, k, i, processes, seed, thin) for i in range(processes)])), m.empty_table())
    inverted = matrix_inversion(m, table)
    return post_process(inverted.frequencies, "power-ns", variance=inverted.standard_errors**2)


def _share(protocol: str, k: int, index: int, processes: int, seed: int, thin: int) -> CountTable:
    m = mechanism(PROTOCOLS[protocol], k, eps=EPS)
    rng = np.random.default_rng([seed, index])
    return tabulate(m, _loaded["values"][index :: processes * thin], rng)
