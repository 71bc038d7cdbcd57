"""The losses and the chances of a right guess after a step, and a year later, that publications, page and API show."""

import math
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.claims.guessing import Chance
from ldpstream.promises.device_chance import guesses
from ldpstream.surveys import Survey


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Privacy losses of a level, in nats. `mechanism` is the signature.

    `eps_1`: loss of one report. `eps_inf`: bound for any number of reports of an unchanged value; None for a one-time
    mechanism.
    `eps_window`: loss between value sequences that differ only within `every_steps` consecutive steps; None for a memoizing
    mechanism. `eps_lifetime`: bound for all reports, of any values, from `lifetime_reports`; None without this key, also if the
    survey ends.
    """

    mechanism: str
    eps_1: float
    eps_inf: float | None
    every_steps: int
    eps_window: float | None
    eps_lifetime: float | None


class Privacy(Losses, frozen=True, kw_only=True):
    """Privacy loss, in nats, of a participant of one level who has reported as often as possible so far: t reports.

    `eps_t`: loss if the value never changed; `eps_inf` is its bound for any number of reports. `eps_sequence`: loss between any
    two value sequences, with the bound `eps_lifetime`; an upper bound unless `eps_sequence_exact`.
    """

    t: int
    eps_t: float
    eps_sequence: float
    eps_sequence_exact: bool


class Chances(msgspec.Struct, frozen=True, kw_only=True):
    """Privacy loss of t reports, in nats, and chances of a right guess of a value, as probabilities from 0 to 1.

    The best guesser sees the t reports of this attribute and considers all values equally likely beforehand. With `choices`,
    the guess is whether one value is among the answers; yes and no are equally likely beforehand. `eps_t` and `guess`: the
    value never changed. `eps_sequence` and `guess_any_values`: the value at one step, if values may change at every step.
    `guess_device` and `guess_any_values_device`: for a guesser who also sees the device's other reports, in the worst case.
    `bounds`: the names of the chances that are upper bounds. `eps_sequence` is exact if `eps_sequence_exact`, else an upper
    bound.
    """

    t: int
    eps_t: float
    eps_sequence: float
    eps_sequence_exact: bool
    guess: float
    guess_any_values: float
    guess_device: float
    guess_any_values_device: float
    bounds: list[str]


class KnownShares(msgspec.Struct, frozen=True, kw_only=True):
    """Chances of a right guess of a value that never changes, for a guesser who believes the published shares.

    `no_report`: the largest share. `one_report`, and `now` and `year` as in `Outlook`: upper bounds, from reports of this
    attribute.
    """

    no_report: float
    one_report: float
    now: float
    year: float


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """Privacy loss at one level: `now`, after the step of the estimate, and `year`, 365 days later.

    `year` is the loss after the survey's last step, if the survey ends within these days. `known_shares` is None with
    `choices`, and if there is no estimate.
    """

    now: Chances
    year: Chances
    known_shares: KnownShares | None


def losses_of(m: Mechanism) -> dict[str, Any]:
    """Returns the fields of `Losses`."""
    return {
        "mechanism": m.signature, "eps_1": m.eps_1, "eps_inf": None if math.isinf(m.eps_inf) else m.eps_inf,
        "every_steps": m.every_steps, "eps_window": m.eps_window,
        "eps_lifetime": None if math.isinf(m.eps_lifetime) else m.eps_lifetime,
    }  # fmt: skip


@lru_cache(maxsize=4096)  # may take part of a second; a step and its window share the result
def spent(m: Mechanism, steps: int) -> Privacy:
    t = m.reports_in(steps)
    sequence = m.eps_sequence(t)
    return Privacy(
        **losses_of(m), t=t, eps_t=m.eps_t(t), eps_sequence=sequence.value, eps_sequence_exact=sequence.exact
    )  # fmt: skip


def outlook_of(survey: Survey, attribute: int, m: Mechanism, step: int, shares: tuple[float, ...] | None) -> Outlook:
    """The outlook of a level after a step.

    Args:
        shares: (k,) the published shares as a distribution, which the guesser believes; None if there are none.
    """
    steps, last = step + 1, survey.n_steps
    later = steps + survey.steps_a_year
    later = later if last is None else max(steps, min(later, last))  # devices stop after the last step
    return Outlook(
        now=_chances(survey, attribute, m, steps),
        year=_chances(survey, attribute, m, later),
        known_shares=None if shares is None else _known(m, shares, steps, later),
    )


def _chances(survey: Survey, attribute: int, m: Mechanism, steps: int) -> Chances:
    loss = spent(m, steps)
    return Chances(
        t=loss.t, eps_t=loss.eps_t, eps_sequence=loss.eps_sequence, eps_sequence_exact=loss.eps_sequence_exact,
        **named(**guesses(survey, attribute, m, steps)),
    )  # fmt: skip


@lru_cache(maxsize=1024)  # pages ask for the same step again and again
def _known(m: Mechanism, shares: tuple[float, ...], now: int, year: int) -> KnownShares:
    known = np.array(shares)
    one, of_now, of_year = (float(m.claims.guess_known(known, t)) for t in (1, m.reports_in(now), m.reports_in(year)))
    return KnownShares(no_report=float(known.max()), one_report=one, now=of_now, year=of_year)


def named(**chances: Chance) -> dict[str, Any]:
    return {name: float(chance) for name, chance in chances.items()} | {
        "bounds": [name for name, chance in chances.items() if not chance.exact]
    }
