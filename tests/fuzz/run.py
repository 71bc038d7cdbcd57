"""Fuzzes a part of the service on several processes:

    python -m tests.fuzz.run envelopes|capsules|tables [--inputs N] [--seed S] [--processes P]

    envelopes   damaged envelopes; service and slow reference must agree
    capsules    damaged capsules and messages at the gateway behind a relay
    tables      count tables that no honest population makes; all published numbers must be finite and in range

Prints how often each verdict occurred. A disagreement ends the run with an error that has the input or its seed.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable

from lab.processes import process_pool

from . import odd_tables, run_relay
from .inputs import batch
from .verdict import verdicts

BATCH = 200
SHARE = 2_000


def share(seed: int, inputs: int) -> Counter[str]:
    """Makes this number of damaged envelopes from the seed, and returns how often each verdict occurred."""
    source, told = random.Random(seed), Counter[str]()
    for first in range(0, inputs, BATCH):
        told += verdicts(batch(source, min(BATCH, inputs - first)))
    return told


SHARES: dict[str, Callable[[int, int], Counter[str]]] = {
    "envelopes": share, "capsules": run_relay.share, "tables": odd_tables.share,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=SHARES)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    began, told = time.monotonic(), Counter[str]()
    sizes = [min(SHARE, asked.inputs - first) for first in range(0, asked.inputs, SHARE)]
    with process_pool(asked.processes) as pool:
        for part in pool.map(SHARES[asked.what], range(asked.seed, asked.seed + len(sizes)), sizes):
            told += part
    for verdict, n in told.most_common():
        print(f"{n:12,} {verdict}")
    print(f"{told.total():12,} inputs in {time.monotonic() - began:.0f} s, no disagreement")


if __name__ == "__main__":
    main()
