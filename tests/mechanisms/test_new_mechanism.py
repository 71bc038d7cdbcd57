"""A new mechanism needs one module: this file defines two mechanisms, and no other code knows them.

Silent response is randomized response that stays silent with a fixed probability, whatever the value. A silent report reveals
nothing, so the losses are those of randomized response. Hadamard response supports half of the values with each report, and
keeps most defaults. All seeds are fixed.
"""

import asyncio
import base64
import math
from abc import ABCMeta
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fastapi.testclient import TestClient
from scipy.linalg import hadamard
from scipy.stats import binom

from devices.conformance.calls import Call
from devices.conformance.conformance import check_device
from lab.audit.audit import K, audit
from lab.audit.samplers import code_paths
from lab.papers.location.dense import DenseTerm
from ldpstream.device import Device
from ldpstream.estimators.diagnostics import fit
from ldpstream.mechanisms import CountTable, Longitudinal, Mechanism, OneTime, Reports, ledger, mechanism, registry
from ldpstream.mechanisms.arguments import MAX_COUNT, FloatArray, IntArray, epsilon, integer, user_values
from ldpstream.mechanisms.claims import guessing
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.mechanisms.counts.reading import Reading
from ldpstream.mechanisms.devices import Coins, DeviceRandom, OneTimeRandomizer, Randomizer, coin, symbol_row
from ldpstream.mechanisms.families.grr import LongitudinalGRR, draw_symbol, randomize, unsigned
from ldpstream.mechanisms.kinds import LongitudinalClaims
from ldpstream.output.ledger_tables import ledger_rows
from ldpstream.producers.values import MarkovValues
from ldpstream.promises.promise import promise
from ldpstream.publishing.answers.responses import Served
from ldpstream.publishing.api.app import create_api
from ldpstream.services.demo import Demo
from ldpstream.surveys import Survey, load_survey
from ldpstream.surveys.envelope import seal_rows
from tests.gateway.gateway_rig import Rig

from . import reference, test_contract, test_variance

SPEAKS, SILENT = 0.9375, 0.0625  # Pr[a report is a symbol], Pr[a report is silent]


class SilentRandomizer(Randomizer):
    """The device's code: a memo is one of k symbols, and a report is one of k symbols or the number k, for silence."""

    def memoize(self, key: int, function: int, random: DeviceRandom) -> bytes:
        return symbol_row(self.k + 1, draw_symbol(key, self.k, self._first, random))

    def is_memo(self, memo: bytes, function: int) -> bool:
        return len(memo) == self.parameters.row_bytes and int.from_bytes(memo, "little") < self.k

    def report(self, memo: bytes, random: DeviceRandom) -> bytes:
        if not random.toss(self._second["speak"], 1)[0]:
            return symbol_row(self.k + 1, self.k)
        return symbol_row(self.k + 1, draw_symbol(int.from_bytes(memo, "little"), self.k, self._second, random))


class SilenceReading(Reading):
    def _support(self, table: CountTable) -> IntArray:
        return table.counts[:-1]

    def _channel_term(self, counts: IntArray) -> DenseTerm:
        return DenseTerm(self.m.channel(), counts)

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Like randomized response: a report supports at most one value."""
        memo_p, memo_q, p2, q2 = self.m.rounds()
        hit = frequencies * memo_p + (1 - frequencies) * memo_q
        between = math.sqrt(steps * (steps - 1)) * (p2 - q2) * hit
        return [(-1, math.sqrt(steps) * (q2 + (p2 - q2) * hit)), (-1, between)]


class SilenceClaims(LongitudinalClaims):
    m: "Silence"

    @property
    def eps_per_report(self) -> float:
        return self.m.spoken.claims.eps_per_report

    def eps_t(self, t: int) -> float:
        return self.m.spoken.eps_t(t)

    def _eps_sequence(self, t: int) -> ledger.SequenceLoss:
        return self.m.spoken.eps_sequence(integer("t", t, 1, MAX_COUNT))

    def _guess(self, t: float) -> Chance:
        return Chance(self.m.spoken.guess(t), exact=False)  # an upper bound: as if no report were silent


class Silence(Longitudinal):
    """Memoized silent response: the rounds of L-GRR, and silence after the second round.

    The table counts the k symbols and, in its last cell, the silent reports.
    """

    claims_by = SilenceClaims
    names = ("L-silent",)
    randomizer = SilentRandomizer
    read_by = SilenceReading

    def __init__(self, k: int, eps_inf: float, eps_1: float) -> None:
        self.name = "L-silent"
        self.k = self.n_keys = self.max_memos = integer("k", k, 2, 2**16)
        self.report_dtype, self.table_shape = unsigned(self.k + 1), (self.k + 1,)
        self.spoken = LongitudinalGRR(k, eps_inf, eps_1)
        self.eps_inf, self.eps_1 = self.spoken.eps_inf, self.spoken.eps_1
        self.p1, self.q1 = self.spoken.p1, self.spoken.q1
        self.p2, self.q2 = SPEAKS * self.spoken.p2, SPEAKS * self.spoken.q2
        self.p, self.q = SPEAKS * self.spoken.p, SPEAKS * self.spoken.q
        self.signature = f"L-silent(k={self.k}, eps_inf={self.eps_inf!r}, eps_1={self.eps_1!r})"

    def coins(self) -> Coins:
        rounds = self.spoken.coins()
        return {"memo": rounds["memo"], "report": {"speak": coin(SPEAKS, SILENT)} | rounds["report"]}

    def memoize(self, values: npt.ArrayLike, rng: np.random.Generator, enrolment: IntArray | None = None) -> Reports:
        return self.spoken.memoize(values, rng).astype(self.report_dtype)

    def report(self, memos: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        drawn = randomize(self._as_memos(memos).astype(np.int64), self.k, self.spoken.p2, rng)
        return np.where(rng.random(drawn.size) < SPEAKS, drawn, self.k).astype(self.report_dtype)

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        return np.asarray(reports <= self.k)

    def _count(self, reports: Reports) -> IntArray:
        return np.bincount(reports, minlength=self.k + 1)

    def _channel(self) -> FloatArray:
        symbols = np.full((self.k, self.k), self.q) + np.eye(self.k) * (self.p - self.q)
        return np.column_stack([symbols, np.full(self.k, SILENT)])

    def _log2_outputs(self) -> float:
        return math.log2(self.k + 1)


class HadamardRandomizer(OneTimeRandomizer):
    def report_value(self, value: int, random: DeviceRandom) -> bytes:
        """Draws a report y with an even number of common ones with a = value + 1 if the coin says so, else with an odd one.

        All bits of y are drawn but the lowest one of a, which follows from the others.
        """
        n_reports = 1 << self.k.bit_length()
        odd = not random.toss(self._second["even"], 1)[0]
        drawn, a = random.below(n_reports // 2), value + 1
        pivot = a & -a
        low = drawn & (pivot - 1)
        y = (drawn - low) << 1 | low
        return symbol_row(n_reports, y | pivot if (a & y).bit_count() % 2 != odd else y)


class HadamardReading(Reading):
    m: "HadamardResponse"

    def _support(self, table: CountTable) -> IntArray:
        return np.asarray((table.n + (hadamard(self.m.n_reports) @ table.counts)[1 : self.m.k + 1]) // 2, np.int64)

    def _channel_term(self, counts: IntArray) -> DenseTerm | None:
        return DenseTerm(self.m.channel(), counts) if self.m.has_channel else None

    def _covariance_factors(self, frequencies: FloatArray, steps: int) -> list[tuple[int, FloatArray]]:
        """Cov(S_u, S_v) = W d f_w / 2 - W² d² f_u f_v with d = p - q. The matrix f_w is a sum of K vectors ±1."""
        waves = np.where(np.bitwise_count(np.arange(1, self.m.k + 1) & np.arange(self.m.n_reports)[:, None]) & 1, -1.0, 1.0)
        sizes = waves @ frequencies * steps * (self.m.p - self.m.q) / 2 / self.m.n_reports
        rows = np.sqrt(np.abs(sizes))[:, None] * waves
        kept = (-1, steps * (self.m.p - self.m.q) * frequencies)
        return [kept, *((int(np.sign(size)), row) for size, row in zip(sizes, rows, strict=True))]

    def _unshared_variances(self, frequencies: FloatArray, steps: int) -> FloatArray:
        return self.support_variances(frequencies, steps) + (steps * (self.m.p - self.m.q) * frequencies) ** 2

    def supported_together(self, steps: int) -> float:
        """The largest eigenvalue is that of people with one value: pairs of values are supported alike."""
        return steps * (self.m.p - self.m.q) / 2


class HadamardResponse(OneTime):
    """Hadamard response: a report y in [0, K) supports v if y and v + 1 have an even number of common ones; K = 2^⌈log₂(k+1)⌉.

    Each value is supported by K/2 reports. Pr[y supports the value] = p = e^ε/(1+e^ε), uniform within both halves, and q = 1/2.
    For u ≠ v, [y supports u] and [y supports v] are equal if y supports w, and v + 1 = (u + 1) xor (w + 1).

    Source: Acharya, Sun and Zhang 2019.
    """

    names = ("hadamard",)
    name = "hadamard"
    randomizer = HadamardRandomizer
    read_by = HadamardReading

    def __init__(self, k: int, eps: float) -> None:
        self.k, self.eps_1 = integer("k", k, 2, 2**24), epsilon("eps", eps)
        self.n_reports = 1 << self.k.bit_length()
        self.p, self.q = 1 / (1 + math.exp(-self.eps_1)), 0.5
        self.report_dtype, self.table_shape = unsigned(self.n_reports), (self.n_reports,)
        self.signature = f"hadamard(k={self.k}, eps={self.eps_1!r})"

    def coins(self) -> Coins:
        return {"report": {"even": coin(self.p, math.exp(-self.eps_1) * self.p)}}

    def report(self, values: npt.ArrayLike, rng: np.random.Generator) -> Reports:
        a = user_values(values, self.k) + 1
        y, pivot = rng.integers(0, self.n_reports, a.size), a & -a
        odd = np.bitwise_count(a & y) & 1 == 1
        return np.where(odd == (rng.random(a.size) < self.p), y ^ pivot, y).astype(self.report_dtype)

    def valid(self, reports: Reports) -> npt.NDArray[np.bool_]:
        return np.asarray(reports < self.n_reports)

    def _count(self, reports: Reports) -> IntArray:
        return np.bincount(reports, minlength=self.n_reports)

    def _channel(self) -> FloatArray:
        a, y = np.arange(1, self.k + 1)[:, None], np.arange(self.n_reports)
        return np.where(np.bitwise_count(a & y) & 1, 1 - self.p, self.p) * 2 / self.n_reports

    def _log2_outputs(self) -> float:
        return math.log2(self.n_reports)


class WrittenHadamard(reference.Written):
    """Sylvester's matrix of Kronecker products, whose first row and column are left out for the values."""

    term, loose = DenseTerm, True

    def reports(self, m: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        matrix: reference.Floats = np.ones((1, 1))
        while len(matrix) <= m.k:
            matrix = np.asarray(np.kron([[1, 1], [1, -1]], matrix), np.float64)
        return np.arange(len(matrix)).astype(m.report_dtype), matrix[:, 1 : m.k + 1] > 0

    def one_round(self, m: Any) -> reference.Floats:
        yes = self.reports(m)[1].T
        e = math.exp(m.eps_1)
        return np.asarray(np.where(yes, e, 1.0) / (e + 1) / (len(yes[0]) / 2))


NEW = ("L-silent", "hadamard")
PEOPLE, STEPS = 6000, 3
SURVEY = """
name = "new"
start = 2026-01-05T00:00:00Z
step_seconds = 3600
window_steps = 2
lateness_steps = 1
collection = "smp"

[[attribute]]
name = "zone"
size = 6
ordered = {ordered}

[[attribute.level]]
name = "only"
mechanism = "{name}"
{losses}
"""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for family in (Silence, HadamardResponse):
        registry.register(family)
    reference.WRITTEN["hadamard"] = WrittenHadamard()
    yield
    reference.WRITTEN.pop("hadamard", None)
    del registry.LONGITUDINAL["L-silent"], registry.ONE_TIME["hadamard"]


def survey_of(name: str, folder: Path, ordered: bool = False) -> Survey:
    losses = "eps = 1.9" if name in registry.ONE_TIME else "eps_inf = 3.0\neps_1 = 1.9"
    path = folder / "new.toml"
    path.write_text(SURVEY.format(name=name, losses=losses, ordered="true" if ordered else "false"))
    return load_survey(path)


def life(survey: Survey, number: int, folder: Path) -> list[bytes]:
    """The envelopes of a real device, which answers the steps 0 and 1."""
    device = Device(survey, folder / f"{number}.device", consent="simulated")
    return [sent for step in (0, 1) if (sent := device.report("zone", number % 6, step)) is not None]


# ---- from the survey's file to the page


@pytest.mark.parametrize("name", NEW)
def test_the_survey_and_its_documents_know_the_mechanism(name: str, tmp_path: Path) -> None:
    survey = survey_of(name, tmp_path)
    assert f'"mechanism":"{name}"' in survey.canonical
    assert name == "hadamard" or '"speak":{"no":0.0625}' in survey.canonical
    (parameters,) = survey.device_survey.mechanisms[0]
    assert (parameters.mechanism, parameters.row_bytes) == (name, 1)
    assert any(name in line for line in promise(survey))
    assert {row["mechanism"] for row in ledger_rows(survey)} == {survey.mechanisms[0][0].signature}


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("ordered", [False, True])
def test_reports_become_estimates_on_the_page(name: str, ordered: bool, tmp_path: Path) -> None:
    """Real devices report through the gateway, and simulated people report.

    All estimates are near the truth: within six standard errors plus 0.01.
    """
    survey = survey_of(name, tmp_path, ordered)
    demo = Demo(survey, MarkovValues(survey, PEOPLE, STEPS, 5), 5)
    sent = [envelope for number in range(12) for envelope in life(survey, number, tmp_path)]
    gateway = Rig(survey, now_ms=lambda: survey.opens_ms(1))
    assert asyncio.run(gateway.post_batch(sent)).status_code == 202
    assert asyncio.run(gateway.post(seal_rows(survey, 0, 0, 1, 1, b"\x08", 0))).status_code == 422  # no such symbol
    assert gateway.log.appended == [sent]
    demo.service.now_ms = survey.opens_ms(1)
    for envelope in sent:
        demo.service.append(envelope)
    demo.run(lambda step, made: None)
    assert demo.service.rejected() == {}
    with TestClient(create_api(Served(survey, demo.service.results, demo.service.rejected))) as client:
        assert client.get("/api/v1/survey").json()["attributes"][0]["levels"][0]["mechanism"].startswith(name)
        assert client.get("/").status_code == 200
    (window,) = demo.service.results.get([f"zone|window|{STEPS - 1}"])
    assert window is not None
    assert window.reports == 2 * PEOPLE + 12
    truth = np.array(demo.truth.of(window).shares)
    assert set(window.estimators) >= {"eb", "mi", "ibu", "mle"} - ({"ibu", "mle"} if ordered else set())
    for found in window.estimators.values():
        estimate = found.estimate()
        assert (np.abs(estimate.frequencies - truth) < 6 * estimate.standard_errors + 0.01).all()
    fit_z = window.diagnostics.fit_z["only"]
    assert fit_z is not None
    assert abs(fit_z) < 6


# ---- checks


@pytest.mark.parametrize("name", NEW)
def test_the_audit_keeps_the_claims(name: str) -> None:
    found = audit([name], code_paths(4000, K), 7, lambda _: None, devices=2)
    assert all(f.kept for f in found.findings)
    assert all(f.bound > 0.4 * f.claimed for f in found.findings if f.path == "vectorised" and f.claimed in (1.0, 2.0))


def reports_of(survey: Survey, m: Mechanism, n: int) -> Iterator[Call]:
    """The calls of n devices that report one value at four steps and another value once, with the draws of a mechanism."""
    rng = np.random.default_rng(3)
    values = np.arange(n) // 2 % m.k  # two runs of each device
    others = (values + 1) % m.k
    for step, rows in enumerate([*np.split(m.simulate(values, rng, 4), 4), m.simulate(others, rng)]):
        for number, row in enumerate(rows):
            envelope = seal_rows(survey, 0, 0, step, 1, row.tobytes(), 0)
            key = base64.urlsafe_b64encode(rng.bytes(16)).rstrip(b"=").decode()
            value = int((values if step < 4 else others)[number])
            yield Call(f"device {number}", number // 2, 0, value, step, envelope, key, run=number % 2)


@pytest.mark.parametrize("name", NEW)
def test_the_conformance_check_passes_a_correct_device_and_fails_a_wrong_one(name: str, tmp_path: Path) -> None:
    survey = survey_of(name, tmp_path)
    assert check_device(survey, reports_of(survey, survey.mechanisms[0][0], 2400)).failures == []
    assert check_device(survey, reports_of(survey, build(name, 1.5), 2400)).failures


# ---- the suites, on the mechanism that keeps most defaults


@pytest.mark.parametrize("k", [2, 3, 6, 7, 8])
@pytest.mark.parametrize(
    "test",
    [
        test_contract.test_the_channels_rows_are_distributions,
        test_contract.test_the_loss_of_a_report_is_exactly_eps_1,
        test_contract.test_p_and_q_are_the_probabilities_of_support,
        test_contract.test_the_channel_is_the_product_of_the_rounds,
        test_contract.test_every_report_is_counted_for_the_values_it_supports,
        test_contract.test_large_batches_give_the_same_counts_as_small_ones,
        test_contract.test_impossible_counts_are_rejected,
        test_contract.test_only_rows_that_a_device_can_send_are_valid,
        test_contract.test_invalid_rows_are_rejected,
        *(partial(test_variance.test_the_variance_is_the_enumerated_second_moment, steps=steps) for steps in (1, 2)),
    ],
)
def test_hadamard_response_keeps_the_contract(test: Callable[[Mechanism], None], k: int) -> None:
    test(HadamardResponse(k, 2.0))


def test_an_unwritten_mechanism_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(reference.WRITTEN, "hadamard")
    with pytest.raises(AssertionError, match=r"write hadamard down in .*reference.WRITTEN"):
        reference.all_reports(HadamardResponse(3, 1.0))


@pytest.mark.parametrize("k", [5, 2**24])
def test_the_default_guess_is_exact_or_a_bound(k: int) -> None:
    m = HadamardResponse(k, 1.0)
    guess = m.guess(1)
    assert guess.exact == (k == 5)
    assert 2 * m.p / m.n_reports <= guess <= guessing.bound(1.0, k) * (1 + 1e-9)
    assert k > 5 or guess == pytest.approx(m.channel().max(axis=0).sum() / k)


def test_the_default_tests_of_fit_find_too_much_support_and_raise_no_alarm() -> None:
    """3000 surveys of 2000 people with one value; report 0 supports every value. A correct test fails with probability 1e-6."""
    m, rng = HadamardResponse(6, 2.0), np.random.default_rng(8)
    counts = rng.multinomial(2000, m.channel()[0], 3000)
    fits = [fit(m, m.table(2000, row)) for row in counts]
    for level in (0.05, 0.001):
        assert all(sum(f.tests[test] <= level for f in fits) <= binom.ppf(1 - 1e-6, 3000, level) for test in fits[0].tests)
    honest = rng.multinomial(120_000, m.channel()[0])
    forged = fit(m, m.table(140_000, honest + 20_000 * np.eye(8, dtype=np.int64)[0]))
    assert (forged.sign, forged.z > 6) == ("total", True)
    assert fit(m, m.table(120_000, honest)).z < 6


# ---- half-finished mechanisms


def build(name: str, eps_1: float = 1.9) -> Mechanism:
    return mechanism(name, 6, eps=eps_1) if name in registry.ONE_TIME else mechanism(name, 6, eps_inf=3.0, eps_1=eps_1)


@pytest.mark.parametrize(
    ("kind", "whole", "missing"),
    [
        (kind, whole, name)
        for kind, whole in (
            (OneTime, HadamardResponse),
            (Longitudinal, Silence),
            (LongitudinalClaims, SilenceClaims),
        )
        for name in sorted(kind.__abstractmethods__)
    ],
)
def test_a_missing_method_is_named(kind: ABCMeta, whole: type, missing: str) -> None:
    half = type("Half", (kind,), {name: getattr(whole, name) for name in kind.__abstractmethods__ - {missing}})
    with pytest.raises(TypeError, match=rf"Half .*\b{missing}\b"):
        half()
