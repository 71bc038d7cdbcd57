"""A small device of another author, for the tests of the conformance check, and the same device with faults.

The device keeps its memory in the process and draws from a seeded generator. It uses our mechanisms only for their
probabilities, their row format and their hash functions.
"""

import base64
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np

from devices.conformance.calls import Call
from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.sets import set_codes
from ldpstream.surveys import Attribute, Survey
from ldpstream.surveys.envelope import seal
from tests.mechanisms import reference

Row = Any  # a symbol, a list of bits, or a pair of function and symbol


class ForeignDevice:
    """A correct device. A subclass overrides one method and is a device with one fault."""

    def __init__(self, survey: Survey, random: Random, levels: list[int] | None = None, identity: int = 0) -> None:
        self.survey, self.random, self.identity = survey, random, identity
        self.memos: dict[tuple[int, int], Row] = {}
        self.sent: dict[tuple[int, int], tuple[bytes, str]] = {}
        self.made = [0] * len(survey.attributes)
        self.level = list(levels or [0] * len(survey.mechanisms))
        self.cohort = 0 if survey.cohort is None else identity % len(survey.cohort.values)
        self.mechanisms = [m[level].device for m, level in zip(survey.mechanisms, self.level, strict=True)]
        self.sampled = self.sample(len(self.mechanisms))
        self.functions = [self.function(m) for m in self.mechanisms]
        self.fakes = [self.below(m.k) for m in self.mechanisms]
        self.phases = [self.phase(m.every_steps) for m in self.mechanisms]

    # ---- choices

    def below(self, n: int) -> int:
        return self.random.randrange(n)

    def sample(self, d: int) -> int:
        return self.below(d)

    def function(self, m: Any) -> int:
        return self.below(m.pool.size) if m.n_enrolments > 1 else 0

    def phase(self, w: int) -> int:
        return self.below(w)

    def key(self, envelope: bytes) -> str:
        return base64.urlsafe_b64encode(self.random.randbytes(16)).rstrip(b"=").decode()

    # ---- a report

    def report(self, a: int, value: int, step: int) -> tuple[bytes, str] | None:
        m = self.mechanisms[a]
        if not self.answers(a) or not self.due(a, step):
            return None
        if (a, step) in self.sent:
            return self.repeated(a, value, step)
        if m.lifetime_reports is not None and self.made[a] >= m.lifetime_reports:
            return None
        return self.first(a, value, step)

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        self.made[a] += 1
        row = self.row(a, self.encoded(a, value), step)
        envelope = seal(self.survey, a, self.level[a], step, _packed(self.mechanisms[a], row), self.cohort)
        self.sent[a, step] = envelope, self.key(envelope)
        return self.sent[a, step]

    def repeated(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        return self.sent[a, step]

    def answers(self, a: int) -> bool:
        return self.survey.collection != "smp" or a == self.sampled

    def due(self, a: int, step: int) -> bool:
        return step % self.mechanisms[a].every_steps == self.phases[a]

    def encoded(self, a: int, value: int) -> int:
        return self.fakes[a] if self.survey.collection == "rs+fd" and a != self.sampled else value

    def row(self, a: int, value: int, step: int) -> Row:
        m = self.mechanisms[a]
        if not m.memoized:
            return self.once(m, value)
        key = self.memo_key(a, value)
        if (a, key) not in self.memos:
            self.memos[a, key] = self.memo(m, key)
        drawn = self.again(m, self.memos[a, key])
        return (self.functions[a], drawn) if m.n_enrolments > 1 else drawn

    def memo_key(self, a: int, value: int) -> int:
        m = self.mechanisms[a]
        return self.hash(m, self.functions[a], value) if m.n_enrolments > 1 else value

    # The names of the coins say how to draw. Coins with other names draw from the tables of `tests.mechanisms.reference`.

    def once(self, m: Any, value: int) -> Row:
        match sorted(m.coins()["report"]):
            case ["keep"] if hasattr(m, "pool"):
                function = self.below(m.pool.size)
                return function, self.symbol(m.g, self.hash(m, function, value), m.p)
            case ["keep"] if hasattr(m, "width"):
                return value + self.below(m.width) if self.toss(m.keep) else self.far_cell(m, value)
            case ["keep"]:
                return self.symbol(m.k, value, m.p)
            case ["member"]:
                return self.member(m, value, m.eps_1)
            case ["one", "zero"]:
                return self.bits(_one_hot(m.k, value), m.p, m.q)
            case ["with_value"]:
                return self.subset(m.k, m.omega, value, m.p)
        return self.pick(reference.written(m).one_round(m)[value], reference.all_reports(m)[0])

    def memo(self, m: Any, key: int) -> Row:
        match sorted(m.coins()["memo"]):
            case ["keep"]:
                return self.symbol(getattr(m, "g", m.k), key, m.p1)
            case ["member"]:
                return self.member(m, key, m.eps_inf)
            case ["one", "zero"]:
                return self.bits(_one_hot(m.k, key), m.p1, m.q1)
            case ["with_value"]:
                return self.subset(m.k, m.memo_size, key, m.p1)
        tables = reference.written(m).rounds(m)
        return self.pick(tables[0][key].ravel(), range(len(tables[1])))

    def again(self, m: Any, memo: Row) -> Row:
        match sorted(m.coins()["report"]):
            case ["keep"]:
                return self.symbol(getattr(m, "g", m.k), memo, m.p2)
            case ["one", "zero"]:
                return self.bits(memo, m.p2, m.q2)
            case [] if hasattr(m, "odds"):
                return self.overlapping(m, memo)
        return self.pick(reference.written(m).rounds(m)[1][memo], reference.all_reports(m)[0])

    def pick(self, chances: Any, outcomes: Any) -> Row:
        return outcomes[self.random.choices(range(len(chances)), chances)[0]]

    # ---- draws

    def far_cell(self, m: Any, value: int) -> int:
        other = self.below(m.k - 1)
        return int(other + m.width * (other >= value))

    def toss(self, p: float) -> bool:
        return self.random.random() < p

    def symbol(self, n: int, symbol: int, p: float) -> int:
        if self.toss(p):
            return symbol
        other = self.below(n - 1)
        return other + (other >= symbol)

    def bits(self, bits: list[int], p: float, q: float) -> list[int]:
        return [int(self.toss(p if bit else q)) for bit in bits]

    def member(self, m: Any, code: int, eps: float) -> Row:
        """A member of the padded set, or another symbol."""
        n = m.k - m.choices
        padded = [v for v in range(n) if code >> v & 1]
        padded += range(n, m.k - len(padded))
        if self.toss(m.choices / (m.choices + n * math.exp(-eps))):
            return padded[self.below(len(padded))]
        return [s for s in range(m.k) if s not in padded][self.below(n)]

    def some(self, values: list[int], n: int) -> list[int]:
        return self.random.sample(values, n)

    def subset(self, k: int, size: int, value: int, p: float) -> Row:
        """A set of this size as bits. It has the value with probability p."""
        inside = self.toss(p)
        others = self.some([v for v in range(k) if v != value], size - inside)
        return [int(v in others or (v == value and inside)) for v in range(k)]

    def overlapping(self, m: Any, memo: Row) -> Row:
        """A set of ω values as bits: each value that it has in common with the memo makes it θ times as likely."""
        ones, zeros = ([v for v in range(m.k) if memo[v] == bit] for bit in (1, 0))
        sizes = range(min(len(ones), m.omega) + 1)
        ways = [math.comb(len(ones), j) * math.comb(len(zeros), m.omega - j) * self.odds(m) ** j for j in sizes]
        common = self.random.choices(sizes, ways)[0]
        drawn = self.some(ones, common) + self.some(zeros, m.omega - common)
        return [int(v in drawn) for v in range(m.k)]

    def odds(self, m: Any) -> float:
        return 1 + float(m.odds.excess)

    def hash(self, m: Any, function: int, value: int) -> int:
        return int(m.pool.hash(np.array([function]), np.array([value]))[0])


def _one_hot(k: int, value: int) -> Row:
    return [int(v == value) for v in range(k)]


def _packed(m: Mechanism, row: Row) -> Any:
    if m.report_dtype.shape and isinstance(row, list):
        return np.packbits(np.array(row, np.uint8), bitorder="little")[None]
    return np.array([row], m.report_dtype)


def _value(attribute: Attribute, number: int) -> int:
    """The number-th value; for an attribute with several answers, the code of the number-th set."""
    if attribute.most is None:
        return number % attribute.k
    codes = set_codes(attribute.k - attribute.most, attribute.most)
    return int(codes[number % len(codes)])


def calls(survey: Survey, kind: type[ForeignDevice], n: int, steps: int = 4, seed: int = 1) -> Iterator[Call]:
    """The calls of n devices, two runs of each identity: all attributes at all steps.

    A value changes in the middle and returns in the last quarter. Both runs of an identity have the same values and levels.
    """
    random, levels = Random(seed), [0] * len(survey.mechanisms)
    for number in range(n):
        identity, run = divmod(number, 2)
        if run == 0:
            levels = [random.randrange(len(mechanisms)) for mechanisms in survey.mechanisms]
        device = kind(survey, random, levels, identity)
        cohort = device.cohort
        for step in range(steps):
            for a, attribute in enumerate(survey.attributes):
                value = _value(attribute, identity + (steps // 2 <= step < 3 * steps // 4))
                made = device.report(a, value, step)
                place = f"device {number} step {step}"
                envelope, key = made or (None, None)
                yield Call(place, str(identity), a, value, step, envelope, key, levels[a], cohort, run)
