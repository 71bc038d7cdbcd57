"""A device written from docs/write_a_device.md and docs/wire_format.md alone, with the standard library and no module of the
service.

The tests run the vectors through this device. The device stores nothing on disk, so it is for tests only.
"""

import json
import math
import re
from base64 import urlsafe_b64encode
from typing import Any

from tests.devices.reference_check import TOLERANCE, Json, check, claim, loss_per_report, size
from tests.devices.reference_rows import Random, first_row, hash_symbol, once, seal, second_row

# ---- the device


class StepForgotten(Exception):
    """The device can no longer report the step."""


def index_of(attributes: list[Json], attribute: Json, value: Any) -> int:
    """Returns the value's index. Raises ValueError, whose message does not contain the value, for any other value."""
    k = size(attributes, attribute)
    if "pair" in attribute:
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError(f"{attribute['name']} is a pair")
        first, second = (next(a for a in attributes if a["name"] == name) for name in attribute["pair"])
        return index_of(attributes, first, value[0]) * size(attributes, second) + index_of(attributes, second, value[1])
    if "choices" in attribute:
        return set_code(attributes, attribute, value)
    if isinstance(value, list):
        raise ValueError(f"{attribute['name']} is not a pair")
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


def set_code(attributes: list[Json], attribute: Json, value: Any) -> int:
    """Returns the code of a list of values."""
    if not isinstance(value, list):
        raise ValueError(f"{attribute['name']} has several answers")
    single = {key: kept for key, kept in attribute.items() if key != "choices"}
    found = [index_of(attributes, single, one) for one in value]
    listed = [i for i, one in zip(found, value) if not isinstance(one, str) or one in attribute["values"]]
    if len(set(listed)) < len(listed) or len(set(found)) > attribute["choices"]:
        raise ValueError(f"a value of {attribute['name']} twice, or too many values")
    return sum(2**i for i in set(found))


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
        self.moments: dict[str, int] = {}  # envelope's key -> moment of sending; empty without a relay

    def report(self, name: str, value: Any, step: int, cohort: str | None = None) -> tuple[bytes, str] | None:
        """Returns the envelope and its key, or None."""
        cohort_index = self.canonical["cohort"]["values"].index(cohort) if "cohort" in self.canonical else None
        a = [attribute["name"] for attribute in self.attributes].index(name)
        v, p, sent = index_of(self.attributes, self.attributes[a], value), self.parameters[a], self.sent[a]
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
        if "relay" in self.canonical:
            seconds = self.canonical["step_seconds"]
            random_ms = 1000 * self.random.below(seconds) + self.random.below(1000)
            self.moments[key] = self.canonical["start"] + 1000 * (step + 1) * seconds + random_ms
        made = sent[step] = seal(self.fingerprint, a, self.levels[a], step, 1, row, cohort_index), key
        self.counts[a] += 1
        waiting = sorted(sent.keys() - self.settled[a])
        if len(waiting) > self.canonical["lateness_steps"] + 26:
            farthest = max(waiting, key=lambda other: abs(other - step))  # of two equally far ones, the earlier
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
    """One budget of a person for several surveys. The device answers every attribute at its first level.

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
