"""The second promise: bounds for an observer who cannot see the senders of reports, so that people hide in a crowd.

**Crowd.** Let m other honest people take part. Each of them shares attribute, level, cohort and steps with the person with
probability p, whatever the values are: devices draw their attribute (smp) and their steps, and people choose levels and cohorts
independently and equally often. The number X of these people has Pr[X <= x] <= exp(-m D(x/m || p)) for x <= m p, with the
Kullback-Leibler divergence D (Chernoff 1952). The crowd is a number n with Pr[1 + X < n] <= δ/2. A smaller crowd may reveal
everything, so this probability is a part of δ.

**Right guess.** One of k values of an attribute is guessed, at first all equally likely. Each answer to another attribute may
be any function f of this value. Let G_a(k) bound the chance of a right guess among any k histories from the reports of
attribute a alone (`ledger.LossDistribution.guess`).

- smp: a device answers one attribute a, drawn independently of all values. The observer may know a. Only a's reports depend on
  the value, so the chance is at most G_a(k). If a has k_a < k values, and they never change, then
  Σ_y max_v P(y|f(v)) / k <= Σ_y max_w P(y|w) / k <= k_a/k G_a(k_a). The bound is the largest over all attributes and levels.
- rs+fd: the same, for an observer who knows which answer is true. Fake answers depend on no value.
- spl: given the values, the reports of different attributes are independent, so their losses convolve (`ledger.joined_loss`),
  for the worst levels of the other attributes.

Each bound is at most that of the first promise (`device_chance`).
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from ldpstream.mechanisms import Mechanism
from ldpstream.mechanisms.arguments import MAX_COUNT, integer, real
from ldpstream.mechanisms.ledger import LossDistribution, joined_loss
from ldpstream.promises.device_chance import all_reports, device_chance
from ldpstream.surveys.survey import Survey

DELTA = 1e-9  # default of the promise's δ
LEAST_DELTA = 1e-10  # for a smaller δ, the calculation's own error is too large
Span = Literal["report", "window", "life"]


class SecondPromise(msgspec.Struct, frozen=True, kw_only=True):
    """The two promises about the reports of a person, for an attribute, a level and a span of time.

    Attributes:
        span: "report": the reports of one step. "window": those of `window_steps` steps. "life": any number of reports of one
            memo; at a one-time level all reports of the device, or those of a year if the level has no end.
        reports: number of reports of this attribute; None for any number of reports of one memo.
        crowd: n, the least number of honest people who report at the same steps, with the same attribute, level and cohort, the
            person included. For several reports of one memo, they are the same people at all steps and keep their memos.
        delta: δ of `eps_in_crowd`. If `crowd` comes from a number of people, half of δ is the chance of a smaller crowd.
        eps_everybody: loss of this attribute's reports to everybody who sees them, in nats.
        eps_in_crowd: upper bound of this loss to somebody who does not see the senders of reports.
        guess_everybody, guess_everybody_exact: chance of a right guess from the reports of all attributes in the span, if no
            value changes, for everybody who sees the device's reports; false for an upper bound.
        guess_in_crowd: upper bound of this chance for somebody who does not see the senders of reports.
    """

    attribute: str
    level: str
    span: Span
    reports: int | None
    crowd: int
    delta: float
    eps_everybody: float
    eps_in_crowd: float
    guess_everybody: float
    guess_everybody_exact: bool
    guess_in_crowd: float


def least_crowd(honest: int, parts: int, chance: float) -> int:
    """Returns the crowd that a person's own crowd falls below with at most this chance.

    Args:
        honest: number of honest people, at least 1, the person included.
        parts: the person shares the crowd with each other honest person with probability 1/parts.

    >>> [least_crowd(20_000, parts, 5e-10) for parts in (1, 2, 16)]
    [20000, 9538, 1034]
    """
    others = honest - 1
    if parts == 1:
        return honest

    def rare(x: int) -> bool:
        ahead = x * parts - others
        divergence = x / others * math.log1p(ahead / others) if x else 0.0
        divergence += (others - x) / others * math.log1p(-ahead / (others * (parts - 1)))
        return others * divergence >= -math.log(chance)

    # `rare` holds for all smaller crowds, and not from the mean on
    return bisect_left(range(others // parts), True, key=lambda x: not rare(x)) + 1


def in_crowds(survey: Survey, span: Span, people: int | None, delta: float = DELTA) -> Iterator[SecondPromise]:
    """Yields the bounds for every attribute and level.

    Args:
        span: "report": the reports of one step. "window": those of `window_steps` steps. "life": `all_reports`.
        people: number of honest people of the whole survey; None if each crowd has the survey's `crowd`.
        delta: δ of the bounds, in [10⁻¹⁰, 0.1].

    Raises:
        ValueError: if an argument is out of range, or the survey has no `crowd` for None.
    """
    number = people if people is not None else survey.crowd
    if number is None:
        raise ValueError(f"people must be given: survey {survey.name} has no crowd")
    honest = integer("people", number, 1, MAX_COUNT)
    real("delta", delta, LEAST_DELTA, 0.1)
    steps = {"report": 1, "window": survey.window_steps, "life": None}[span]

    asked = [
        [_reports(survey, m, len(levels), steps, honest, people is None, delta) for m in levels] for levels in survey.mechanisms
    ]
    for attribute, levels in enumerate(asked):
        for level, own in enumerate(levels):
            m, t, n, loss = own
            seen = tuple((loss,) if i == attribute else tuple(r.loss for r in rs) for i, rs in enumerate(asked))
            if survey.collection == "spl":
                guess = joined_loss(seen).guess(m.claims.guessed)
            else:
                others = chain(*asked[:attribute], *asked[attribute + 1 :])
                guess = max(_guess(r, m.claims.guessed) for r in (own, *others))
            everybody = device_chance(survey, attribute, m, steps)
            eps = m.eps_inf if t == math.inf else m.eps_t(int(t))
            asked_of = survey.attributes[attribute]
            yield SecondPromise(
                attribute=asked_of.name, level=asked_of.levels[level].name, span=span,
                reports=None if t == math.inf else int(t), crowd=n, delta=delta,
                eps_everybody=eps, eps_in_crowd=min(loss.eps(delta), eps), guess_everybody=float(everybody),
                guess_everybody_exact=everybody.exact, guess_in_crowd=min(guess, float(everybody)),
            )  # fmt: skip


class _Reports(NamedTuple):
    m: Mechanism
    t: float
    n: int
    loss: LossDistribution


def _reports(survey: Survey, m: Mechanism, levels: int, steps: int | None, honest: int, stated: bool, delta: float) -> _Reports:
    t = all_reports(survey, m) if steps is None else m.reports_in(steps)
    asked = len(survey.attributes) if survey.collection == "smp" else 1
    parts = 1 if stated else asked * levels * survey.n_cohorts * m.every_steps
    n = least_crowd(honest, parts, delta / 2)
    return _Reports(m, t, n, m.claims.shuffled(t, n, delta, delta / 2 if parts > 1 else 0.0))


def _guess(reports: _Reports, k: int) -> float:
    m, loss = reports.m, reports.loss
    return min(loss.guess(k), m.k / k * loss.guess(m.k)) if m.claims.guessed == m.k < k else loss.guess(k)
