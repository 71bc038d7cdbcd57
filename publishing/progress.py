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


class Source(Protocol):
    """Reader of saved publications."""

    def progress(self) -> Progress | None:
        """Returns the progress last saved; None before the first save."""

    def get(self, keys: Sequence[str]) -> list[Publication | None]:
        """Returns the last saved publication of each key (`Publication.key`); None for a missing publication."""


class Results(Source, Protocol):
    """Store that saves publications and progress together."""

    def filters(self) -> dict[str, bytes]:
        """Returns the last saved state of every filter, by attribute."""

    def save(
        self, publications: list[Publication], before: Progress | None, progress: Progress, filters: Filters | None = None
    ) -> bool:
        """Saves the publications, the progress, and the states of the filters by attribute, in one atomic step. Replaces
        publications with the same keys. With None, the saved states of the filters stay.

        Returns:
            False, and nothing is saved, if the stored progress is no longer `before`: another estimator has continued.
        """

    def lead(self, for_ms: int | None = None) -> bool:
        """Acquires or renews the leader's lease, by default for a few seconds. False if another estimator has the lease."""


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
