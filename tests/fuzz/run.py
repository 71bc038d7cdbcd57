"""Fuzzes the envelope with batches of mutated envelopes, on several processes:

    python -m tests.fuzz.run [--inputs N] [--seed S] [--processes P]

Prints the number of accepted inputs and, for each reason, the number of refused inputs. If service and reference disagree,
prints the input that shows the disagreement.
"""

import argparse
import random
import sys
import time
from collections import Counter

from lab.processes import process_pool

from .inputs import batch
from .verdict import verdicts

BATCH = 200
SHARE = 20_000


def share(seed: int, inputs: int) -> Counter[str]:
    """Makes this number of inputs from the seed, and returns how often each verdict occurred."""
    source, told = random.Random(seed), Counter[str]()
    for first in range(0, inputs, BATCH):
        told += verdicts(batch(source, min(BATCH, inputs - first)))
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    began, told = time.monotonic(), Counter[str]()
    sizes = [min(SHARE, asked.inputs - first) for first in range(0, asked.inputs, SHARE)]
    with process_pool(asked.processes) as pool:
        for part in pool.map(share, range(asked.seed, asked.seed + len(sizes)), sizes):
            told += part
    for verdict, n in told.most_common():
        print(f"{n:12,} {verdict}")
    seconds = time.monotonic() - began
    print(f"{told.total():12,} inputs in {seconds:.0f} s, {told.total() / seconds:,.0f} per second, no disagreement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
