"""Measures other libraries, and writes a JSON object to standard output.

The file imports nothing of this project. `test_errata.py` runs this file in the environment of `lab.peers` and checks
the output.
"""

import json
import random
import sys
import warnings
from importlib import import_module
from typing import Any

import numpy as np

warnings.simplefilter("ignore")  # the libraries warn if there are few reports
np.seterr(all="ignore")


def captured_channel(module: Any, call: str, *arguments: Any) -> list[list[float]]:
    """The channel with which an IBU aggregator would iterate."""
    seen: list[Any] = []
    kept, module.IBU = module.IBU, lambda k, channel, *_: seen.append(channel)
    try:
        getattr(module, call)(*arguments)
    finally:
        module.IBU = kept
    return [[float(x) for x in row] for row in seen[0]]


def refusal(function: Any, *arguments: Any) -> str:
    """The name of the exception that a call raises; "" if the call returns a result."""
    try:
        function(*arguments)
    except Exception as error:
        return type(error).__name__
    return ""


def multi_freq() -> dict[str, Any]:
    """multi-freq-ldpy 0.2.5."""
    np.random.seed(20240601)  # noqa: NPY002  # the library draws from this generator
    grr = import_module("multi_freq_ldpy.pure_frequency_oracles.GRR")
    l_grr = import_module("multi_freq_ldpy.long_freq_est.L_GRR")
    l_lh = import_module("multi_freq_ldpy.long_freq_est.L_LH")
    l_adp = import_module("multi_freq_ldpy.long_freq_est.L_ADP")
    variance = import_module("multi_freq_ldpy.long_freq_est.Variance_LONG_PURE").VAR_Long_Pure
    inversion = import_module("multi_freq_ldpy.estimators.Histogram_estimator").MI
    p1, p2 = np.exp(2) / (np.exp(2) + 99), 0.03964  # probabilities of L-GRR, k = 100, ε∞ = 2, ε₁ = 1
    n, k, q = 100_000, 1000, 1 / (np.e + 1)
    truth = np.r_[0.179, np.full(k - 1, 0.821 / (k - 1))]
    oue = np.random.default_rng(1).binomial(n, q + truth * (0.5 - q))
    return {
        "same value": float(np.mean([l_grr.L_GRR_Client(0, 2, 0.5, 0.4) == 0 for _ in range(5000)])),
        "seeds": len({int(l_lh.L_LH_Client(3, 10, 2.0, 1.0)[1]) for _ in range(50)}),
        "l-grr kept": float(np.mean([l_grr.L_GRR_Client(7, 100, 2.0, 1.0) == 7 for _ in range(20_000)])),
        "l-grr channel": captured_channel(l_grr, "L_GRR_Aggregator_IBU", [0], 100, 2.0, 1.0),
        "l-lh channel": captured_channel(l_lh, "L_LH_Aggregator_IBU", [(0, 1), (1, 2)], 10, 2.0, 1.0, False),
        "variances": [float(variance(p1, (1 - p1) / 99, p2, (1 - p2) / 99, 10_000, f)) for f in (0.0, 0.5)],
        "mi": [float(x) for x in inversion(oue, n, 0.5, q)],
        "mi counts": [int(x) for x in oue],
        "accepted": {
            "client 1.7": refusal(grr.GRR_Client, 1.7, 4, 1.0),
            "client nan": refusal(grr.GRR_Client, float("nan"), 4, 1.0),
            "report -1": refusal(grr.GRR_Aggregator_MI, [0, 1, -1], 4, 1.0),
        },
        "ε = 800": refusal(grr.GRR_Client, 1, 4, 800.0),
        "l-adp ibu": refusal(l_adp.L_ADP_Aggregator_IBU, [np.array([0, 1] * 50)], 100, 2.0, 1.0),
        "l-adp mi": refusal(l_adp.L_ADP_Aggregator_MI, [np.array([0, 1] * 50)], 100, 2.0, 1.0),
    }


def pure() -> dict[str, Any]:
    """pure-ldp 1.2.0."""
    random.seed(20240601)
    hashing = import_module("pure_ldp.frequency_oracles.local_hashing")
    rappor = import_module("pure_ldp.frequency_oracles.rappor")
    client, server = hashing.FastLHClient(2.0, 10, 5), hashing.FastLHServer(2.0, 10, 5)
    flh = hashing.FastLHServer(1.0, 30, 50, g=3, use_olh=False)
    estimates = []
    for n in (10**5, 10**9):  # the expected counts of n people who all have the value 1
        hashed = flh.hash_matrix[:, 0].astype(int)
        flh.hash_counts = np.full((50, 3), n / 50 * (1 - flh.p) / 2)
        flh.hash_counts[np.arange(50), hashed] = n / 50 * flh.p
        flh.n, flh.last_estimated = n, 0
        estimates.append([float(x) / n for x in flh.estimate_all(range(1, 31), suppress_warnings=True)])
    before = float(flh.hash_counts.sum())
    flh.reset()
    bloom = rappor.RAPPORServer(0.5, 16, 2, 10)
    device = rappor.RAPPORClient(0.5, 16, bloom.get_hash_funcs())
    bits, ones = [], []
    for _ in range(500):
        report, cohort = device.privatise(1)
        mine = {function("0") for function in bloom.get_hash_funcs()[cohort]}  # the index of the value 1
        bits += [report[i] for i in mine]
        ones += [report[i] for i in range(16) if i not in mine]
        bloom.aggregate((np.array(report), cohort))
    bloom.reset()
    return {
        "g": [client.g, server.g],
        "flh bias": estimates,
        "flh after reset": [before, float(flh.hash_counts.sum()), flh.n],
        "rappor after reset": [float(sum(x.sum() for x in bloom.bloom_filters)), bloom.n],
        "two hashes": float(device.convert_f_to_eps(device.convert_eps_to_f(2.0), 2)),
        "set bits kept": float(np.mean(bits)),
        "clear bits set": float(np.mean(ones)),
    }


if __name__ == "__main__":
    json.dump({"multi-freq-ldpy": multi_freq(), "pure-ldp": pure()}, sys.stdout)
