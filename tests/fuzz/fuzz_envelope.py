"""The envelope under a fuzzer that is guided by the lines that an input reaches:

    python -m tests.fuzz.fuzz_envelope [CORPUS] [-runs=N] [-max_total_time=SECONDS] [libFuzzer's options]

The first byte of an input says when the log took it, the rest is the envelope. Half of its mutations are libFuzzer's own, half
are ours.
"""

import random
import sys


def main() -> None:
    """Fuzz until an input shows a disagreement, which libFuzzer then writes down, or as long as the options say."""
    import atheris  # here, since it is for Linux only, and must see the modules that it instruments being imported

    with atheris.instrument_imports(include=["agents.tally", "surveys.alike", "surveys.envelope"]):
        from .inputs import MUTATIONS, NOW_MS, SURVEY, Input, sound
        from .verdict import verdicts

    def compare(data: bytes) -> None:
        when = data[0] % 8 - 4 if data else 0
        verdicts([Input(data[1:], NOW_MS + when * SURVEY.step_ms)])

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        """A sound envelope to begin with; then one of our mutations, or libFuzzer's own."""
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
