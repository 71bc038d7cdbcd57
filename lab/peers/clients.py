"""Measures the speed of other libraries' clients and servers; `lab.peers` runs this file in a separate virtual environment.

input      {n, k, eps, eps_inf, eps_1, seconds, repeats, mechanisms (optional)}
output     {"library", "mechanism", "what": "report" or "tabulate", "per_s", "n"}
           {"library", "mechanism", "what": "memory", "bytes"}      peak memory that reporting allocates, for each report
           {"library", "mechanism", "error"}
"""

import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module  # the project's environment does not have the libraries
from typing import Any, NamedTuple

MEMORY_REPORTS = 2000
FIRST = 100  # reports in each of the first two runs: the first run compiles, the second gives an approximate rate
FAST_FUNCTIONS = 1000  # hash functions of fast local hashing (FLH), which all devices share
Options = tuple[tuple[str, str, dict[str, bool]], ...]  # our name, the library's name, options for the same mechanism
Privatise = Callable[[int], Any]
Aggregate = Callable[[list[Any]], object]


class Peer(NamedTuple):
    library: str
    mechanism: str
    privatise: Privatise
    aggregate: Aggregate | None


def multi_freq_ldpy(k: int, eps: float, eps_inf: float, eps_1: float) -> Iterator[Peer]:
    def peer(mechanism: str, client: Callable[..., Any], server: Callable[..., Any] | None, **options: Any) -> Peer:
        budgets = (eps_inf, eps_1) if mechanism.startswith("L-") else (eps,)
        domain = () if mechanism.endswith(("UE", "THE")) else (k,)  # bit aggregators have no parameter k

        aggregate = None if server is None else lambda reports: server(reports, *domain, *budgets, **options)
        return Peer("multi-freq-ldpy", mechanism, lambda v: client(v, k, *budgets, **options), aggregate)

    once: Options = (
        ("GRR", "GRR", {}), ("SS", "SS", {}), ("SUE", "UE", {"optimal": False}), ("OUE", "UE", {"optimal": True}),
        ("THE", "HE", {}), ("BLH", "LH", {"optimal": False}), ("OLH", "LH", {"optimal": True}),
    )  # fmt: skip
    memoized: Options = (
        ("L-GRR", "L_GRR", {}), ("L-SUE", "L_SUE", {}), ("L-OSUE", "L_OSUE", {}), ("L-SOUE", "L_SOUE", {}),
        ("L-OUE", "L_OUE", {}), ("L-BLH", "L_LH", {"optimal": False}), ("L-OLH", "L_LH", {"optimal": True}),
    )  # fmt: skip
    for folder, peers in (("pure_frequency_oracles", once), ("long_freq_est", memoized)):
        for mechanism, name, options in peers:
            module = import_module(f"multi_freq_ldpy.{folder}.{name}")
            # no server of THE: the library's server applies the threshold, our server only counts
            server = None if mechanism == "THE" else getattr(module, f"{name}_Aggregator_MI")
            yield peer(mechanism, getattr(module, f"{name}_Client"), server, **options)


def pure_ldp(k: int, eps: float, eps_inf: float, eps_1: float) -> Iterator[Peer]:
    def peer(mechanism: str, client: Any, server: Any) -> Peer:
        def aggregate(reports: list[Any]) -> object:
            for report in reports:
                server.aggregate(report)
            if mechanism == "FLH":  # the other servers count the values in `aggregate`
                server.check_and_update_estimates()
            return server

        return Peer("pure-ldp", mechanism, lambda v: client.privatise(v + 1), aggregate if server is not None else None)

    peers: Options = (
        ("GRR", "direct_encoding.DE", {}), ("SUE", "unary_encoding.UE", {}), ("OUE", "unary_encoding.UE", {"use_oue": True}),
        ("THE", "histogram_encoding.HE", {}), ("BLH", "local_hashing.LH", {}), ("OLH", "local_hashing.LH", {"use_olh": True}),
    )  # fmt: skip
    for mechanism, place, options in peers:
        module_name, name = place.split(".")
        module = import_module(f"pure_ldp.frequency_oracles.{module_name}")
        server = None if mechanism == "THE" else getattr(module, f"{name}Server")(eps, k, **options)
        yield peer(mechanism, getattr(module, f"{name}Client")(eps, k, **options), server)
    hashing = import_module("pure_ldp.frequency_oracles.local_hashing")
    fast = {"k": FAST_FUNCTIONS, "use_olh": True}
    yield peer("FLH", hashing.FastLHClient(eps, k, **fast), hashing.FastLHServer(eps, k, **fast))


def timed(run: Callable[[int], object], n: int, seconds: float, repeats: int) -> tuple[float, int]:
    run(min(FIRST, n))
    start = time.process_time()
    run(min(FIRST, n))
    rate = min(FIRST, n) / (time.process_time() - start)
    size = max(min(FIRST, n), min(n, int(rate * seconds)))
    best = 0.0
    for _ in range(repeats):
        start = time.process_time()
        run(size)
        best = max(best, size / (time.process_time() - start))
    return best, size


def main() -> None:
    task = json.load(sys.stdin)
    n, k, seconds, repeats = task["n"], task["k"], task["seconds"], task["repeats"]
    values = [(i * 7919) % k for i in range(n)]
    for library in (multi_freq_ldpy, pure_ldp):
        for peer in library(k, task["eps"], task["eps_inf"], task["eps_1"]):
            if peer.mechanism not in task.get("mechanisms", [peer.mechanism]):
                continue
            about = {"library": peer.library, "mechanism": peer.mechanism}
            try:
                for line in measure(peer, values, seconds, repeats):
                    emit(about | line)
            except Exception as error:
                emit(about | {"error": f"{type(error).__name__}: {error}"})


def measure(peer: Peer, values: list[int], seconds: float, repeats: int) -> Iterator[dict[str, Any]]:
    reports: list[Any] = []

    def privatise(size: int) -> None:
        reports[:] = map(peer.privatise, values[:size])

    per_s, size = timed(privatise, len(values), seconds, repeats)
    yield {"what": "report", "per_s": per_s, "n": size}
    aggregate = peer.aggregate
    if aggregate is not None:
        per_s, size = timed(lambda size: aggregate(reports[:size]), len(reports), seconds, repeats)
        yield {"what": "tabulate", "per_s": per_s, "n": size}
    reports.clear()
    tracemalloc.start()
    privatise(few := min(len(values), MEMORY_REPORTS))
    yield {"what": "memory", "bytes": tracemalloc.get_traced_memory()[1] / few}
    tracemalloc.stop()


def emit(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
