"""Counts that no honest population makes: estimates stay finite, and what cannot be calculated is left out and named."""

import math

import msgspec
import numpy as np
import pytest
import structlog
from scipy.special import log_ndtr, ndtri_exp

from lab.drawn_tables import drawn_table
from ldpstream.engines.count_store import StoreDamaged
from ldpstream.engines.kafka.redis_results import RedisResults
from ldpstream.estimators import empirical_bayes
from ldpstream.estimators.diagnostics import fit
from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.smooth.draws import Draws
from ldpstream.estimators.smooth.smooth_prior import FARTHEST, TINY, _independent, _Mode, _Problem, smoothness
from ldpstream.mechanisms import CountTable, Mechanism, mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.estimates import catalogue
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.finite import finite
from ldpstream.publishing.estimates.frequencies import Frequencies, NumberEstimate
from ldpstream.publishing.estimates.publication import Jump, Publication
from ldpstream.publishing.progress import Progress
from ldpstream.publishing.results import KeptResults

from .metrics_rig import Gauges
from .test_publication import one_attribute

HONEST = 18_000


def hills(k: int) -> FloatArray:
    at = np.arange(k) / k
    shares = np.exp(-(((at - 0.3) / 0.1) ** 2)) + 0.4 * np.exp(-(((at - 0.7) / 0.06) ** 2))
    return np.asarray(shares / shares.sum())


def with_silent_devices(m: Mechanism, silent: int) -> CountTable:
    """A table of honest reports, and of this many bit vectors without a one."""
    rng = np.random.default_rng(5)
    return drawn_table(m, rng.multinomial(HONEST, hills(m.k)), rng) + m.table(silent, np.zeros(m.k, np.int64))


@pytest.mark.parametrize(("k", "silent"), [(100, 2000), (100, 9000), (20, 2000), (20, 9000)])
def test_devices_that_send_no_one_leave_the_ordered_estimate_finite(k: int, silent: int) -> None:
    """The order of the estimate also remains: such vectors lower all counts alike."""
    m = mechanism("OUE", k=k, eps=1.0)
    found = empirical_bayes(m, with_silent_devices(m, silent), ordered=True)
    assert isinstance(found.posterior, Draws)
    for numbers in (found.frequencies, found.standard_errors, found.posterior.shares, *found.interval()):
        assert np.isfinite(numbers).all()
    assert found.frequencies.sum() == pytest.approx(1)
    assert np.corrcoef(found.frequencies, hills(k))[0, 1] > 0.9


@pytest.mark.parametrize("ratio", [-1e9, -1e4, -100.0, -30.0, -8.3, -1.0, 0.0, 3.0, 40.0])
def test_the_independent_part_is_drawn_from_the_normal_distribution_above_zero(ratio: float) -> None:
    """The reference calculates with logarithms. Centres below `FARTHEST` are moved to `FARTHEST`."""
    k, error = 4, 0.01
    problem = _Problem.of(
        np.full(k, ratio * error / math.sqrt(0.5)), np.full(k, error**2 / 0.5), np.ones(k), np.array([0, 1.0])
    )
    problem = problem._replace(shrinkage=np.full((2, k), [[0.0], [0.5]]))
    mode = _Mode.start(problem, smoothness(k, 1, 1.0), True)
    mode.gamma[:] = [[0.0], [1.0]]
    smooth = np.full((50, k), problem.z[0])  # then the centre is z
    found = _independent(problem, mode, smooth, np.arange(k), np.random.default_rng(2))
    rng = np.random.default_rng(2)
    rng.random(smooth.shape)
    spread = math.sqrt(problem.variance[0] * 0.5)
    at = max(problem.z[0] / spread, FARTHEST)
    expected = spread * (at - ndtri_exp(log_ndtr(at) + np.log1p(-rng.random(smooth.shape))))
    np.testing.assert_allclose(found, np.maximum(expected, TINY), rtol=1e-7, atol=1e-12)
    assert (found > 0).all()


def concluded() -> Publication:
    survey = one_attribute("odd", 4, {"l": ("OUE", 1.0)})
    m = survey.mechanisms[0][0]
    return conclude(survey, 0, 0, "step", [[m.table(100, np.array([50, 40, 30, 20]))]], True)


@pytest.mark.parametrize("error", [ValueError("cannot convert float NaN to integer"), ZeroDivisionError("division by zero")])
def test_an_estimator_that_fails_is_left_out_and_named(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **options: object) -> Estimate:
        raise error

    monkeypatch.setattr(catalogue, "empirical_bayes", fails)
    made = concluded()
    assert made.diagnostics.failed == ("eb",)
    assert made.estimators["eb"].frequencies == [None] * 4
    assert None not in made.estimators["mi"].frequencies + made.estimators["mle"].frequencies
    assert msgspec.json.decode(msgspec.json.encode(made), type=Publication) == made
    gauges = Gauges(one_attribute("odd", 4, {"l": ("OUE", 1.0)}), [made])
    assert gauges("estimates_failed_total", attribute="a") == 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nothing_that_is_not_finite_is_published(number: float) -> None:
    sound = concluded()
    assert finite(sound) is sound
    assert sound.diagnostics.failed == ()
    changed = msgspec.structs.replace
    eb = changed(sound.estimators["eb"], low=[0.1, None if math.isnan(number) else number, 0.1, 0.1])
    numbers = {"mean": NumberEstimate(value=number, low=0.0, high=1.0)}
    said = changed(sound.diagnostics, drift_sigma=number, fit_z={"l": number})
    jump = Jump(changed_at=0, value=0, size=number, low=0.0, high=1.0, sigma=1.0)
    odd = changed(sound, estimators=sound.estimators | {"eb": eb}, numbers=numbers, diagnostics=said, change=jump)
    made = finite(odd)
    assert set(made.diagnostics.failed) == {"eb", "numbers", "diagnostics", "change"}
    assert made.estimators["eb"].frequencies == [None] * 4
    assert made.estimators["mi"] == sound.estimators["mi"]
    assert (made.numbers, made.change, made.diagnostics.drift_sigma) == ({}, None, None)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Publication) == made


def test_finite_numbers_with_an_infinite_sum_are_published() -> None:
    """Bins may have edges of this size."""
    huge = msgspec.structs.replace(concluded(), numbers={"mean": NumberEstimate(value=1e308, low=0.9e308, high=1.1e308)})
    assert finite(huge) is huge


@pytest.mark.parametrize("ends", [[0.1, 0.2, 0.3, 0.4], [math.inf] * 4])
def test_missing_shares_have_no_intervals(ends: list[float]) -> None:
    honest = concluded()
    k = len(honest.estimators["eb"].frequencies)
    odd = msgspec.structs.replace(honest.estimators["eb"], frequencies=[None] * k, low=ends[:k], high=ends[:k])
    found = finite(msgspec.structs.replace(honest, estimators=honest.estimators | {"eb": odd}))
    assert found.estimators["eb"] == Frequencies.nothing(k)
    assert found.diagnostics.failed == ("eb",)
    missing = msgspec.structs.replace(odd, low=None, high=None)
    kept = msgspec.structs.replace(honest, estimators=honest.estimators | {"eb": missing})
    assert finite(kept) == kept


def test_readers_skip_a_publication_that_they_cannot_decode() -> None:
    """Once a mean of NaN was published as null, and the whole history of the survey failed with it."""
    sound = concluded()
    odd = msgspec.structs.replace(sound, step=1, numbers={"mean": NumberEstimate(value=math.nan, low=None, high=None)})
    stored = {p.key.encode(): msgspec.json.encode(p) for p in (sound, odd)}
    survey = one_attribute("odd", 4, {"l": ("OUE", 1.0)})
    results = KeptResults(survey, RedisResults(survey, Redis(stored)))  # type: ignore[arg-type]  # has what is read
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            assert results.history() == [sound]
            assert results.get([odd.key, sound.key, "a|step|7"]) == [None, sound, None]
    assert [(line["store"], line["key"]) for line in logged] == [("redis", odd.key)]


def test_a_damaged_progress_is_refused_with_the_remedy() -> None:
    redis = Redis({})
    survey = one_attribute("odd", 4, {"l": ("OUE", 1.0)})
    results = KeptResults(survey, RedisResults(survey, redis))  # type: ignore[arg-type]  # has what is read
    redis.progress = b"{"
    with pytest.raises(StoreDamaged, match=r":progress cannot be decoded: .*; delete ldpstream:.*:progress and ldpstream:.*"):
        results.progress()


class Redis:
    """A client of Redis that reads these publications."""

    def __init__(self, stored: dict[bytes, bytes]) -> None:
        self._stored, self.progress = stored, msgspec.json.encode(Progress(first_step=0, next_step=2))

    def register_script(self, script: str) -> str:
        return script

    def get(self, key: str) -> bytes:
        return self.progress

    def hgetall(self, key: str) -> dict[bytes, bytes]:
        return self._stored

    def hmget(self, key: str, fields: list[str]) -> list[bytes | None]:
        return [self._stored.get(field.encode()) for field in fields]


def test_one_honest_report_of_a_square_wave_is_no_failure() -> None:
    """All remainders have the same chance, so Pearson's χ² of one report is a constant."""
    m = mechanism("SW", k=6, eps=0.1)
    for cell in range(10):
        found = fit(m, CountTable(m.signature, 1, np.eye(10, dtype=np.int64)[cell]))
        assert math.isnan(found.z)
    assert math.isfinite(fit(m, CountTable(m.signature, 2, np.eye(10, dtype=np.int64)[0] * 2)).z)
