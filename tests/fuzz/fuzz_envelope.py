"""Coverage-guided fuzzing of the envelope:

    python -m tests.fuzz.fuzz_envelope [CORPUS] [-runs=N] [-max_total_time=SECONDS] [libFuzzer's options]

The first byte of an input determines the log's timestamp. The other bytes are the envelope. Half of the mutations are
libFuzzer's, and half are ours.
"""

import random
import sys


def main() -> None:
    """Fuzzes up to a limit in the options, or until service and reference disagree. libFuzzer saves the failing input."""
    import atheris  # atheris runs only on Linux, and must be imported before the modules that it instruments

    with atheris.instrument_imports(
        include=["ldpstream.agents.tally", "ldpstream.surveys.envelope", "ldpstream.surveys.envelope_groups"]
    ):
        from .inputs import MUTATIONS, NOW_MS, SURVEY, Input, sound
        from .verdict import verdicts

    def compare(data: bytes) -> None:
        when = data[0] % 8 - 4 if data else 0
        verdicts([Input(data[1:], NOW_MS + when * SURVEY.step_ms)])

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        """Returns a sound envelope, or `data` with one mutation, either ours or libFuzzer's."""
        source = random.Random(seed)
        if len(data) < 2 or source.random() < 0.02:
            return (b"\x04" + source.choice(sound()))[:max_size]
        if source.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return (data[:1] + source.choice(MUTATIONS)(data[1:], source))[:max_size]

    atheris.Setup(sys.argv, compare, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
