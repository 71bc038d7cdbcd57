"""Tests of the local-level filter: dense references, restarts, steps without reports, memo noise, coverage."""

import math

import numpy as np
import pytest

from ldpstream.estimators.estimate import NORMAL
from ldpstream.estimators.filter import local_level
from ldpstream.estimators.filter.local_level import DRIFTS, FLOOR, MEMORY, Filtered, LocalLevel
from ldpstream.mechanisms.arguments import FloatArray

from .dense_levels import DenseLevel

K, STEPS = 3, 9


def stream(seed: int = 0, steps: int = STEPS) -> tuple[FloatArray, FloatArray]:
    """Returns raw inversions (steps, K) without reports at steps 0 and 4, and the variances of the fresh noise."""
    rng = np.random.default_rng(seed)
    observed = 0.3 + 0.1 * rng.normal(size=(steps, K))
    observed[[0, 4]] = np.nan
    return observed, rng.uniform(0.002, 0.02, (steps, K))


def advance(level: LocalLevel, observed: FloatArray, fresh: FloatArray, lasting: float = 0.0) -> Filtered:
    return level.skip() if np.isnan(observed).any() else level.step(observed, fresh, np.full(observed.size, lasting))


# ---- dense references


def not_behind(level: LocalLevel, mean: FloatArray) -> FloatArray:
    return np.zeros(level.k)


@pytest.mark.parametrize("lasting", [0.0, 0.01])
def test_the_filter_equals_the_dense_mixture(lasting: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected levels, likelihoods and variances of every q come from multivariate normal distributions of all steps."""
    monkeypatch.setattr(LocalLevel, "_behind", not_behind)
    observed, fresh = stream()
    models = [[DenseLevel(float(q), fresh[:, j], lasting) for j in range(K)] for q in DRIFTS[:, 0]]
    likelihood, prior = np.zeros((DRIFTS.size, K)), np.full((DRIFTS.size, 1), 1 / DRIFTS.size)

    def mixture(moments: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        weights = prior * np.exp(likelihood)
        weights /= weights.sum(axis=0)
        mean = (weights * moments[..., 0]).sum(axis=0)
        return weights, mean, np.sqrt((weights * (moments[..., 1] + (moments[..., 0] - mean) ** 2)).sum(axis=0))

    level = LocalLevel(K, math.inf)
    for t in range(STEPS):
        found = advance(level, observed[t], fresh[t], lasting)
        if t == 0:
            assert np.isnan(found.frequencies).all()
            continue
        if t not in (1, 4):
            ahead = np.array([[m.next(observed[:t, j]) for j, m in enumerate(row)] for row in models])
            weights = mixture(ahead)[0]
            prior = (1 - FLOOR) * weights.mean(axis=1, keepdims=True) + FLOOR / DRIFTS.size
            likelihood *= MEMORY
            likelihood -= 0.5 * (np.log(ahead[..., 1]) + (observed[t] - ahead[..., 0]) ** 2 / ahead[..., 1])
        moments = np.array([[m.last(observed[: t + 1, j]) for j, m in enumerate(row)] for row in models])
        _, mean, spread = mixture(moments)
        np.testing.assert_allclose(found.frequencies, mean, rtol=1e-9)
        np.testing.assert_allclose(found.standard_errors, spread, rtol=1e-9)


@pytest.mark.parametrize("lasting", [0.0, 0.002])
def test_an_alarm_equals_a_jump_with_infinite_prior_variance(lasting: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one q, the state after an alarm is the dense posterior with a new level at the step of the jump."""
    monkeypatch.setattr(local_level, "DRIFTS", np.array([[1e-3]]))
    rng, steps, jump = np.random.default_rng(1), 60, 50
    observed = 0.3 + 0.05 * rng.normal(size=(steps, 2))
    observed[jump:, 0] += 0.29
    observed[jump + 1] = np.nan
    fresh = rng.uniform(0.002, 0.004, (steps, 2))
    level, alarm = LocalLevel(2, 1000.0), steps
    for t in range(steps):
        found = advance(level, observed[t], fresh[t], lasting)
        if t >= jump:
            starts = (jump,) if found.change or t > alarm else ()
            if found.change:
                alarm = t
                assert (found.change.value, found.change.step, list(found.change.moved)) == (0, jump, [True, False])
            mean, square = DenseLevel(1e-3, fresh[:, 0], lasting, starts).last(observed[: t + 1, 0])
            assert (found.frequencies[0], found.standard_errors[0]) == pytest.approx((mean, math.sqrt(square)), rel=1e-9)
        else:
            assert found.change is None
    assert jump < alarm < steps - 3


# ---- state


def test_a_restarted_filter_continues_with_the_same_bits() -> None:
    """Restarts one filter after every step; some step has an alarm. Control: a filter that lost one step differs."""
    rng, fresh = np.random.default_rng(2), np.full(K, 1e-4)
    one, other, late = LocalLevel(K, 100, 7), LocalLevel(K, 100, 7), LocalLevel(K, 100, 7)
    alarms = 0
    for t in range(80):
        observed = 0.3 + 0.01 * rng.normal(size=K) + (0.1 if t >= 40 else 0) if t % 7 else np.full(K, np.nan)
        other = LocalLevel.from_bytes(other.to_bytes())
        a, b = advance(one, observed, fresh, 1e-5), advance(other, observed, fresh, 1e-5)
        assert a.frequencies.tobytes() == b.frequencies.tobytes()
        assert a.standard_errors.tobytes() == b.standard_errors.tobytes()
        assert (a.change is None) == (b.change is None)
        assert one.to_bytes() == other.to_bytes()
        if a.change is not None:
            alarms += 1
            assert 7 <= a.change.step < one.next_step
        if t == 20:
            late.skip()
        else:
            advance(late, observed, fresh, 1e-5)
    assert alarms
    assert late.to_bytes() != one.to_bytes()
    assert (one.next_step, one.observed) == (87, 68)


def test_a_damaged_state_is_refused() -> None:
    data = LocalLevel(K).to_bytes()
    for wrong in (b"", b"{}\n", b"no\n" + data, data[:-8], data + b"\0" * 8):
        with pytest.raises(ValueError, match="state of a"):
            LocalLevel.from_bytes(wrong)


# ---- steps without reports, lasting noise


def test_a_step_without_reports_only_widens_the_interval() -> None:
    level, other = LocalLevel(K), LocalLevel(K)
    assert np.isnan(level.skip().frequencies).all()
    other.skip()
    for observed in (0.3, 0.35):
        before = level.step(np.full(K, observed), np.full(K, 0.01))
        other.step(np.full(K, observed), np.full(K, 0.01))
    after = level.skip()
    np.testing.assert_array_equal(after.frequencies, before.frequencies)
    assert (after.standard_errors > before.standard_errors).all()
    np.testing.assert_array_equal(level.predicted, after.frequencies)
    level.skip()
    np.testing.assert_allclose(other.skip(2).standard_errors, level.skip(0).standard_errors, rtol=1e-12)
    assert level.next_step == other.next_step == 5


def test_lasting_noise_of_fewer_people_widens_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """If s² changes from a to b, the filter's variance grows by |a - b|: compares two steps with the formulas."""
    monkeypatch.setattr(local_level, "DRIFTS", np.array([[0.0]]))
    fresh = 0.01
    for before, after in ((0.02, 0.005), (0.005, 0.02), (0.01, 0.01)):
        level = LocalLevel(K)
        level.step(np.full(K, 0.3), np.full(K, fresh), np.full(K, before))
        found = level.step(np.full(K, 0.4), np.full(K, fresh), np.full(K, after))
        ahead = fresh + abs(before - after)
        gain = ahead / (ahead + fresh)
        np.testing.assert_allclose(found.frequencies, 0.3 + gain * 0.1, rtol=1e-12)
        np.testing.assert_allclose(found.standard_errors**2, gain * fresh + after, rtol=1e-12)


@pytest.mark.parametrize("growing", [True, False])
def test_a_changed_number_of_people_is_no_jump(growing: bool) -> None:
    """At step 50 the number of people grows or falls 30-fold. The people of one phase include those of the other phase.

    In 40 runs of 100 steps there is at most one alarm, and at least 90 % of the later intervals contain the truth. Control: a
    filter that does not know of the change raises alarms.
    """
    rng, alarms, blind, inside = np.random.default_rng(7), 0, 0, []
    large, small = 0.03**2, 0.03**2 / 30
    for _ in range(40):
        common, others = math.sqrt(small) * rng.normal(size=4), math.sqrt(large - small) * rng.normal(size=4)
        level, unaware = LocalLevel(4), LocalLevel(4)
        for t in range(100):
            few = (t < 50) == growing
            lasting, noise = (large, common + others) if few else (small, common)
            observed = 0.2 + noise + math.sqrt(lasting / 4) * rng.normal(size=4)
            fresh = np.full(4, lasting / 4)
            found = level.step(observed, fresh, np.full(4, lasting))
            alarms += found.change is not None
            blind += unaware.step(observed, fresh, np.full(4, small)).change is not None
            if t >= 50:
                inside.append(np.abs(found.frequencies - 0.2) <= 1.96 * found.standard_errors)
    assert alarms <= 1
    assert blind > 10
    assert np.mean(inside) >= 0.9


def test_reports_that_repeat_the_memo_are_accepted() -> None:
    """With eps_1 = eps_inf, reports have no fresh noise. Numbers stay finite, and the errors are those of the memos."""
    level = LocalLevel(K)
    for _ in range(200):
        found = level.step(np.full(K, 0.3), np.zeros(K), np.full(K, 0.01))
    np.testing.assert_allclose(found.standard_errors, 0.1, rtol=1e-3)


# ---- coverage


def errors(kind: str, seeds: int, steps: int = 200) -> FloatArray:
    """Returns the errors of 8 values' levels, in 1.96ths of the interval on their side, from step 30 of each run on."""
    k, spread, found = 8, 0.01, []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 5])
        change = rng.normal(size=(steps, k)) * (0.1 if kind in ("drifting", "people leave", "lasting") else 0.0) * spread
        truth = 0.1 + change.cumsum(axis=0)
        if kind == "waves":
            truth += 0.05 * np.sin(0.02 * np.arange(steps))[:, None]
        if kind == "steady":
            truth[:, 0] += 0.004 * spread * np.arange(steps)
        share = 0.5 if kind in ("people leave", "lasting") else 0.0  # share of the variance that is lasting noise
        kept = 0.95 if kind == "people leave" else 1.0
        noise, level = rng.normal(size=k), LocalLevel(k)
        for t in range(steps):
            noise = kept * noise + math.sqrt(1 - kept**2) * rng.normal(size=k)
            error = math.sqrt(share) * noise + math.sqrt(1 - share) * rng.normal(size=k)
            variance = np.full(k, spread**2)
            now = level.step(truth[t] + spread * error, (1 - share) * variance, share * variance)
            if t >= 30:
                beyond = now.frequencies - truth[t]
                found.append(NORMAL * beyond / np.where(beyond > 0, now.frequencies - now.low, now.high - now.frequencies))
    return np.array(found)


@pytest.mark.parametrize("kind", ["stationary", "drifting", "waves", "people leave", "lasting"])
def test_intervals_cover_but_narrower_intervals_do_not(kind: str) -> None:
    """At least 90 % of the intervals contain the truth. Control: with three fifths of the width, fewer than 90 % do.

    The errors of a constant level are nearly equal at all steps, so 8 runs of 8 values have about 64 independent errors. The
    standard deviation of the coverage is therefore at most 2.7 %.
    """
    found = np.abs(errors(kind, 8))
    assert (found <= 1.96).mean() >= 0.90
    assert (found <= 1.96 * 0.6).mean() < 0.90


def test_intervals_hold_of_a_share_that_drifts_slowly_and_steadily(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of eight shares moves by 0.004 standard deviations of an observation at each step. Of 25 runs of 170 intervals, 92 %
    contain it. Control: without the distance from a steady drift, 72 % do."""
    found = np.abs(errors("steady", 25))[:, 0]
    monkeypatch.setattr(LocalLevel, "_behind", not_behind)
    control = np.abs(errors("steady", 25))[:, 0]
    assert (found <= 1.96).mean() > 0.88 > 0.8 > (control <= 1.96).mean()


# ---- arguments


def test_wrong_arguments_are_refused() -> None:
    level, z, v = LocalLevel(K), np.full(K, 0.3), np.full(K, 0.01)
    for observed, fresh, lasting, reason in (
        (z[:2], v, v, "observed must be 3 finite numbers"),
        (z, v[:2], v, "fresh must be 3 finite numbers"),
        (z, v, v[:2], "lasting must be 3 finite numbers"),
        (z * np.inf, v, v, "observed must be 3 finite numbers"),
        (z, -v, v, "at least 0"),
        (z, v, -v, "at least 0"),
    ):
        with pytest.raises(ValueError, match=reason):
            level.step(observed, fresh, lasting)
    with pytest.raises(ValueError, match="skewness"):
        level.step(z, v, v, v[:2])
    with pytest.raises(ValueError, match="steps must be"):
        level.skip(-1)
    with pytest.raises(ValueError, match="k must be"):
        LocalLevel(0)
    with pytest.raises(ValueError, match="run_length must be"):
        LocalLevel(K, 1.0)
    assert level.next_step == 0
