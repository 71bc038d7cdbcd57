"""Searches for a list of operations that breaks the invariant, and shortens the list as far as possible.

python -m tests.faults.search [--first SEED] [--lists N] [--length L] [--mutant NAME]
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from . import mutants
from .code import Code
from .invariant import Violation
from .operations import Operation, random_list
from .virtual import Deadlock
from .world import World


@dataclass(frozen=True)
class Failure:
    """A run that breaks the invariant."""

    seed: int
    operations: tuple[Operation, ...]
    what: str

    def __str__(self) -> str:
        lines = [f"    {operation!r}," for operation in self.operations]
        return "\n".join([self.what, f"replay({self.seed}, [", *lines, "])"])


def replay(seed: int, operations: Sequence[Operation], code: Code | None = None) -> Counter[str]:
    """Runs a list and returns the number of events of each kind.

    Raises:
        Violation: if the invariant does not hold.
    """
    return World(seed, code or Code.real()).run(operations)


def fails(seed: int, operations: Sequence[Operation], code: Code) -> str | None:
    """Returns the violation after the list; None if the invariant holds."""
    try:
        replay(seed, operations, code)
    except (Violation, Deadlock) as found:
        return f"{type(found).__name__}: {found}"
    return None


def _fails(seed: int, code: Code, operations: Sequence[Operation]) -> bool:
    return fails(seed, operations, code) is not None


def shrunk(operations: Sequence[Operation], still_fails: Callable[[Sequence[Operation]], bool]) -> tuple[Operation, ...]:
    """Returns a part of the list that still fails. If any operation of the part is removed, the part no longer fails."""
    kept, size = list(operations), len(operations)
    while size:
        first, before = 0, len(kept)
        while first < len(kept):
            shorter = kept[:first] + kept[first + size :]
            if still_fails(shorter):
                kept = shorter
            else:
                first += size
        if size > 1 or len(kept) == before:
            size //= 2
    return tuple(kept)


def search(seeds: range, length: int, make: Callable[[], Code] = Code.real) -> tuple[Failure | None, Counter[str]]:
    """Returns the first failure of these seeds, shortened, and the number of events of each kind before this failure."""
    done: Counter[str] = Counter()
    code = make()
    for seed in seeds:
        operations = random_list(seed, length)
        done["lists"] += 1
        try:
            done += replay(seed, operations, code)
        except (Violation, Deadlock):
            short = shrunk(operations, partial(_fails, seed, code))
            return Failure(seed, short, fails(seed, short, code) or ""), done
    return None, done


def mutated(mutant: type[mutants.Mutant]) -> Callable[[], Code]:
    """Returns a function that makes the service's code with this mutant's fault."""

    def make() -> Code:
        code = Code.real()
        mutant.apply(code)
        return code

    return make


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--lists", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--mutant", choices=[mutant.__name__ for mutant in mutants.MUTANTS])
    asked = parser.parse_args()
    make = mutated(getattr(mutants, asked.mutant)) if asked.mutant else Code.real
    began = time.monotonic()
    failure, done = search(range(asked.first, asked.first + asked.lists), asked.length, make)
    for what, n in done.most_common():
        print(f"{n:10} {what}")
    print(f"{time.monotonic() - began:10.1f} seconds")
    print(failure or "the invariant held")
    return failure is not None


if __name__ == "__main__":
    sys.exit(main())
