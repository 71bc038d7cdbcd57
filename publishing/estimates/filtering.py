"""The filtered curve of an attribute: every share, estimated from all steps so far, and the jumps that the filter detects.

The filter (`local_level`) observes a step when the counts of the step and of all earlier steps are final. Before
that, the publication is preliminary. If there is no usable state, the filter starts anew at the step.

The published shares are the filter's levels, projected onto the simplex (norm-sub). With `choices`, they are multiplied by the
largest number of choices, and at most 1. An interval is the filter's interval within [0, 1], extended to the published share.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from ldpstream.estimators.estimate import Estimate
from ldpstream.estimators.filter.changes import Change
from ldpstream.estimators.filter.local_level import Filtered, LocalLevel
from ldpstream.estimators.filter.step_noise import step_noise
from ldpstream.estimators.matrix_inversion import matrix_inversion
from ldpstream.estimators.post_processing import post_process
from ldpstream.estimators.sets import mean_of_filtered, shares_of_people
from ldpstream.estimators.smooth.ordered import smoothed_shares
from ldpstream.mechanisms import CountTable, Mechanism
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.estimates.catalogue import FILTER, INVERSION
from ldpstream.publishing.estimates.finite import Attempts, finite
from ldpstream.publishing.estimates.frequencies import Ends, Frequencies, NumberEstimate, Withheld, numbers_of, of_sets
from ldpstream.publishing.estimates.publication import Diagnostics, Jump, Publication
from ldpstream.publishing.estimates.thresholds import ALARM_CHANCE


def conclude_filtered(
    mechanisms: tuple[Mechanism, ...],
    tables: list[CountTable],
    made: list[Publication],
    state: bytes | None,
    final: bool = True,
    edges: Sequence[float] | None = None,
    bins: bool = False,
) -> tuple[Publication, bytes]:
    """Returns the publication of the span "filtered" and the filter's state after the step.

    Args:
        edges, bins: as in `numbers_of`.
        final: false for a preliminary publication. It states no jump: a filter that passed over steps dates a jump wrongly.
    """
    step, most = made[0], mechanisms[0].choices
    raw = matrix_inversion(zip(mechanisms, tables, strict=True)).frequencies
    level = _restored(state, mechanisms[0].k, step.step)
    found = _observe(level, step.step, mechanisms, raw, [table.n for table in tables])
    biased = any(p.diagnostics.levels_p is not None and p.diagnostics.levels_p < ALARM_CHANCE for p in made)
    withheld: Withheld | None = "levels" if biased else None
    attempts = Attempts()
    shares = _projected(found, step.reports)
    publication = Publication(
        survey=step.survey,
        fingerprint=step.fingerprint,
        attribute=step.attribute,
        step=step.step,
        span="filtered",
        panes=level.observed,
        reports=step.reports,
        complete=step.complete,
        estimators={FILTER: Frequencies.of(shares if most is None else shares_of_people(shares, most), withheld)},
        numbers=attempts.of("numbers", lambda: _numbers(found, mechanisms, step.reports, edges, bins, withheld), {}),
        privacy=step.privacy,
        diagnostics=Diagnostics(mass_below_zero=None, fit_z={}),
        change=_jump(found.change, most or 1) if final and found.change is not None else None,
    )
    return finite(publication, attempts.failed), level.to_bytes()


def replay(mechanisms: tuple[Mechanism, ...], step: Publication, state: bytes | None) -> bytes:
    """Returns the filter's state after a step whose publication was restored.

    It passes over the step if the publication lacks the number of reports of each level.
    """
    reports = [step.reports] if len(mechanisms) == 1 else [level.reports for level in step.levels.values()]
    raw = np.full(mechanisms[0].k, np.nan)
    if len(reports) == len(mechanisms):
        raw = step.estimators[INVERSION].estimate().frequencies / (mechanisms[0].choices or 1)
    level = _restored(state, mechanisms[0].k, step.step)
    _observe(level, step.step, mechanisms, raw, reports)
    return level.to_bytes()


def _observe(level: LocalLevel, step: int, mechanisms: tuple[Mechanism, ...], raw: FloatArray, reports: list[int]) -> Filtered:
    """Passes over the steps before `step`, and observes `step`. A NaN in `raw` means that there is no observation."""
    if step > level.next_step:
        level.skip(step - level.next_step)
    if np.isnan(raw).any():
        return level.skip()
    expected = level.predicted if level.observed else raw
    noise = step_noise(list(zip(mechanisms, reports, strict=True)), expected)
    return level.step(raw, noise.fresh, noise.lasting, noise.skewness)


def _projected(found: Filtered, reports: int) -> Estimate:
    levels = found.frequencies
    shares = post_process(levels, "norm-sub")
    ends = Ends(shares, np.clip(found.low, 0, 1), np.clip(found.high, 0, 1))
    return Estimate(shares, found.standard_errors, reports, converged=not np.isnan(levels).any(), posterior=ends)


def _numbers(
    found: Filtered,
    mechanisms: tuple[Mechanism, ...],
    reports: int,
    edges: Sequence[float] | None,
    bins: bool,
    withheld: Withheld | None,
) -> dict[str, NumberEstimate]:
    if mechanisms[0].choices is not None:
        return of_sets(mean_of_filtered(found, mechanisms), withheld)
    if edges is None:
        return {}
    shares = smoothed_shares(found.frequencies, found.standard_errors, reports, np.diff(edges))
    return numbers_of(shares, edges, bins, withheld)


def _restored(state: bytes | None, k: int, step: int) -> LocalLevel:
    with suppress(ValueError):  # none, or written by another software version
        level = LocalLevel.from_bytes(state or b"")
        if level.k == k and level.next_step <= step:
            return level
    return LocalLevel(k, next_step=step)


def _jump(change: Change, times: int) -> Jump:
    size, low, high = (times * x for x in (change.size, *change.interval()))
    return Jump(changed_at=change.step, value=change.value, size=size, low=low, high=high, sigma=change.score)
