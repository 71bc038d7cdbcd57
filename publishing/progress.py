"""The schedule's position, and the two copies of its publications: the results and the topic of estimates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from ldpstream.publishing.estimates.publication import Publication, Span, publication_key
from ldpstream.runtime.errors import LogUnavailable
from ldpstream.surveys import Survey

PROGRESS_FORMAT = 2  # format of the progress and filters; raise it if a field or a key in the store of results changes

Filters = Mapping[str, bytes]  # states of the filters by attribute


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the schedule.

    Attributes:
        first_step: the first step ever estimated; windows contain no earlier step.
        next_step: the first step not yet published.
        incomplete: earlier steps that were published at their deadline and have not passed yet (`publishing.schedule`).
        owner: random name of the take-over after which an estimator saved this progress.
        topic_end: an offset in the topic of estimates: the results have every earlier publication. `copies.REFILLING` while a
            topic that lost its records is filled from the results.
    """

    first_step: int
    next_step: int
    incomplete: tuple[int, ...] = ()
    owner: str = ""
    format: int = PROGRESS_FORMAT
    topic_end: int = 0

    @property
    def first_open(self) -> int:
        """The first step that is not final."""
        return min((self.next_step, *self.incomplete))


def begun(survey: Survey, begin_ms: int) -> Progress:
    """Returns the progress before any publication: at the first step that may have a countable report in the log."""
    first = max(0, survey.step_at(begin_ms) - survey.lateness_steps)
    return Progress(first_step=first, next_step=first)


class PublicationSummary(msgspec.Struct, frozen=True):
    """Summary of a publication in the topic; `offset` is the offset of its record."""

    fingerprint: str
    attribute: str
    span: Span
    step: int
    complete: bool
    reports: int
    cohort: str | None = None
    offset: int = -1
    format: int = 1  # a publication without a format has format 1

    @property
    def key(self) -> str:
        return publication_key(self.attribute, self.span, self.step, self.cohort)


class TopicUnavailable(LogUnavailable):
    """The broker does not accept or return estimates."""


class EstimatesTopic(Protocol):
    """The topic of estimates: keeps the last publication of each key, and accepts publications from one estimator only."""

    def take_over(self, since: int, still: Callable[[], bool]) -> dict[str, PublicationSummary]:
        """Fences all other estimators. Raises an error if `still` returns False during the take-over.

        Returns:
            By key, a summary of this survey's last publication, from the offset `since` on.
        """

    def end(self) -> int:
        """Returns the offset after the topic's last record."""

    def read(self, keys: Sequence[str]) -> list[Publication]:
        """Returns the publications that `take_over` found under these keys, if the topic still has them."""

    def publish(self, publications: list[Publication]) -> int:
        """Publishes all publications or none; raises an error if another estimator has taken the topic over.

        Returns:
            The offset after the last publication.
        """

    def close(self) -> None:
        """Ends the connections."""
