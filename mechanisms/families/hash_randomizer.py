"""The device's code of local hashing (`mechanisms.families.local_hashing`)."""

from ldpstream.mechanisms.devices import DeviceRandom, Parameters, Randomizer, least_bytes, symbol_row
from ldpstream.mechanisms.families.grr import draw_symbol


class HashRandomizer(Randomizer):
    """Each memo and each report is the number of a hash function, then a symbol."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        assert parameters.g is not None
        assert parameters.functions is not None
        self._g, self._functions = parameters.g, parameters.functions
        self._function_bytes = least_bytes(self._functions)

    def enroll(self, random: DeviceRandom) -> int:
        return random.below(self._functions) if self.memoized else 0

    def memo_key(self, value: int, function: int) -> int:
        return hashed(self.parameters, function, value) if self.memoized else value

    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes:
        if self.memoized:
            return self._row(function, draw_symbol(key, self._g, self._first, random))
        function = random.below(self._functions)
        return self._row(function, hashed(self.parameters, function, key))

    def is_memo(self, memo: bytes, function: int) -> bool:
        if len(memo) != self.parameters.row_bytes:
            return False
        drawn, symbol = self._split(memo)
        return symbol < self._g and drawn == function

    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        function, symbol = self._split(memo)
        return self._row(function, draw_symbol(symbol, self._g, self._second, random))

    def _row(self, function: int, symbol: int) -> bytes:
        return symbol_row(self._functions, function) + symbol_row(self._g, symbol)

    def _split(self, row: bytes) -> tuple[int, int]:
        return int.from_bytes(row[: self._function_bytes], "little"), int.from_bytes(row[self._function_bytes :], "little")


def hashed(p: Parameters, function: int, value: int) -> int:
    """The symbol H_a(v) of `mechanisms.families.linear_pool`, from the parameters of a device."""
    assert p.g is not None
    assert p.stride is not None
    assert p.field is not None
    total, place = 0, value * p.stride % p.k
    while place:
        total = p.field.plus(total, p.field.times(function % p.g, place % p.g))
        function, place = function // p.g, place // p.g
    return total
