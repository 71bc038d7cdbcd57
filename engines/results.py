"""The store of an estimator's results: publications, progress and states of the filters, as bytes that it does not read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A publication as it is stored.

    Attributes:
        key: the publication's key in its survey.
        step: its time step.
        value: the publication as JSON.
        outdated: the key of the publication that leaves the store when this one enters it.
    """

    key: str
    step: int
    value: bytes
    outdated: str


class ResultStore(ABC):
    """The results of one survey.

    Attributes:
        kind: the kind of the store, for metrics and logs.
        where: names the publications in messages.
        progress_name: names the progress in messages.
        filters_name: names the filters in messages.
        remedy: advice in the messages about a progress that is damaged or has another format.
        filters_remedy: advice in the message about a filter of another format.

    Raises:
        StoreUnavailable: from every method, if the store does not answer, or refuses the request.
    """

    kind: str
    where: str
    progress_name: str
    filters_name: str
    remedy: str
    filters_remedy: str

    @abstractmethod
    def progress(self) -> bytes | None:
        """Returns the progress last saved; None before the first save."""

    @abstractmethod
    def filters(self) -> dict[str, bytes]:
        """Returns the last saved state of every filter, by attribute."""

    @abstractmethod
    def save(
        self, rows: Sequence[Row], before: bytes | None, progress: bytes, filters: Mapping[str, bytes], kept_from: int
    ) -> bool:
        """Saves publications, progress and the states of filters in one atomic step. Replaces rows with the same keys.

        Args:
            before: the progress that must be stored.
            kept_from: the first step whose publications are kept.

        Returns:
            False, and nothing is saved, if another progress than `before` is stored.
        """

    @abstractmethod
    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns the stored JSON of each key; None for a missing publication."""

    @abstractmethod
    def history(self) -> list[tuple[str, bytes]]:
        """Returns key and JSON of all publications."""

    # ---- the lease; a store of one process has none

    def lead(self, for_ms: int | None = None) -> bool:
        """Acquires or renews the leader's lease, by default for a few seconds. False if another estimator has the lease."""
        return True

    def resign(self) -> None:  # noqa: B027  # a store of one process has no lease
        """Releases the lease, so that another estimator can lead at once."""
