"""Tests of a publication's numbers, JSON and diagnostics."""

import math

import msgspec
import numpy as np
import pytest

from ldpstream.engines import PaneKey
from ldpstream.engines.checkpoint import Checkpoint
from ldpstream.estimators import ibu, mle
from ldpstream.mechanisms import CountTable
from ldpstream.publishing.estimates.conclusions import conclude
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Survey
from tests.faults.memory_store import MemoryCountStore, MemoryResults
from tests.small_survey import small_survey

from .metrics_rig import Gauges
from .schedule_rig import MARGIN_MS, Schedule, ScheduleLog, Told


def one_attribute(name: str, k: int, levels: dict[str, tuple[str, float]], window_steps: int = 2) -> Survey:
    """A survey of the attribute "a"; its levels have these one-time mechanisms and ε."""
    level = [{"name": level, "mechanism": mechanism, "eps": eps} for level, (mechanism, eps) in levels.items()]
    return small_survey({"name": "a", "size": k, "level": level}, name=name, window_steps=window_steps)


def test_publications_without_numbers_survive_json() -> None:
    """JSON preserves the NaN of an empty step, and the missing bound of a one-time level."""
    once = one_attribute("once", 3, {"l": ("GRR", 1.0)})
    m = once.mechanisms[0][0]
    made = conclude(once, 0, 0, "step", [[m.empty_table()]], True)
    back = msgspec.json.decode(msgspec.json.encode(made), type=Publication)
    assert back == made
    assert back.estimators["mi"].frequencies == [None, None, None]
    assert np.isnan(back.estimators["mi"].estimate().standard_errors).all()
    assert back.privacy["l"].eps_inf is None
    newer = msgspec.structs.replace(made, step=5)
    gauges = Gauges(once, [made, newer, made])  # publishes an old step again
    assert gauges("estimate_step", attribute="a", span="step") == 5
    assert gauges("privacy_eps_inf_nats", attribute="a", level="l") == math.inf


def test_prometheus_shows_the_chances_of_a_right_guess() -> None:
    """One report of GRR has the chance p. Ten fresh reports of any values have the same bound as ten reports of one value."""
    once = one_attribute("once", 6, {"l": ("GRR", 1.0)})
    m = once.mechanisms[0][0]
    for step, chance in ((0, m.p), (9, m.guess(10))):
        gauges = Gauges(once, [conclude(once, 0, step, "step", [[m.empty_table()]], True)])
        shown = {
            name: gauges(f"privacy_guess_{name}_ratio", attribute="a", level="l")
            for name in ("without_report", "unchanged", "changing", "device_unchanged", "device_changing")
        }
        assert shown == pytest.approx(dict.fromkeys(shown, chance) | {"without_report": 1 / 6})


def test_prometheus_shows_no_chance_below_an_upper_bound() -> None:
    """Dashboards round to nearest: a bound of 62.13 % would be shown as 62.1 %."""
    level = {"name": "l", "mechanism": "L-OLH", "eps_inf": 2.0, "eps_1": 1.0}
    memoized = small_survey({"name": "a", "size": 12, "level": [level]})
    m = memoized.mechanisms[0][0]
    gauges = Gauges(memoized, [conclude(memoized, 0, 2, "step", [[m.empty_table()]], True)])
    assert gauges("privacy_guess_changing_ratio", attribute="a", level="l") == 0.622
    assert m.claims.guess_any_values(3) == pytest.approx(0.62127, abs=1e-5)
    assert not m.claims.guess_any_values(3).exact


def test_a_publication_holds_ibu_and_the_maximum_over_all_levels() -> None:
    survey = one_attribute("mixed", 50, {"low": ("GRR", 2.0), "high": ("OLH", 1.0)})
    rng = np.random.default_rng(15)
    levels = survey.mechanisms[0]
    panes = [[m.tabulate(m.simulate(rng.integers(0, 20, 80), rng)) for m in levels] for _ in range(2)]
    made = conclude(survey, 0, 1, "window", panes, True)
    groups = [(m, panes[0][i] + panes[1][i]) for i, m in enumerate(levels)]
    expected = {"ibu": ibu(groups, steps=2, likelihood="support"), "mle": mle(groups, steps=2, likelihood="support")}
    back = msgspec.json.decode(msgspec.json.encode(made), type=Publication)
    for name, found in expected.items():
        estimate = back.estimators[name].estimate()
        np.testing.assert_array_equal(estimate.frequencies, found.frequencies)
        assert back.estimators[name].interval_withheld == "bias"  # 320 reports of 50 values are few
        assert np.isnan(estimate.standard_errors).all()
        assert (estimate.iterations, estimate.converged, estimate.gap) == (found.iterations, found.converged, found.gap)
    assert expected["mle"].gap < 1e-12 < 1e-6 < expected["ibu"].gap  # IBU stopped before it converged
    assert back.estimators["mi"].gap is None
    assert back == conclude(survey, 0, 1, "window", panes, True)


@pytest.mark.parametrize("window_steps", [1, 3])
def test_diagnostics_are_published(window_steps: int) -> None:
    """The three steps have honest reports, changed values and forged reports. Even the shortest window has a previous step."""
    survey = one_attribute("signs", 8, {"l": ("OUE", 1.0), "m": ("GRR", 1.0)}, window_steps=window_steps)
    unary, symbols = survey.mechanisms[0]
    rng = np.random.default_rng(31)
    values = rng.choice(3, (3, 5000))
    values[1:] += 4  # the values change at the second step
    store, results, told = MemoryCountStore(survey), MemoryResults(), Told()
    gauges = Gauges(survey)
    panes: dict[PaneKey, CountTable] = {}
    for step in range(3):
        panes[PaneKey(0, 0, step)] = unary.tabulate(unary.simulate(values[step], rng))
        panes[PaneKey(0, 1, step)] = symbols.tabulate(symbols.simulate(values[step], rng))
    panes[PaneKey(0, 0, 2)] += unary.table(500, np.full(8, 500))
    store.commit(0, None, Checkpoint(3, survey.closes_ms(2) - 1, panes))
    log = ScheduleLog([survey.opens_ms(step) for step in range(3)])
    schedule = Schedule(survey, store, log, results, [told, gauges])
    for step in range(3):  # estimates one step at a time, so that old tables are pruned
        schedule.run(survey.closes_ms(step) + MARGIN_MS)
    found = {(p.step, p.span): p.diagnostics for p in told.publications}
    assert found == {
        (p.step, p.span): p.diagnostics
        for p in msgspec.json.decode(msgspec.json.encode(results.history()), type=list[Publication])
    }
    honest, changed, forged = (found[step, "step"] for step in range(3))
    assert (honest.drift_sigma, honest.drift_value, honest.drift_p) == (None, None, None)
    assert changed.drift_sigma is not None
    assert changed.drift_sigma > 10
    assert changed.drift_value in (0, 1, 2, 4, 5, 6)
    assert changed.drift_p is not None
    assert changed.drift_p < 1e-6
    assert all(found[step, "window"].drift_sigma is None for step in range(3))
    for quiet in (honest, changed):
        assert set(quiet.fit_z) == set(quiet.fit_p) == set(quiet.fit_sign) == {"l", "m"}
        assert all(abs(z) < 5 for z in quiet.fit_z.values() if z is not None)
    assert forged.fit_z["l"] is not None
    assert forged.fit_z["l"] > 6
    assert (forged.fit_sign["l"], found[2, "window"].fit_sign["l"]) == ("ones", "ones")
    assert honest.mass_below_zero is not None
    assert 0 < honest.mass_below_zero < 0.3
    assert gauges("fit_z", attribute="a", level="l") == forged.fit_z["l"]
    assert gauges("drift_sigma", attribute="a") == forged.drift_sigma
