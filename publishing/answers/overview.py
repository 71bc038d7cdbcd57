"""The overview: all attributes of a survey in one period, with their differences from another period or cohort."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ldpstream.estimators.differences import beyond_chance, chances
from ldpstream.estimators.estimate import PUBLISHED_LEVEL
from ldpstream.mechanisms.arguments import FloatArray
from ldpstream.publishing.answers import sentences
from ldpstream.publishing.answers.comparison import Differences, differences_of, number_differences
from ldpstream.publishing.answers.schema import AttributeOverview, Change
from ldpstream.publishing.answers.shares import default_estimator, result_of, shares_of, too_few
from ldpstream.publishing.estimates.frequencies import Frequencies, plain, plain_number
from ldpstream.publishing.estimates.publication import Publication
from ldpstream.surveys import Attribute, Survey


class Card(NamedTuple):
    """One attribute, with all its values.

    Attributes:
        before: the publication that is subtracted; None if there is none.
        clear: which differences are more than chance, among all values of all attributes, (k,).
    """

    attribute: Attribute
    p: Publication
    before: Publication | None
    result: Frequencies
    shares: FloatArray
    low: FloatArray
    high: FloatArray
    of: Differences
    clear: npt.NDArray[np.bool_]


def cards_of(survey: Survey, found: Sequence[tuple[Attribute, Publication, Publication | None]], *, apart: bool) -> list[Card]:
    """Returns the cards of the attributes that have a publication."""
    cards = []
    for attribute, p, before in found:
        chosen = default_estimator(survey, p)
        result = result_of(p, chosen, attribute.k)
        earlier = Frequencies.nothing(attribute.k) if before is None else result_of(before, chosen, attribute.k)
        sides = (before or p, p), (earlier, result)
        of = differences_of(survey, *sides, chosen, PUBLISHED_LEVEL, apart=apart)
        interval, unmarked = result.estimate().interval(PUBLISHED_LEVEL), np.zeros(attribute.k, bool)
        cards.append(Card(attribute, p, before, result, result.estimate().frequencies, *interval, of, unmarked))
    marks = beyond_chance(np.concatenate([card.of.p for card in cards]), 1 - PUBLISHED_LEVEL)
    ends = np.cumsum([card.attribute.k for card in cards])[:-1]
    return [card._replace(clear=clear) for card, clear in zip(cards, np.split(marks, ends), strict=True)]


def shown(survey: Survey, card: Card, find: str | None, top: int) -> AttributeOverview | None:
    """Returns the `top` largest shares of a card, of the values that `find` matches; None if it matches no value."""
    a, of, shares, wanted = card.attribute, card.of, card.shares, (find or "").casefold()
    n = a.k - (a.most or 0)  # without the numbers of choices
    everything, order = wanted in a.name.casefold(), np.argsort(-shares[:n], kind="stable")
    found = order[np.array([everything or wanted in label.casefold() for label in a.labels[:n]])[order]]
    values = np.sort(found[:top]) if a.in_order else found[:top]
    if not values.size:
        return None
    return AttributeOverview(
        **shares_of(survey, card.p, default_estimator(survey, card.p), shares, (card.low, card.high), values),
        found=found.size, differences=plain(of.differences[values]), difference_low=plain(of.low[values]),
        difference_high=plain(of.high[values]), clear=card.clear[values].tolist(),
        number_differences={} if card.before is None else number_differences(card.before.numbers, card.p.numbers),
    )  # fmt: skip


class Changes:
    """The differences of all values of all attributes, one after another."""

    def __init__(self, cards: Sequence[Card]) -> None:
        self._cards, self._starts = cards, np.cumsum([0, *(card.attribute.k for card in cards)])
        self._differences, self._p, self._low, self._high = (
            np.concatenate([getattr(card.of, name) for card in cards]) for name in ("differences", "p", "low", "high")
        )
        self._clear = np.concatenate([card.clear for card in cards])
        self._clearest = np.lexsort((-np.abs(self._differences), self._p)).tolist()  # the last key counts first

    def text(self, noun: str) -> str:
        return sentences.change(self._name, self._differences, self._low, self._high, self._clear, self._clearest, noun)

    def _name(self, i: int) -> str:
        return f"{self.at(i).attribute} {sentences.short(self.at(i).label)}"

    def clearest(self, n: int) -> list[Change]:
        return [self.at(i) for i in self._clearest[:n]]

    def at(self, i: int) -> Change:
        place = int(np.searchsorted(self._starts, i, side="right")) - 1
        attribute, v = self._cards[place].attribute, int(i - self._starts[place])
        return Change(
            attribute=attribute.name, value=v, label=attribute.label(v), difference=plain_number(self._differences[i]),
            low=plain_number(self._low[i]), high=plain_number(self._high[i]), clear=bool(self._clear[i]),
        )  # fmt: skip


def present(cards: Sequence[Card]) -> str:
    """A sentence about the clearest attributes, or about the first one of which the estimates tell something.

    Pairs are left out. The probability that a value is wrongly called the most frequent is at most 5 % over all attributes.
    """
    told, medians, chance = [], [], []
    for card in cards:
        n, middle, name = card.attribute.k - (card.attribute.most or 0), card.p.numbers.get("p50"), card.attribute.name
        if card.attribute.pair is not None or too_few(card.p, card.attribute):
            continue
        if middle is not None and middle.low is not None and middle.high is not None:
            medians.append(sentences.median(name, middle.value, middle.low, middle.high))
        elif not np.isnan(card.low + card.high).any():
            told.append(sentences.most_frequent(name, card.attribute.label, card.shares[:n], card.low[:n], card.high[:n]))
            chance.append(chance_of_leader(card.shares[:n], card.result.estimate().standard_errors[:n]))
    order = np.argsort(chance, kind="stable")
    leaders = [told[i] for i in order[beyond_chance(np.array(chance))[order]]]
    if told or medians:
        return f"{'; '.join((medians[:1] + leaders)[: sentences.MOST] or told[:1])}."
    if any(card.result.interval_withheld for card in cards):
        return "the estimates have no intervals, so nothing can be said."
    return "too few reports to tell the values apart." if any(card.p.reports for card in cards) else "there are no reports."


def chance_of_leader(shares: FloatArray, errors: FloatArray) -> float:
    """A bound of the probability that a value leads by as much as the largest share, although another one is as frequent."""
    others = np.arange(shares.size) != shares.argmax()
    return float(others.sum() * chances(shares.max() - shares[others], errors[shares.argmax()] + errors[others]).max())
