"""Fuzzes the estimators with count tables that no honest population makes, on several processes:

    python -m tests.fuzz.run_tables [--tables N] [--seed S] [--processes P]

One survey in twenty has 50 values or more. Prints each table for which something is wrong, with the seed that makes it again.
The exit status is 1 if there is such a table.
"""

import argparse
import itertools
import sys
import time
import warnings

from lab.processes import process_pool

from .odd_tables import OddTable, check

LARGE = 20  # one of so many surveys is large


def checked(seed: int) -> tuple[int, str]:
    """Checks the tables of a seed. Returns their number and an empty text; 1 and the fault if a check fails."""
    warnings.simplefilter("error")
    try:
        return check(seed, large=seed % LARGE == 0), ""
    except OddTable as error:
        return 1, str(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    began, tables, surveys, wrong = time.monotonic(), 0, 0, 0
    seeds = itertools.count(asked.seed)
    with process_pool(asked.processes) as pool:
        while tables < asked.tables:
            for n, said in pool.map(checked, itertools.islice(seeds, 100), chunksize=10):
                tables, surveys, wrong = tables + n, surveys + 1, wrong + bool(said)
                if said:
                    print(said, flush=True)
            print(f"{tables:12,} tables of {surveys:,} surveys, {wrong:,} wrong, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
