"""Devices that leak the value or the identity in what travels in clear, or by a small bias, for the tests of the check.

`python -m tests.devices.leaking_devices` measures the power of the check for each of them: the table of
docs/reference/conformance.md.
"""

import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from random import Random
from typing import Any

from msgspec.structs import replace

from devices.conformance.conformance import check_device
from ldpstream.surveys import Cohort, Survey
from tests.producers.samples import level, make_survey

from .foreign_device import ForeignDevice, Row, calls


class FromTheFirstValue(ForeignDevice):
    """Makes a choice from the value of its first call."""

    def report(self, a: int, value: int, step: int) -> tuple[bytes, str] | None:
        if not getattr(self, "chosen", False):
            self.chosen = True
            self.choose(value)
        return super().report(a, value, step)

    def choose(self, value: int) -> None: ...


class AttributeFromTheValue(FromTheFirstValue):
    """Chooses its attribute by the value."""

    def choose(self, value: int) -> None:
        self.sampled = value % len(self.mechanisms)


class LevelFromTheValue(FromTheFirstValue):
    """Chooses its level by the value."""

    def choose(self, value: int) -> None:
        self.level = [value % len(mechanisms) for mechanisms in self.survey.mechanisms]
        self.mechanisms = [m[level].device for m, level in zip(self.survey.mechanisms, self.level, strict=True)]


class CohortFromTheValue(FromTheFirstValue):
    """Chooses its cohort by the value."""

    def choose(self, value: int) -> None:
        self.cohort = value // 2


class PhaseFromTheValue(FromTheFirstValue):
    """Chooses its phase by the value."""

    def choose(self, value: int) -> None:
        self.phases = [value % m.every_steps for m in self.mechanisms]


class FunctionFromTheValue(FromTheFirstValue):
    """Chooses its hash function by the value."""

    def choose(self, value: int) -> None:
        self.functions = [value for _ in self.mechanisms]


class SilentForAValue(ForeignDevice):
    """Makes no report of value 0."""

    def report(self, a: int, value: int, step: int) -> tuple[bytes, str] | None:
        return super().report(a, value, step) if value else None


class KeyFromTheIdentity(ForeignDevice):
    """Hashes its identity and the step into a key."""

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        envelope, _ = super().first(a, value, step)
        hashed = sha256(f"{self.identity} {a} {step}".encode()).digest()[:16]
        self.sent[a, step] = envelope, urlsafe_b64encode(hashed).rstrip(b"=").decode()
        return self.sent[a, step]


class KeyFromTheValue(ForeignDevice):
    """Hashes the value, the step and 16 random bits into a key."""

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        envelope, _ = super().first(a, value, step)
        hashed = sha256(f"{value} {step} {self.below(2**16)}".encode()).digest()[:16]
        self.sent[a, step] = envelope, urlsafe_b64encode(hashed).rstrip(b"=").decode()
        return self.sent[a, step]


class ValueInTheKey(ForeignDevice):
    """Writes the value into the last byte of a random key, as the exclusive or with a constant."""

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        envelope, _ = super().first(a, value, step)
        key = self.random.randbytes(15) + bytes([value ^ 0x55])
        self.sent[a, step] = envelope, urlsafe_b64encode(key).rstrip(b"=").decode()
        return self.sent[a, step]


class DeviceInTheKey(ForeignDevice):
    """Has four random bytes of its own in every key."""

    def key(self, envelope: bytes) -> str:
        self.own: bytes = getattr(self, "own", self.random.randbytes(4))
        return urlsafe_b64encode(self.random.randbytes(12) + self.own).rstrip(b"=").decode()


class KeyFromASecret(ForeignDevice):
    """Hashes a random secret of the device and the step into a key. Nobody can detect this fault without the secret."""

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        self.secret: bytes = getattr(self, "secret", self.random.randbytes(16))
        envelope, _ = super().first(a, value, step)
        hashed = sha256(self.secret + bytes([a, step])).digest()[:16]
        self.sent[a, step] = envelope, urlsafe_b64encode(hashed).rstrip(b"=").decode()
        return self.sent[a, step]


class SeededByTheIdentity(ForeignDevice):
    """Seeds its generator with its identity."""

    def __init__(self, survey: Survey, random: Random, levels: list[int] | None = None, identity: int = 0) -> None:
        super().__init__(survey, Random(identity), levels, identity)
        self.random_key = random

    def key(self, envelope: bytes) -> str:
        return urlsafe_b64encode(self.random_key.randbytes(16)).rstrip(b"=").decode()


class ABitOfAnotherValue(ForeignDevice):
    """Sets the bit of value 1 if the value is 3."""

    def row(self, a: int, value: int, step: int) -> Row:
        drawn = super().row(a, value, step)
        return [*drawn[:1], 1, *drawn[2:]] if value == 3 else drawn


class OneNoiseForAllMemos(ForeignDevice):
    """Draws the difference between value and memo once for all values of an attribute (symbols)."""

    def row(self, a: int, value: int, step: int) -> Row:
        m: Any = self.mechanisms[a]
        noise = self.memos.setdefault((a, 0), self.symbol(m.k, 0, m.p1))
        return self.again(m, (value + noise) % m.k)


class OneCoinForAllMemos(ForeignDevice):
    """Uses one draw for all values: of the coin that keeps the value, and of the symbol in its place."""

    def row(self, a: int, value: int, step: int) -> Row:
        m: Any = self.mechanisms[a]
        kept, other = self.memos.setdefault((a, 0), (self.toss(m.p1), self.below(m.k - 1)))
        return self.again(m, value if kept else other + (other >= value))


class OneOtherSymbolForAllMemos(ForeignDevice):
    """Tosses a coin for each value, but has one symbol in place of the values that it does not keep."""

    def row(self, a: int, value: int, step: int) -> Row:
        m: Any = self.mechanisms[a]
        other = self.memos.setdefault((a, -1), self.below(m.k - 1))
        kept = self.memos.setdefault((a, value), self.toss(m.p1))
        return self.again(m, value if kept else other + (other >= value))


class SameUniformsForAllMemos(ForeignDevice):
    """Draws one number for each bit, for the memos of all values: the bug of a keyed hash that forgets the value."""

    def row(self, a: int, value: int, step: int) -> Row:
        m: Any = self.mechanisms[a]
        uniforms = self.memos.setdefault((a, 0), [self.random.random() for _ in range(m.k)])
        memo = [int(u < (m.p1 if v == value else m.q1)) for v, u in enumerate(uniforms)]
        return self.again(m, memo)


class MemosOfValues(ForeignDevice):
    """With local hashing, draws a memo for each value instead of each symbol."""

    def row(self, a: int, value: int, step: int) -> Row:
        m: Any = self.mechanisms[a]
        symbol = self.hash(m, self.functions[a], value)
        if (a, value) not in self.memos:
            self.memos[a, value] = self.symbol(m.g, symbol, m.p1)
        return self.functions[a], self.again(m, self.memos[a, value])


class BiasedCoins(ForeignDevice):
    """Every coin is 5 % too likely."""

    factor = 1.05

    def toss(self, p: float) -> bool:
        return super().toss(min(1.0, p * self.factor))


class CoinsBiasedByTenPercent(BiasedCoins):
    """Every coin is 10 % too likely."""

    factor = 1.1


class BiasOfATenth(ForeignDevice):
    """In one tenth of the devices, every coin is 5 % too likely."""

    share, factor = 0.1, 1.05

    def __init__(self, *arguments: Any) -> None:
        self.biased = False
        super().__init__(*arguments)
        self.biased = self.random.random() < self.share

    def toss(self, p: float) -> bool:
        return super().toss(min(1.0, p * self.factor) if self.biased else p)


class ClearInATenth(BiasOfATenth):
    """One tenth of the devices send the true value, or the bit of the true value."""

    factor = 1e9

    def bits(self, bits: list[int], p: float, q: float) -> list[int]:
        return bits if self.biased else super().bits(bits, p, q)


class ClearInAHundredth(ClearInATenth):
    """One hundredth of the devices send the true value."""

    share = 0.01


SPACED = {"name": "GRR", "mechanism": "GRR", "eps": 1.0, "every_steps": 3}
GRR, OSUE = make_survey({"a": (4, [level("GRR", eps_1=1.0)])}), make_survey({"a": (6, [level("L-OSUE", 2.0, 1.0)])})
TWO = make_survey({"a": (4, [level("GRR", eps_1=1.0)]), "b": (6, [level("L-OSUE", 2.0, 1.0)])})
LEVELS = make_survey({"a": (4, [level("GRR", eps_1=1.0), {**level("GRR", eps_1=1.0), "name": "other"}])})
COHORTS = replace(GRR, cohort=Cohort(name="version", values=("1", "2"), least=10))
PHASES, HASHED = make_survey({"a": (4, [SPACED])}), make_survey({"a": (6, [level("L-OLH", 3.0, 1.9)])})

MEMOS = make_survey({"a": (4, [level("L-GRR", 2.0, 1.4)])})
FEW_SYMBOLS = make_survey({"a": (6, [level("L-OLH", 2.0, 1.5)])})  # g = 5: two values have one symbol in one device of five

LEAKS: list[tuple[type[ForeignDevice], Survey, str]] = [  # the device, the survey, a part of the finding
    (AttributeFromTheValue, TWO, "sampled attribute, for each value"),
    (LevelFromTheValue, LEVELS, "another level than the program chose"),
    (CohortFromTheValue, COHORTS, "another cohort than the program chose"),
    (PhaseFromTheValue, PHASES, "phase, for each value"),
    (FunctionFromTheValue, HASHED, "number of the hash function, for each value"),
    (SilentForAValue, GRR, "no report at a step"),
    (KeyFromTheIdentity, GRR, "belongs to another envelope"),
    (KeyFromTheValue, GRR, "belongs to another envelope"),
    (ValueInTheKey, GRR, "bits of keys, for each bit and value"),
    (DeviceInTheKey, GRR, "equal bits of a device's first two keys"),
    (SeededByTheIdentity, GRR, "two runs"),
    (SeededByTheIdentity, OSUE, "two runs"),
    (ABitOfAnotherValue, OSUE, "for each pair of values"),
    (OneNoiseForAllMemos, MEMOS, "first reports of two values: both support their values"),
    (OneCoinForAllMemos, MEMOS, "first reports of two values: both support a third value"),
    (SameUniformsForAllMemos, OSUE, "first reports of two values: other bits set in both"),
    (MemosOfValues, FEW_SYMBOLS, "first reports of two values with one memo key"),
    (CoinsBiasedByTenPercent, GRR, "support the device's value"),
    (CoinsBiasedByTenPercent, OSUE, "bits of other values"),
    (BiasedCoins, GRR, "support the device's value"),
    (BiasedCoins, OSUE, "bits of other values"),
    (ClearInATenth, GRR, "support the device's value"),
    (ClearInATenth, OSUE, "support the device's value"),
]
MISSED: list[tuple[type[ForeignDevice], Survey]] = [
    (ClearInAHundredth, GRR), (ClearInAHundredth, OSUE), (BiasOfATenth, GRR), (BiasOfATenth, OSUE), (KeyFromASecret, GRR),
    (OneOtherSymbolForAllMemos, MEMOS),
]  # fmt: skip
DEVICES, STEPS, TIMES = 5000, 4, 20


def main() -> None:
    """Prints, for each device, how many of `TIMES` checks fail."""
    correct: list[tuple[type[ForeignDevice], Survey]] = [(ForeignDevice, survey) for survey in (GRR, OSUE, MEMOS, FEW_SYMBOLS)]
    for kind, survey in [*((kind, survey) for kind, survey, _ in LEAKS), *MISSED, *correct]:
        failed = sum(not check_device(survey, calls(survey, kind, DEVICES, STEPS, seed)).passed for seed in range(TIMES))
        names = ", ".join(m.name for mechanisms in survey.mechanisms for m in mechanisms)
        sys.stdout.write(f"{kind.__name__} ({names}): {failed} of {TIMES}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
