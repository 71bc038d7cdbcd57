"""The engine of a process gives each survey its counts, log and results.

There are two engines: `services.cluster` for Kafka and Redis, and `ldpstream.services.engine` for one machine.
"""

from typing import Protocol

from ldpstream.engines.count_store import CountStore
from ldpstream.publishing.progress import EstimatesTopic
from ldpstream.publishing.results import KeptResults
from ldpstream.publishing.schedule import LogPosition
from ldpstream.surveys import Survey


class Engine(Protocol):
    """Gives each survey its parts.

    Attributes:
        deadline_steps: time from a step's close until an incomplete step is published, in steps.
    """

    @property
    def deadline_steps(self) -> int: ...

    def count_store(self, survey: Survey) -> CountStore:
        """Returns the survey's counts."""

    def results(self, survey: Survey) -> KeptResults:
        """Returns the survey's results."""

    def check(self, survey: Survey) -> None:
        """Checks that the survey can be estimated. In Kafka, creates its missing topics."""

    def open(self, survey: Survey) -> tuple[LogPosition, EstimatesTopic | None]:
        """Checks the survey and our rights. Returns the survey's log, and its topic of estimates if there is one.

        Raises:
            UserError: if the survey is refused, or if we lack a right.
        """

    def close(self) -> None:
        """Closes the shared clients."""
