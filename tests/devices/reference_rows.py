"""The reference device's draws, rows and envelopes."""

from tests.devices.reference_check import Json

# ---- draws


class Random:
    """Draws from the given bytes, in order."""

    def __init__(self, script: bytes) -> None:
        self.left = script

    def bytes(self, n: int) -> bytes:
        assert len(self.left) >= n
        drawn, self.left = self.left[:n], self.left[n:]
        return drawn

    def below(self, n: int) -> int:
        bits = (n - 1).bit_length()
        while True:
            drawn = int.from_bytes(self.bytes((bits + 7) // 8), "big") % (1 << bits)
            if drawn < n:
                return drawn

    def toss(self, coin: Json, n: int) -> list[bool]:
        smaller, undecided = [False] * n, list(range(n))
        for digit in bytes.fromhex(coin["digits"]):
            drawn = dict(zip(undecided, self.bytes(len(undecided))))
            for i in undecided:
                smaller[i] = drawn[i] < digit
            undecided = [i for i in undecided if drawn[i] == digit]
        return [answer != coin["inverted"] for answer in smaller]


def symbol(s: int, m: int, keep: Json, random: Random) -> int:
    if random.toss(keep, 1)[0]:
        return s
    r = random.below(m - 1)
    return r + 1 if r >= s else r


def cell(v: int, k: int, width: int, keep: Json, random: Random) -> int:
    if random.toss(keep, 1)[0]:
        return v + random.below(width)
    r = random.below(k - 1)
    return r + width if r >= v else r


def member(code: int, p: Json, coin: Json, random: Random) -> int:
    m, n = p["choices"], p["k"] - p["choices"]
    padded = [v for v in range(n) if code >> v & 1]
    padded += range(n, n + m - len(padded))
    if random.toss(coin, 1)[0]:
        return int(padded[random.below(m)])
    return sorted(set(range(p["k"])) - set(padded))[random.below(n)]


def bits(b: list[int], coins: Json, random: Random) -> list[int]:
    out = [0] * len(b)
    for which, bit in (("one", 1), ("zero", 0)):
        places = [i for i, given in enumerate(b) if given == bit]
        for i, answer in zip(places, random.toss(coins[which], len(places))):
            out[i] = int(answer)
    return out


def subset(v: int, p: Json, random: Random) -> list[int]:
    k, omega = p["k"], p["omega"]
    (yes,) = random.toss(p["coins"]["report"]["with_value"], 1)
    members: set[int] = set()
    for j in range(k - 1 - (omega - yes), k - 1):
        r = random.below(j + 1)
        members.add(j if r in members else r)
    chosen = {r + 1 if r >= v else r for r in members} | ({v} if yes else set())
    return [int(i in chosen) for i in range(k)]


def hash_symbol(p: Json, function: int, value: int) -> int:
    r, e, f = p["field"]["characteristic"], p["field"]["degree"], p["field"]["polynomial"]
    total, place = [0] * e, value * p["stride"] % p["k"]
    for _ in range(p["digits"]):
        product = [0] * (2 * e)
        for i, x in enumerate(_digits(function % p["g"], r, e)):
            for j, y in enumerate(_digits(place % p["g"], r, e)):
                product[i + j] += x * y
        for top in range(2 * e - 1, e - 1, -1):  # subtracts multiples of f until the degree is below e
            for i in range(e):
                product[top - e + i] -= product[top] * f[i]
        total = [(a + b) % r for a, b in zip(total, product)]
        function, place = function // p["g"], place // p["g"]
    return int(sum(c * r**i for i, c in enumerate(total)))


def _digits(number: int, base: int, n: int) -> list[int]:
    return [number // base**i % base for i in range(n)]


# ---- rows


def width(symbols: int) -> int:
    return next(n for n in (1, 2, 4) if symbols - 1 < 256**n)


def pack(values: list[int]) -> bytes:
    return bytes(sum(bit << i for i, bit in enumerate(values[j : j + 8])) for j in range(0, len(values), 8))


def unpack(row: bytes, k: int) -> list[int]:
    return [row[v // 8] >> v % 8 & 1 for v in range(k)]


def first_row(p: Json, coins: Json, key: int, function: int | None, random: Random) -> bytes:
    """The first or only round. `key` is the value, or the hashed symbol."""
    if "member" in coins:
        return member(key, p, coins["member"], random).to_bytes(width(p["k"]), "little")
    if "one" in coins:
        return pack(bits([int(i == key) for i in range(p["k"])], coins, random))
    if function is None:
        return symbol(key, p["k"], coins["keep"], random).to_bytes(width(p["k"]), "little")
    drawn = symbol(key, p["g"], coins["keep"], random)
    return function.to_bytes(width(p["functions"]), "little") + drawn.to_bytes(width(p["g"]), "little")


def second_row(p: Json, memo: bytes, random: Random) -> bytes:
    coins = p["coins"]["report"]
    if "one" in coins:
        return pack(bits(unpack(memo, p["k"]), coins, random))
    split = width(p["functions"]) if "functions" in p else 0
    function = int.from_bytes(memo[:split], "little") if split else None
    return first_row(p, coins, int.from_bytes(memo[split:], "little"), function, random)


def once(p: Json, value: int, random: Random) -> bytes:
    if "omega" in p:
        return pack(subset(value, p, random))
    if "width" in p:
        drawn = cell(value, p["k"], p["width"], p["coins"]["report"]["keep"], random)
        return drawn.to_bytes(width(p["k"] - 1 + p["width"]), "little")
    if "functions" not in p:
        return first_row(p, p["coins"]["report"], value, None, random)
    function = random.below(p["functions"])
    return first_row(p, p["coins"]["report"], hash_symbol(p, function, value), function, random)


# ---- envelopes


def seal(fingerprint: str, attribute: int, level: int, step: int, n: int, rows: bytes, cohort: int | None) -> bytes:
    numbers = [attribute, level, step, n] if cohort is None else [attribute, level, step, n, cohort]
    head = bytes([0x93 + len(numbers), 1]) + _binary(bytes.fromhex(fingerprint))
    return head + b"".join(map(_integer, numbers)) + _binary(rows)


def _integer(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    tag, size_ = next((0xCC + i, 2**i) for i in range(4) if number < 256**2**i)
    return bytes([tag]) + number.to_bytes(size_, "big")


def _binary(raw: bytes) -> bytes:
    tag, size_ = next((0xC4 + i, 2**i) for i in range(3) if len(raw) < 256**2**i)
    return bytes([tag]) + len(raw).to_bytes(size_, "big") + raw
