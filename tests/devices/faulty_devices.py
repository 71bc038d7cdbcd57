"""Devices with one fault each, for the tests of the conformance check."""

from random import Random
from typing import Any

from ldpstream.mechanisms import Mechanism

from .foreign_device import ForeignDevice, Row


class WrongP(ForeignDevice):
    """Keeps the value, memo or bit too often."""

    def toss(self, p: float) -> bool:
        return super().toss(min(1.0, p * 1.15))


class FreshMemo(ForeignDevice):
    """Draws a memo for every report."""

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        self.memos.clear()
        return super().first(a, value, step)


class MemoSent(ForeignDevice):
    """Draws a report once for each memo, and sends it again."""

    def row(self, a: int, value: int, step: int) -> Row:
        self.drawn: dict[int, Row] = getattr(self, "drawn", {})
        return self.drawn.setdefault(value, super().row(a, value, step))


class FreshFunction(ForeignDevice):
    """Draws the hash function again at every report."""

    def row(self, a: int, value: int, step: int) -> Row:
        self.functions[a] = self.function(self.mechanisms[a])
        return super().row(a, value, step)


class WrongHash(ForeignDevice):
    """Adds digits as numbers, not in the field."""

    def hash(self, m: Any, function: int, value: int) -> int:
        return int(function * value % m.g)


class BiasedModulo(ForeignDevice):
    """Draws as many random bits as n has, and reduces this number modulo n."""

    def below(self, n: int) -> int:
        return self.random.getrandbits(n.bit_length()) % n


class LastBitInClear(ForeignDevice):
    """Never randomizes the last bit."""

    def bits(self, bits: list[int], p: float, q: float) -> list[int]:
        return [*super().bits(bits, p, q)[:-1], bits[-1]]


class WrongOdds(ForeignDevice):
    """Prefers the values of its memo too much."""

    def odds(self, m: Any) -> float:
        return 2 * super().odds(m)


class BiasedFloyd(ForeignDevice):
    """Draws the numbers of Floyd's algorithm from a range that is too short by one."""

    def some(self, values: list[int], n: int) -> list[int]:
        places: set[int] = set()
        for last in range(len(values) - n, len(values)):
            drawn = self.below(max(last, 1))
            places.add(last if drawn in places else drawn)
        return [values[place] for place in places]


class WaveAroundTheValue(ForeignDevice):
    """Centres the wave on the cell with the value's number; the first cells are then likelier for small values."""

    def once(self, m: Any, value: int) -> Row:
        return max(super().once(m, value) - m.width // 2, 0)


class OtherCellsFromTheValue(ForeignDevice):
    """Counts the other cells from the end of the wave, and does not reach the last cells before the value."""

    def far_cell(self, m: Any, value: int) -> int:
        return int((value + m.width + self.below(m.k - 2)) % m.cells)


class TwoReportsInAWindow(ForeignDevice):
    """Sometimes reports at step 4, although its phase has another step."""

    def due(self, a: int, step: int) -> bool:
        return super().due(a, step) or (step == 4 and self.random.random() < 0.1)


class OnePhase(ForeignDevice):
    """Prefers the first phase."""

    def phase(self, w: int) -> int:
        return min(self.below(w + 1), w - 1)


class OnePhaseForAllAttributes(ForeignDevice):
    def due(self, a: int, step: int) -> bool:
        return super().due(0, step)


class NoLifetime(ForeignDevice):
    """Does not stop after its last report."""

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        sent = super().first(a, value, step)
        self.made[a] = 0
        return sent


class Skips(ForeignDevice):
    """Leaves out a report."""

    def due(self, a: int, step: int) -> bool:
        return super().due(a, step) and self.random.random() < 0.99


class FirstAttribute(ForeignDevice):
    """Answers the first attribute too often."""

    def sample(self, d: int) -> int:
        return min(self.below(d + 1), d - 1)


class BothAttributes(ForeignDevice):
    """Answers all attributes under smp."""

    def answers(self, a: int) -> bool:
        return True


class NoFakes(ForeignDevice):
    """Answers every attribute with the true value under rs+fd."""

    def encoded(self, a: int, value: int) -> int:
        return value


class EachAttributeTrueByItself(ForeignDevice):
    """Draws for each attribute by itself whether it is true."""

    def encoded(self, a: int, value: int) -> int:
        self.true: list[int] = getattr(self, "true", [self.below(2) for _ in self.mechanisms])
        return value if self.true[a] else self.fakes[a]


class OneDrawForAllAttributes(ForeignDevice):
    """Uses the same random numbers for every attribute."""

    def row(self, a: int, value: int, step: int) -> Row:
        self.seed: int = getattr(self, "seed", self.random.getrandbits(60))
        mine, self.random = self.random, Random(self.seed + step)
        drawn = super().row(a, value, step)
        self.random = mine
        return drawn


class FreshKeyAtARetry(ForeignDevice):
    """Draws a key again for each attempt."""

    def repeated(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        envelope, _ = super().repeated(a, value, step)
        return envelope, self.key(envelope)


class FreshReportAtARetry(ForeignDevice):
    """Draws a report again for each attempt."""

    def repeated(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        return self.first(a, value, step)


class HexKey(ForeignDevice):
    """Writes keys as hexadecimal digits."""

    def key(self, envelope: bytes) -> str:
        return self.random.randbytes(16).hex()


class WeakKey(ForeignDevice):
    """Draws keys with a generator of letters, so that some bits are constant."""

    def key(self, envelope: bytes) -> str:
        return "".join(self.random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(21)) + "A"


class FewFunctions(ForeignDevice):
    """Draws its hash function from half of the functions."""

    def function(self, m: Mechanism) -> int:
        return super().function(m) // 2


class KeptFunction(ForeignDevice):
    """Uses one hash function for all reports of a one-time mechanism."""

    def hash(self, m: Any, function: int, value: int) -> int:
        return super().hash(m, self.kept, value)

    def once(self, m: Any, value: int) -> Row:
        self.kept: int = getattr(self, "kept", self.below(m.pool.size))
        return self.kept, super().once(m, value)[1]


class OneCoinForTwoBits(ForeignDevice):
    """Uses one random number for two neighbouring bits."""

    def bits(self, bits: list[int], p: float, q: float) -> list[int]:
        drawn = [self.random.random() for _ in range(len(bits) // 2)]
        return [int(drawn[i // 2] < (p if bit else q)) for i, bit in enumerate(bits)]


class WrongStep(ForeignDevice):
    """Counts steps from 1."""

    def first(self, a: int, value: int, step: int) -> tuple[bytes, str]:
        return super().first(a, value, step + 1)
