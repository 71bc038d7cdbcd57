"""Writes the test vectors for devices in other languages: `python -m devices.vectors` renews `devices/vectors/*.json`.

The surveys are in `devices/vectors/surveys/`. docs/reference/write_a_device.md explains the files. Every run writes the same
bytes: the "random" bytes come from a SHA-256 of a counter, and some of them are chosen so that rare paths of the draws occur.
"""

import hashlib
import json
import math
import tempfile
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from devices.vectors.forgeries import forged
from devices.vectors.recipes import recipes
from devices.vectors.refusals import refused
from devices.vectors.relay_requests import relay_requests
from devices.vectors.signatures import signatures
from devices.vectors.wallet_lives import wallet_lives
from ldpstream.device import Device, StepForgotten
from ldpstream.device.claims import claim
from ldpstream.device.consent.words import explained, question
from ldpstream.device.secure_random import SecureRandom
from ldpstream.device.values import index_of
from ldpstream.mechanisms import LONGITUDINAL, SETS, Mechanism, mechanism
from ldpstream.mechanisms.devices import BitArray, Coin, Parameters, Randomizer
from ldpstream.mechanisms.families.finite_field import prime_powers
from ldpstream.mechanisms.families.hash_randomizer import hashed
from ldpstream.mechanisms.registry import portable
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.canonical import FORMAT as CANONICAL_FORMAT
from ldpstream.surveys.envelope import VERSION, seal_rows

EVERY = portable()
VECTORS = Path(__file__).parent
SURVEYS = sorted((VECTORS / "surveys").glob("*.toml"))
RELAYED = VECTORS / "relayed.toml"  # apart from the others: a device that does not send through a relay refuses it
LARGE_FIELDS = (81, 121, 125, 128, 169, 243, 256, 257, 343, 512, 625, 729, 961, 1021, 1024)
Case = dict[str, Any]


class Recorded(SecureRandom):
    """Predictable bytes, all of which are recorded.

    Args:
        label: different labels give different bytes.
        ties: share of the bytes of a toss that equal the coin's digit, in eighths: such a toss needs another byte.
    """

    def __init__(self, label: str, ties: int = 0) -> None:
        self.drawn = b""
        self._stream, self._ties, self._digits = _stream(label), ties, iter(b"")

    def bytes(self, n: int) -> bytes:
        digit = next(self._digits, None)
        drawn = bytes(
            byte if digit is None or next(self._stream) % 8 >= self._ties else digit for byte in _take(self._stream, n)
        )
        self.drawn += drawn
        return drawn

    def toss(self, coin: Coin, n: int) -> BitArray:
        self._digits = iter(bytes.fromhex(coin.digits))
        tossed = super().toss(coin, n)
        self._digits = iter(b"")
        return tossed


def _stream(label: str) -> Iterator[int]:
    for block in count():
        yield from hashlib.sha256(f"{label} {block}".encode()).digest()


def _take(stream: Iterator[int], n: int) -> list[int]:
    return [next(stream) for _ in range(n)]


# ---- mechanisms


def _mechanisms() -> Iterator[Mechanism]:
    """Every mechanism at some sizes, and local hashing with some fields."""
    for name in EVERY:
        for k in (2, 5, 9, 100):
            yield _built(name, k, 1.0, 2.5)
        yield _built(name, 12, 0.02, 0.05)
    for name in ("GRR", "L-GRR"):
        yield _built(name, 300, 3.0, 8.0)
        yield _built(name, 70_000, 20.0, 40.0)
    for name in ("OLH", "L-OLH"):
        for k, g in ((1000, 5), (500, 8), (70, 9), (70_000, 7), (40, 16), (600, 257)):
            yield _built(name, k, 1.0, 2.5, g)
    yield _built("SW", 1024, 1.0, 2.5)
    for omega in (1, 8):
        yield mechanism("SS", 9, eps=1.0, omega=omega)
    for memo_size, omega in ((1, 4), (3, 2), (5, 5)):
        yield mechanism("L-SS", 10, eps_1=0.5, eps_inf=2.5, memo_size=memo_size, omega=omega)


def _built(name: str, k: int, eps_1: float, eps_inf: float, g: int | None = None) -> Mechanism:
    """The mechanism on k values; for sets on at most 30 values, of which a person chooses at most 4."""
    if name in SETS:
        k, choices = min(k, 30), min(k, 4)
        if name == "PS-GRR":
            return mechanism(name, k, eps=eps_1, choices=choices)
        return mechanism(name, k, eps_1=eps_1, eps_inf=eps_inf, choices=choices)
    if name not in LONGITUDINAL:
        return mechanism(name, k, eps=eps_1, g=g)
    return mechanism(name, k, eps_1=eps_1, eps_inf=eps_inf, g=g)


def _values_of(p: Parameters) -> list[int]:
    """Some values; for sets, the codes of no value, of one value and of as many values as possible."""
    if p.choices is not None:
        n = p.k - p.choices
        return [0, 1 << n // 2, 2**n - 2 ** (n - p.choices)]
    return [0, p.k // 2, p.k - 1] if p.k > 2 else [0, 1]


def draws() -> Iterator[Case]:
    for m in _mechanisms():
        p = m.parameters()
        values = _values_of(p)
        rounds = [(value, ties) for ties in (0, 2, 7) for value in values] + [(values[1], 8)]
        device = m.randomizer(p)
        yield {
            "parameters": p,
            "cases": [_draw(device, f"{m.signature} {value} {ties}", value, ties) for value, ties in rounds],
        }


def _draw(device: Randomizer, label: str, value: int, ties: int) -> Case:
    random = Recorded(label, ties)
    function = device.enroll(Recorded(f"{label} function"))
    memo = device.memoize(device.memo_key(value, function), function, random)
    report = device.report(memo, random)
    number = function if device.memoized and device.parameters.functions is not None else None
    kept = memo.hex() if device.memoized else None
    return {"value": value, "function": number, "random": random.drawn.hex(), "memo": kept, "report": report.hex()}


def hashes() -> Iterator[Case]:
    for g in (*prime_powers(64), *LARGE_FIELDS):
        p = mechanism("OLH", g * 20 if g < 150 else g, eps=1.0, g=g).parameters()
        assert p.functions is not None
        stream = _stream(f"hash {g}")
        pairs = [(p.functions - 1, p.k - 1)]
        pairs += [(_number(stream) % p.functions, _number(stream) % p.k) for _ in range(7)]
        cases = [[a, v, hashed(p, a, v)] for a, v in pairs]
        yield {"g": g, "k": p.k, "functions": p.functions, "digits": p.digits, "stride": p.stride, "field": p.field,
               "cases": cases}  # fmt: skip


def _number(stream: Iterator[int]) -> int:
    return int.from_bytes(bytes(_take(stream, 4)), "big")


def ledger() -> Iterator[Case]:
    sizes = (2, 0.5, 1.0), (20, 1.0, 2.5), (300, 3.0, 8.0)
    for m in [_built(name, *size) for name in EVERY for size in sizes] + [_built("L-SS", 20, 36.0, 40.0)]:
        p = m.parameters()
        for t in (1, 2, 10, 1000):
            told = m.eps_t(t) if p.odds is None or t == 1 else m.eps_inf  # a device need not search for the worst reports
            yield {"parameters": p, "t": t, "eps_t": told, "any_values": t * m.claims.eps_per_report}


def claims() -> Iterator[Case]:
    for _, survey in surveys():
        first, last = ([choose(range(len(attribute.levels))) for attribute in survey.attributes] for choose in (min, max))
        for levels in [first] if first == last else [first, last]:
            for window_s in (None, 1, 3600, 86_400, 10_000_000):
                bound = claim(survey, levels, window_s)
                for_ever = None if math.isinf(bound.for_ever) else bound.for_ever
                yield {"fingerprint": survey.fingerprint.hex(), "levels": levels, "window_s": window_s, "losses": bound.losses,
                       "per_window": bound.per_window, "for_ever": for_ever}  # fmt: skip


# ---- surveys and envelopes


def surveys() -> list[tuple[str, Survey]]:
    return [(path.read_text(encoding="utf-8"), load_survey(path)) for path in SURVEYS]


def signed_surveys() -> Iterator[Case]:
    path, other = (VECTORS / "surveys" / f"{name}.toml" for name in ("symbols", "fake"))
    return signatures(load_survey(path), path.read_text(encoding="utf-8"), load_survey(other))


def envelopes() -> Iterator[Case]:
    survey = load_survey(VECTORS / "surveys" / "symbols.toml")
    steps = (0, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**62)
    for n, step in [(3, step) for step in steps] + [(n, 7) for n in (1, 127, 128, 255, 256, 1000)]:
        yield _envelope(survey, 0, 0, step, bytes(i % 6 for i in range(n)), n)
    for survey in (loaded for _, loaded in surveys()):
        for a, levels in enumerate(survey.device_survey.mechanisms):
            for level, p in enumerate(levels):
                device = survey.mechanisms[a][level].randomizer(p)
                for cohort in range(survey.n_cohorts):
                    yield _envelope(survey, a, level, 7, _report(device, survey.name), 1, cohort)


def _report(device: Randomizer, label: str) -> bytes:
    return bytes.fromhex(_draw(device, f"envelope {label}", _values_of(device.parameters)[-1], 0)["report"])


def _envelope(survey: Survey, attribute: int, level: int, step: int, rows: bytes, n: int, cohort: int = 0) -> Case:
    raw = seal_rows(survey, attribute, level, step, n, rows, cohort)
    given = None if survey.cohort is None else cohort
    return {"fingerprint": survey.fingerprint.hex(), "attribute": attribute, "level": level, "step": step, "cohort": given,
            "rows": rows.hex(), "n": n, "envelope": raw.hex()}  # fmt: skip


# ---- lives


class _Scripted(Device):
    def __init__(self, survey: Survey, folder: str, levels: dict[str, str], random: SecureRandom, cohort: str | None) -> None:
        self._random, self.cohort = random, cohort
        super().__init__(survey, Path(folder) / "file", levels, cohort=cohort, consent="simulated")


LIVES: dict[str, list[dict[str, str]]] = {
    "symbols": [{}, {"city": "once"}, {"city": "paper", "many": "memoized"}, {}],
    "split": [{}, {"latency": "bits", "colour": "other"}, {"latency": "steep"}],
    "fake": [{}, {"hashed": "binary", "bits": "symmetric"}, {"bits": "threshold"}],
    "window": [{}, {"page": "binary"}, {}],
    "ending": [{}, {}],
    "cohorts": [{}],
    "rest": [{}],
    "pairs": [{}, {"fruit_by_weight": "spaced"}],
    "sets": [{}, {"apps": "spaced", "tools": "spaced"}, {}],
    "refusing": [],
    "relayed": [{}, {"place": "large"}],
}
Given = str | float | list[str | float]  # a list of two values for a pair, of all values for a set
VALUES: dict[str, list[Given]] = {
    "city": ["😀 emoji", "Zürich", "😀 emoji", 2, " "], "many": [69_999, "0", 69_999, 300, 5],
    "latency": [0.1, 1.5e300, -1e300, "0", -0.25], "colour": ["red", "blue", "red", 1, "green"],
    "hashed": [999, 0, 999, 12, 500], "set": [19, 0, 7, "19", 3], "bits": [8, 0, 8, 1, "4"],
    "screen": ["map", "home", "home", 1, "map"], "page": [99, 0, 50, 99, "7"],
    "language": ["fr", "en", "EN", "other", ""], "shop": ["C", "B", "refuse", "other", " A"],
    "strict": ["A", "C", "other", "a", 1],
    "age": [103, -0.5, "1e3", 100, 64], "height": [99.5, 200, 200.5, 150, "1e3"], "rooms": [7, -1, "99", 4, "-3"],
    "code": [5, -1, "4", 0, "99"], "mode": ["bus", "car", 2, "bus", "bicycle"], "place": [0, 299, "7", 7, 128],
    "fruit": ["apple", "kiwi", 1, "other", "apple"], "weight": [120.5, 0, 999, "1e2", 120.5], "shelf": [3, "0", 2, 1, 3],
    "fruit_by_weight": [["apple", 120.5], ["kiwi", 0], [1, 999], ["other", "1e2"], ["apple", 120.5]],
    "shelf_by_weight": [[3, 120.5], ["0", 0], [2, 999], [1, "1e2"], [3, 120.5]],
    "apps": [["chat", "maps"], [], ["maps", "chat"], [3, "fax", "pager"], ["chat"]],
    "tools": [["saw", "drill", "file"], ["file"], [2, 1, 0], [], ["saw", "file"]], "colour_now": ["red", 1, "red", 0, "blue"],
}  # fmt: skip
WRONG: dict[str, Given] = {  # values that a device refuses
    "city": "Zurich", "many": "x", "latency": "x", "colour": 3, "hashed": "", "set": "x", "bits": "-", "screen": "Home",
    "page": "x",
    "language": 3, "shop": -1, "strict": "refuse", "age": "old", "height": 250, "rooms": "many", "code": 999,
    "mode": "walk", "place": "x",
    "fruit": 3, "weight": "x", "shelf": 4, "fruit_by_weight": "apple", "shelf_by_weight": [4, 120.5],
    "apps": ["chat", "chat"], "tools": ["spoon"], "colour_now": ["red"],
}  # fmt: skip
STEPS = (0, 1, 1, 2, 3, 5, 4, 9, 10, 2, 15, 20, 25)  # repeated, out of order, and with gaps


def lives() -> Iterator[Case]:
    """Whole lives of devices. After each call, `waiting` lists the idempotency keys of the stored envelopes."""
    for path in SURVEYS:
        yield from lives_of(load_survey(path))
    for name, a in (("window", 0), ("window", 1), ("fake", 0), ("fake", 1)):
        yield from clock_lives(load_survey(VECTORS / "surveys" / f"{name}.toml"), a)


def lives_of(survey: Survey) -> Iterator[Case]:
    """Lives of devices that answer a survey at the chosen levels."""
    for number, levels in enumerate(LIVES[survey.name]):
        random = Recorded(f"life {survey.name} {number}")
        with tempfile.TemporaryDirectory() as folder:
            devices = [  # the first one enrolls, and the others open its file
                _Scripted(survey, folder, levels, random, survey.cohort_name(cohort)) for cohort in range(survey.n_cohorts)
            ]
            calls = [
                _call(devices[i % len(devices)], attribute.name, VALUES[attribute.name][i % 5], step)
                for i, step in enumerate(STEPS)
                for attribute in survey.attributes
            ]
            calls += [_call(devices[0], attribute.name, WRONG[attribute.name], 25) for attribute in survey.attributes]
        yield {"survey": survey.device_survey, "levels": levels, "random": random.drawn.hex(), "calls": calls}


def clock_lives(survey: Survey, a: int) -> Iterator[Case]:
    """Lives of devices whose clock is wrong for some time, and which deliver some of their reports.

    The clock runs ahead for more reports than the device keeps, then it is right, then it jumps freely. In the first life no
    report is delivered, in the last one all are.
    """
    attribute, apart = survey.attributes[a].name, survey.device_survey.mechanisms[a][0].every_steps
    for number, delivered in enumerate((0.0, 0.3, 1.0)):
        random, rng = Recorded(f"clock {survey.name} {a} {number}"), np.random.default_rng([7, a, number])
        with tempfile.TemporaryDirectory() as folder:
            device = _Scripted(survey, folder, {}, random, None)
            with device._transaction() as memory:
                phase = memory.enrolment(a).phase
            ahead = range(1000, 1030 + survey.lateness_steps)
            reports = [*range(4), *ahead, *range(3, 8), *rng.choice([*range(10), *range(995, 1035)], 40).tolist()]
            steps = [0, 1, 2, 3, 4, *(apart * report + phase for report in reports)]
            calls = [
                _call(device, attribute, VALUES[attribute][i % 5], step, settle=bool(rng.random() < delivered))
                for i, step in enumerate(steps)
            ]
        yield {"survey": survey.device_survey, "levels": {}, "random": random.drawn.hex(), "calls": calls}


def _call(device: _Scripted, attribute: str, value: Given, step: int, settle: bool = False) -> Case:
    called: Case = {"attribute": attribute, "value": value, "index": _index(device.survey, attribute, value), "step": step}
    called |= {"cohort": device.cohort, "settle": False}
    try:
        envelope = device.report(attribute, value, step)
    except StepForgotten:
        return called | {"envelope": {"error": "StepForgotten"}, "key": None}
    except ValueError:
        return called | {"envelope": {"error": "ValueError"}, "key": None}
    if envelope is None:
        return called | {"envelope": None, "key": None}
    waiting = [report for report in device.waiting() if (report.attribute, report.step) == (attribute, step)]
    if waiting and settle:
        device.settle(waiting[0])
    key = waiting[0].key if waiting else None
    due = {} if device.survey.relay is None else {"due_ms": waiting[0].due_ms if waiting else None}
    return called | {"settle": bool(waiting) and settle, "envelope": envelope.hex(), "key": key} | due


def _index(survey: Survey, attribute: str, value: Given) -> int | None:
    try:
        return index_of(survey, attribute, value)
    except ValueError:
        return None


NUMBERS: list[str | float] = [
    "7", " 7", "7  ", "+7", "-7", "-0", "007", "7.0", "7.", ".7", "7e0", "70E-1", "0.7e+1", "7.5", "nan", "NaN", "inf",
    "-Infinity", "1_0", "0x7", "٧", "", " ", "\t7", "7\n", "\u00a07", "7,0", "+ 7", "7 7", "e7", ".", "1e400", "-1e400",
    "1e-400", "9" * 400, 7, 7.0, 7.5, -0.0, -7, 1e300, -1e300, 1e-320, "red", "Red", " red", "😀 emoji", 0, 2.0, 2, 3,
]  # fmt: skip


FEW: list[str | float] = ["apple", "kiwi", 0, 2, 3, 4, 99.5, 500, "1e400", "x", "nan"]  # both values of a pair


SOME: list[str | float] = ["chat", "fax", "saw", 0, 2, 3, 4, 1.5, -1, "1", "nan"]  # values of a set


def values() -> Iterator[Case]:
    """The index of each of `NUMBERS` for every attribute, or null if a device refuses it; of lists for pairs and sets."""
    for _, survey in surveys():
        for attribute in survey.attributes:
            given: list[Given] = [*NUMBERS]
            if attribute.pair is not None:
                given += [[one, other] for one in FEW for other in FEW] + [[], ["apple"], ["apple", 1, 1]]
            if attribute.most is not None:
                given += [[], *([one] for one in SOME), *([one, other] for one in SOME for other in SOME)]
                given += [["chat", "mail", "maps", "other"], ["chat", "mail", "maps"], [0, 1, 2], ["a", "b", "other"]]
            cases = [[value, _index(survey, attribute.name, value)] for value in given]
            yield {"fingerprint": survey.fingerprint.hex(), "attribute": attribute.name, "cases": cases}


def worded(survey: Survey) -> Case:
    """The words for a person, and those for a report of each attribute, all at the first levels."""
    envelopes = [seal_rows(survey, a, 0, 300, 1, bytes(m[0].report_dtype.itemsize), 0) for a, m in enumerate(survey.mechanisms)]
    told = [[[data.hex(), text] for data, text in explained(survey, envelope)] for envelope in envelopes]
    return {"survey": survey.device_survey, "question": question(survey, [0] * len(envelopes)), "parts": told}


def hostile(survey: Survey) -> Survey:
    """A survey whose words write over other lines of a terminal, as only a hostile gateway serves it."""
    return replace(
        survey, title="\u202enoitseuQ", purpose="To plan.\x1b[1A\x1b[2K", owner="A team\nNot protected: nothing.\x9b2J"
    )


# ---- files


def files() -> dict[str, str]:
    """The contents of every file, by its name."""
    listed = surveys()
    return {
        "formats.json": _lines([{"canonical": CANONICAL_FORMAT, "envelope": VERSION}]),
        "surveys.json": _lines(
            {"toml": toml, "canonical": survey.canonical, "fingerprint": survey.fingerprint.hex(), "pin": survey.pin}
            for toml, survey in listed
        ),
        "parameters.json": _lines(
            {"canonical": survey.canonical, "mechanisms": survey.device_survey.mechanisms} for _, survey in listed
        ),
        "forged.json": _lines(forged(*(load_survey(VECTORS / "surveys" / f"{name}.toml") for name in ("refusing", "split")))),
        "signatures.json": _lines(signed_surveys()),
        "values.json": _lines(values()),
        "hashes.json": _lines(hashes()),
        "draws.json": _lines(draws()),
        "envelopes.json": _lines(envelopes()),
        "devices.json": _lines(lives()),
        "relay_lives.json": _lines(lives_of(load_survey(RELAYED))),
        "relay_requests.json": _lines(relay_requests(load_survey(RELAYED))),
        "recipes.json": _lines(recipes(load_survey(VECTORS / "usage.toml"))),
        "ledger.json": _lines(ledger()),
        "claims.json": _lines(claims()),
        "wallets.json": _lines(
            wallet_lives({survey.name: survey for _, survey in listed}, [Recorded("wallet 0"), Recorded("wallet 1")])
        ),
        "words.json": _lines(worded(survey) for survey in [*(survey for _, survey in listed), hostile(listed[0][1])]),
        "refused.json": _lines(refused(load_survey(VECTORS / "surveys" / f"{name}.toml")) for name in ("refusing", "cohorts")),
    }


def _lines(cases: Iterable[Case]) -> str:
    return "[\n" + ",\n".join(map(_text, cases)) + "\n]\n"


def _text(case: Case) -> str:
    return json.dumps(msgspec.to_builtins(case), ensure_ascii=False, separators=(",", ":"))
