"""A device written from docs/write_a_device.md and docs/wire_format.md alone, with the standard library and no module of ours.

The tests run the vectors through this device. It keeps its memory in dictionaries, so it is for tests only.
"""

import hashlib
import json
import math
import re
from base64 import urlsafe_b64encode
from typing import Any

Json = dict[str, Any]
TOLERANCE = 1e-9
MAX_LOSS = 700
SYMBOLS, BITS, SUBSET = {"keep"}, {"one", "zero"}, {"with_value"}
COINS: dict[str, dict[str, set[str]]] = {
    **{name: {"report": SYMBOLS} for name in ("GRR", "SW", "BLH", "OLH")},
    **{name: {"report": BITS} for name in ("SUE", "OUE", "THE")},
    "SS": {"report": SUBSET},
    **{name: {"memo": SYMBOLS, "report": SYMBOLS} for name in ("L-GRR", "L-BLH", "L-OLH")},
    **{name: {"memo": BITS, "report": BITS} for name in ("L-SUE", "L-OSUE", "L-SOUE", "L-OUE")},
}


class Refused(Exception):
    """The device survey is inconsistent, weaker than its promise, or unknown to this device.

    Args:
        check: number of the check that failed first, as in the document.
    """

    def __init__(self, check: int, reason: str) -> None:
        super().__init__(reason)
        self.check = check


class StepForgotten(Exception):
    """The step can be reported no more."""


# ---- the check of the device survey


def probabilities(coin: Json) -> tuple[float, float]:
    """Returns (P, N), the probabilities of yes and no."""
    smaller = 0.0
    for digit in reversed(bytes.fromhex(coin["digits"])):
        smaller = (smaller + digit) / 256
    return (1 - smaller, smaller) if coin["inverted"] else (smaller, 1 - smaller)


def losses(p: Json) -> list[float]:
    """Returns the loss of the memo (for memoized mechanisms) and of a report."""
    rounds = [p["coins"]["memo"], p["coins"]["report"]] if "memo" in p["coins"] else [p["coins"]["report"]]
    if "keep" in rounds[0]:
        m = p.get("g") or p["k"]
        pairs = [(yes, no / (m - 1)) for yes, no in (probabilities(coins["keep"]) for coins in rounds)]
        found = [math.log(pairs[0][0] / p.get("width", 1) / pairs[0][1])]
        if len(pairs) == 2:
            (p1, q1), (p2, q2) = pairs
            found.append(math.log((p1 * p2 + (m - 1) * q1 * q2) / (p1 * q2 + q1 * p2 + (m - 2) * q1 * q2)))
    elif "one" in rounds[0]:
        p1, n1, q1, m1 = *probabilities(rounds[0]["one"]), *probabilities(rounds[0]["zero"])
        found = [math.log(p1 * m1 / (n1 * q1))]
        if len(rounds) == 2:
            p2, n2, q2, m2 = *probabilities(rounds[1]["one"]), *probabilities(rounds[1]["zero"])
            yes, no = (p1 * p2 + n1 * q2) * (q1 * n2 + m1 * m2), (p1 * n2 + n1 * m2) * (q1 * p2 + m1 * q2)
            found.append(math.log(yes / no))
    else:
        yes, no = probabilities(rounds[0]["with_value"])
        found = [math.log(yes / p["omega"] / (no / (p["k"] - p["omega"])))]
    return [abs(loss) for loss in found]


def eps_t(p: Json, t: int) -> float:
    """Returns the loss of t reports: of a memoized mechanism if the value never changed, else for any values."""
    coins = p["coins"]
    if "memo" not in coins:
        return t * losses(p)[0]
    if "keep" in coins["memo"]:
        m = p.get("g") or p["k"]
        (p1, n1), (p2, n2) = probabilities(coins["memo"]["keep"]), probabilities(coins["report"]["keep"])
        ratio, d = p1 / (n1 / (m - 1)), (n2 / (m - 1) / p2) ** t
        return math.log1p((ratio - 1) * (1 - d) / (1 + (ratio + m - 2) * d))
    p1, n1, q1, m1 = *probabilities(coins["memo"]["one"]), *probabilities(coins["memo"]["zero"])
    p2, n2, q2, m2 = *probabilities(coins["report"]["one"]), *probabilities(coins["report"]["zero"])
    d, e = (q2 / p2) ** t, (n2 / m2) ** t
    return math.log((p1 + n1 * d) / (q1 + m1 * d)) + math.log((m1 + q1 * e) / (n1 + p1 * e))


def loss_per_report(p: Json) -> float:
    """Returns the loss that one report adds at most, for an observer who knows all other reports and all memos."""
    if "memo" not in p["coins"]:
        return losses(p)[0]
    coins = p["coins"]["report"]
    if "keep" in coins:
        yes, no = probabilities(coins["keep"])
        return abs(math.log(yes / (no / ((p.get("g") or p["k"]) - 1))))
    p2, n2, q2, m2 = *probabilities(coins["one"]), *probabilities(coins["zero"])
    return float(p["k"] * max(abs(math.log(p2 / q2)), abs(math.log(m2 / n2))))


def claim(canonical: Json, chosen: list[Json], window_s: int | None) -> tuple[float, float]:
    """Returns a survey's claims per window and for ever, from the parameters of each attribute's chosen level."""
    last = canonical.get("ends", math.inf)
    touched = 0 if window_s is None else min(math.ceil(window_s / canonical["step_seconds"]) + 1, last)
    claims = []
    for steps in (touched, last):
        bounds = []
        for p in chosen:
            reports = math.inf if steps == math.inf else math.ceil(steps / p["every_steps"])
            bounds.append(min(reports, p["lifetime_reports"] or math.inf) * loss_per_report(p))
        claims.append(sum(bounds) if canonical["collection"] == "spl" else max(bounds))
    return claims[0], claims[1]


def check(survey: Json) -> Json:
    """Checks a device survey and returns the parsed canonical text."""
    if hashlib.sha256(survey["canonical"].encode()).hexdigest()[:16] != survey["fingerprint"]:
        raise Refused(1, "the fingerprint is not the canonical text's")
    canonical: Json = json.loads(survey["canonical"])
    if canonical.get("format") != 3:
        raise Refused(1, "another format of the canonical text")
    if canonical["collection"] not in ("smp", "spl", "rs+fd"):
        raise Refused(1, "unknown collection")
    for attribute in canonical["attribute"]:
        if attribute.get("unlisted") not in (None, *attribute.get("values", ())):
            raise Refused(1, "the value for texts that are not listed is not listed")
        if attribute.get("outside") not in (None, "nearest") or ("outside" in attribute and "values" in attribute):
            raise Refused(1, "unknown rule for numbers outside")
    share = len(canonical["attribute"]) if canonical["collection"] == "spl" else 1
    if list(map(len, survey["mechanisms"])) != [len(a["level"]) for a in canonical["attribute"]]:
        raise Refused(2, "other attributes or levels")
    pairs = [
        (size(attribute), level, p)
        for attribute, levels in zip(canonical["attribute"], survey["mechanisms"], strict=True)
        for level, p in zip(attribute["level"], levels, strict=True)
    ]
    for k, level, p in pairs:
        _check_parameters(k, level, p)
    for _, level, p in pairs:
        _check_coins(level, p)
    for _, level, p in pairs:
        _check_losses(level, p, share)
    return canonical


CHOSEN = ("g", "functions", "digits", "stride", "field", "omega", "width")


def _check_parameters(k: int, level: Json, p: Json) -> None:
    promised = {"every_steps": 1} | level
    if p["k"] != k or any(
        p.get(key) != promised.get(key) for key in ("mechanism", "every_steps", "lifetime_reports", "row_bytes", *CHOSEN)
    ):
        raise Refused(2, "the parameters differ from the canonical text")
    if p.get("g") and not p["g"] ** p["digits"] == p["functions"] >= k:
        raise Refused(2, "wrong number of hash functions")
    if p.get("g"):
        stride, field = p.get("stride"), p["field"]
        if not (isinstance(stride, int) and 0 < stride < k and math.gcd(stride, k) == 1):
            raise Refused(2, "wrong stride")
        if field["characteristic"] ** field["degree"] != p["g"]:
            raise Refused(2, "wrong field")
        coefficients = field["polynomial"]
        if field["degree"] > 1 and not (
            len(coefficients) == field["degree"] + 1
            and coefficients[-1] == 1
            and all(0 <= c < field["characteristic"] for c in coefficients)
        ):
            raise Refused(2, "wrong polynomial")
    if "width" in p and not 1 <= p["width"] <= k:
        raise Refused(2, "wrong width")


def _check_coins(level: Json, p: Json) -> None:
    if {part: set(coins) for part, coins in p["coins"].items()} != COINS.get(p["mechanism"]):
        raise Refused(3, "an unknown mechanism or other coins")
    for part, coins in p["coins"].items():
        for name, coin in coins.items():
            if coin["digits"][:2] > "80":
                raise Refused(3, "the digits of a coin state the larger probability")
            [(answer, expected)] = level["coins"][part][name].items()
            smaller = int(coin["digits"] or "0", 16) / 256 ** (len(coin["digits"]) // 2)
            if ((answer == "no") != coin["inverted"] and expected != 0.5) or abs(smaller - expected) > 1e-5 * expected:
                raise Refused(3, "the coins differ from the canonical text")


def _check_losses(level: Json, p: Json, share: int) -> None:
    stated = [level["eps_inf"], level["eps_1"]] if "memo" in p["coins"] else [level["eps"]]
    if not all(0 < loss <= MAX_LOSS for loss in stated):
        raise Refused(4, "a stated loss is not positive or is too large")
    try:
        found = losses(p)
    except (ValueError, ZeroDivisionError):
        raise Refused(5, "a coin is certain") from None
    if not all(loss <= limit / share + TOLERANCE for loss, limit in zip(found, stated, strict=True)):
        raise Refused(5, "the coins lose more than the survey promises")


def size(attribute: Json) -> int:
    if "values" in attribute:
        return len(attribute["values"])
    return attribute["size"] if "size" in attribute else len(attribute["bins"]) - 1


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


# ---- the device


def index_of(attribute: Json, value: Any) -> int:
    """Returns the value's index. Raises ValueError, which does not show the value, if there is none."""
    k = size(attribute)
    if "values" in attribute:
        listed = value if value in attribute["values"] else attribute.get("unlisted")
        if isinstance(value, str) and listed is not None:
            return int(attribute["values"].index(listed))
        if not isinstance(value, str) and 0 <= value < k and value == int(value):
            return int(value)
    elif not isinstance(value, str) or re.fullmatch(r" *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *", value):
        number = float(value)
        low, *_, high = attribute.get("bins") or (0, k - 1)
        fraction = "size" in attribute and not math.isinf(number) and number != int(number)
        if "outside" in attribute and not fraction:
            number = max(low, min(high, number))
        if low <= number <= high and not fraction:
            return int(min(sum(edge <= number for edge in attribute["bins"]) - 1, k - 1) if "bins" in attribute else number)
    raise ValueError(f"not a value of {attribute['name']}")


class ReferenceDevice:
    def __init__(self, survey: Json, levels: dict[str, str], random: Random) -> None:
        self.canonical, self.fingerprint, self.random = check(survey), survey["fingerprint"], random
        self.attributes = self.canonical["attribute"]
        self.levels = [
            [level["name"] for level in a["level"]].index(levels.get(a["name"], a["level"][0]["name"])) for a in self.attributes
        ]
        self.parameters = [levels[chosen] for levels, chosen in zip(survey["mechanisms"], self.levels)]
        collection, sampled = self.canonical["collection"], random.below(len(self.attributes))
        self.answers = [collection != "smp" or a == sampled for a in range(len(self.attributes))]
        self.fakes: list[int | None] = []
        self.functions: list[int | None] = []
        self.phases = []
        for a, p in enumerate(self.parameters):
            self.fakes.append(random.below(p["k"]) if collection == "rs+fd" and a != sampled else None)
            self.functions.append(random.below(p["functions"]) if "functions" in p and "memo" in p["coins"] else None)
            self.phases.append(random.below(p["every_steps"]))
        self.memos: dict[tuple[int, int], bytes] = {}
        self.counts = [0] * len(self.attributes)
        self.forgotten = [-1] * len(self.attributes)
        self.sent: list[dict[int, tuple[bytes, str]]] = [{} for _ in self.attributes]
        self.settled: list[set[int]] = [set() for _ in self.attributes]
        self.dropped: list[set[int]] = [set() for _ in self.attributes]

    def report(self, name: str, value: Any, step: int, cohort: str | None = None) -> tuple[bytes, str] | None:
        """Returns the envelope and its key, or None."""
        cohort_index = self.canonical["cohort"]["values"].index(cohort) if "cohort" in self.canonical else None
        a = [attribute["name"] for attribute in self.attributes].index(name)
        v, p, sent = index_of(self.attributes[a], value), self.parameters[a], self.sent[a]
        if not self.answers[a] or step % p["every_steps"] != self.phases[a] or step >= self.canonical.get("ends", math.inf):
            return None
        if step in sent:
            return sent[step]
        if p["lifetime_reports"] is not None and self.counts[a] >= p["lifetime_reports"]:
            return None
        if step <= self.forgotten[a] or step in self.dropped[a]:
            raise StepForgotten
        fake = self.fakes[a]
        row = self._row(a, p, v if fake is None else fake)
        key = urlsafe_b64encode(self.random.bytes(16)).rstrip(b"=").decode()
        made = sent[step] = seal(self.fingerprint, a, self.levels[a], step, 1, row, cohort_index), key
        self.counts[a] += 1
        waiting = sorted(sent.keys() - self.settled[a])
        if len(waiting) > self.canonical["lateness_steps"] + 26:
            farthest = max(waiting, key=lambda other: abs(other - step))  # the earlier one of two
            del sent[farthest]
            self.dropped[a].add(farthest)
        if len(self.dropped[a]) > 10_000:
            self._forget(a, min(self.dropped[a]))
        return made

    def settle(self, name: str, step: int) -> None:
        """Marks the envelope of a step as settled."""
        a = [attribute["name"] for attribute in self.attributes].index(name)
        self.settled[a].add(step)
        latest = sorted(self.settled[a])[-(self.canonical["lateness_steps"] + 2) :]
        if len(latest) == self.canonical["lateness_steps"] + 2:
            self.sent[a] = {s: kept for s, kept in self.sent[a].items() if s >= latest[0]}
            self.settled[a] = set(latest)
            self._forget(a, latest[0] - 1)

    def _forget(self, a: int, step: int) -> None:
        self.forgotten[a] = max(self.forgotten[a], step)
        self.dropped[a] = {s for s in self.dropped[a] if s > step}

    def _row(self, a: int, p: Json, v: int) -> bytes:
        if "memo" not in p["coins"]:
            return once(p, v, self.random)
        function = self.functions[a]
        key = v if function is None else hash_symbol(p, function, v)
        if (a, key) not in self.memos:
            self.memos[a, key] = first_row(p, p["coins"]["memo"], key, function, self.random)
        return second_row(p, self.memos[a, key], self.random)


# ---- the wallet


class WalletFull(Exception):
    """The survey's claim does not fit the wallet's limits."""


class ReferenceWallet:
    """One budget of a person for several surveys; each survey has its first levels.

    Args:
        limits: `per_window` with `window_s`, `for_ever`; null for no limit.
    """

    def __init__(self, limits: Json, random: Random) -> None:
        self.limits, self.random = limits, random
        self.devices: dict[str, ReferenceDevice] = {}
        self.charges: list[Json] = []

    def join(self, survey: Json, now_ms: int) -> None:
        fingerprint, canonical = survey["fingerprint"], json.loads(survey["canonical"])
        if fingerprint in self.devices:
            return
        step_ms = 1000 * canonical["step_seconds"]
        first = max(0, (now_ms - canonical["start"]) // step_ms)
        chosen = [levels[0] for levels in survey["mechanisms"]]
        per_window, for_ever = claim(canonical, chosen, self.limits["window_s"])
        charged = self.charged(canonical["start"] + first * step_ms)
        for asked, used, limit in zip((per_window, for_ever), charged, (self.limits["per_window"], self.limits["for_ever"])):
            if limit is not None and asked + used > limit * (1 + TOLERANCE):
                raise WalletFull
        until = canonical["start"] + canonical["ends"] * step_ms if "ends" in canonical else math.inf
        self.charges.append({"of": fingerprint, "per_window": per_window, "for_ever": for_ever, "until": until})
        device = self.devices[fingerprint] = ReferenceDevice(survey, {}, self.random)
        device.forgotten = [first - 1] * len(device.forgotten)

    def leave(self, fingerprint: str) -> None:
        if fingerprint not in self.devices:
            raise ValueError("not in this survey")
        spent, device = self.spent(fingerprint), self.devices.pop(fingerprint)
        charge = next(charge for charge in self.charges if charge["of"] == fingerprint)
        if not spent:
            self.charges.remove(charge)
            return
        canonical = device.canonical
        until = canonical["start"] + (max(map(max, filter(None, device.sent))) + 1) * 1000 * canonical["step_seconds"]
        charge |= {"of": None, "per_window": min(charge["per_window"], spent), "for_ever": spent, "until": until}

    def spent(self, fingerprint: str) -> float:
        """Returns the bound of the loss of a survey's reports so far."""
        device = self.devices[fingerprint]
        losses_ = [n * loss_per_report(p) for n, p in zip(device.counts, device.parameters)]
        return sum(losses_) if device.canonical["collection"] == "spl" else max(losses_)

    def all_spent(self) -> float:
        return sum(charge["for_ever"] if charge["of"] is None else self.spent(charge["of"]) for charge in self.charges)

    def charged(self, from_ms: int) -> tuple[float, float]:
        """Returns the charges for a window that touches a step from this time on, and for ever."""
        near = [charge for charge in self.charges if from_ms < charge["until"] + 1000 * (self.limits["window_s"] or 0)]
        return sum(charge["per_window"] for charge in near), sum(charge["for_ever"] for charge in self.charges)
