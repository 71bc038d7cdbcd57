"""The reference device's check of a device survey: coins, privacy losses, claims."""

import hashlib
import json
import math
from typing import Any

Json = dict[str, Any]
TOLERANCE = 1e-9
MAX_LOSS = 700
SYMBOLS, BITS, SUBSET, MEMBER = {"keep"}, {"one", "zero"}, {"with_value"}, {"member"}
COINS: dict[str, dict[str, set[str]]] = {
    **{name: {"report": SYMBOLS} for name in ("GRR", "SW", "BLH", "OLH")},
    **{name: {"report": BITS} for name in ("SUE", "OUE", "THE")},
    "SS": {"report": SUBSET},
    "PS-GRR": {"report": MEMBER},
    "L-PS-GRR": {"memo": MEMBER, "report": SYMBOLS},
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


def probabilities(coin: Json) -> tuple[float, float]:
    """Returns (P, N), the probabilities of yes and no."""
    smaller = 0.0
    for digit in reversed(bytes.fromhex(coin["digits"])):
        smaller = (smaller + digit) / 256
    return (1 - smaller, smaller) if coin["inverted"] else (smaller, 1 - smaller)


def members(p: Json) -> tuple[float, float]:
    """Returns A and B: the probabilities of a symbol in and outside the padded set, of the memo or of a one-time report."""
    yes, no = probabilities(p["coins"].get("memo", p["coins"]["report"])["member"])
    return yes / p["choices"], no / (p["k"] - p["choices"])


def losses(p: Json) -> list[float]:
    """Returns the loss of the memo (for memoized mechanisms) and of a report."""
    rounds = [p["coins"]["memo"], p["coins"]["report"]] if "memo" in p["coins"] else [p["coins"]["report"]]
    if "member" in rounds[0]:
        a, b = members(p)
        found = [math.log(a / b)]
        if len(rounds) == 2:
            yes, no = probabilities(rounds[1]["keep"])
            p2, q2 = yes, no / (p["k"] - 1)
            found.append(math.log((a * p2 + (1 - a) * q2) / (b * p2 + (1 - b) * q2)))
    elif "keep" in rounds[0]:
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
    if "member" in coins["memo"]:
        a, b = members(p)
        yes, no = probabilities(coins["report"]["keep"])
        d = (no / (p["k"] - 1) / yes) ** t
        return math.log((a + (1 - a) * d) / (b + (1 - b) * d))
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
    sets, paired = (any(key in attribute for attribute in canonical["attribute"]) for key in ("choices", "pair"))
    if canonical.get("format") != (6 if sets else 5 if paired else 4 if "relay" in canonical else 3):
        raise Refused(1, "another format of the canonical text")
    if "relay" in canonical and (canonical["relay"] != "required" or canonical["lateness_steps"] < 2):
        raise Refused(1, "an unknown rule for relays")
    if canonical["collection"] not in ("smp", "spl", "rs+fd"):
        raise Refused(1, "unknown collection")
    for attribute in canonical["attribute"]:
        if attribute.get("unlisted") not in (None, *attribute.get("values", ())):
            raise Refused(1, "the value for texts that are not listed is not listed")
        if attribute.get("outside") not in (None, "nearest") or (
            "outside" in attribute and not {"size", "bins"} & set(attribute)
        ):
            raise Refused(1, "unknown rule for numbers outside")
        if "choices" in attribute and not (
            canonical["collection"] != "rs+fd"
            and 1 <= attribute["choices"] <= len(attribute.get("values", ()))
            and 2 <= len(attribute["values"]) <= 30
        ):
            raise Refused(1, "an impossible number of choices")
        for level in attribute["level"]:
            if ("choices" in attribute) != level["mechanism"].endswith("PS-GRR"):
                raise Refused(2, "a mechanism of sets for single values, or the reverse")
            if level.get("choices") != attribute.get("choices"):
                raise Refused(2, "a level with another number of choices")
        single = [other["name"] for other in canonical["attribute"] if not {"pair", "choices"} & set(other)]
        if "pair" in attribute and not (len(set(attribute["pair"])) == len(attribute["pair"]) == 2 <= len(single)):
            raise Refused(1, "a pair of other than two attributes")
        if "pair" in attribute and not set(attribute["pair"]) <= set(single):
            raise Refused(1, "a pair of unknown attributes")
    share = len(canonical["attribute"]) if canonical["collection"] == "spl" else 1
    if list(map(len, survey["mechanisms"])) != [len(a["level"]) for a in canonical["attribute"]]:
        raise Refused(2, "other attributes or levels")
    if canonical["step_seconds"] < 1 or canonical["lateness_steps"] < 0 or canonical.get("ends", 1) < 1:
        raise Refused(2, "impossible steps")
    pairs = [
        (size(canonical["attribute"], attribute), level, p)
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


CHOSEN = ("g", "functions", "digits", "stride", "field", "omega", "width", "choices")


def _check_parameters(k: int, level: Json, p: Json) -> None:
    promised = {"every_steps": 1} | level
    if p["k"] != k or any(
        p.get(key) != promised.get(key) for key in ("mechanism", "every_steps", "lifetime_reports", "row_bytes", *CHOSEN)
    ):
        raise Refused(2, "the parameters differ from the canonical text")
    if k < 2 or p["every_steps"] < 1 or (p["lifetime_reports"] is not None and p["lifetime_reports"] < 1):
        raise Refused(2, "impossible number of values or reports")
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


def size(attributes: list[Json], attribute: Json) -> int:
    if "pair" in attribute:
        first, second = (next(a for a in attributes if a["name"] == name) for name in attribute["pair"])
        return size(attributes, first) * size(attributes, second)
    if "values" in attribute:
        return len(attribute["values"]) + int(attribute.get("choices", 0))
    return attribute["size"] if "size" in attribute else len(attribute["bins"]) - 1
