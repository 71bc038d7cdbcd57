"""Order of the turns of an estimator's surveys."""

from typing import Generic, TypeVar

Key = TypeVar("Key")


class Turns(Generic[Key]):
    """The time of each survey's next turn.

    >>> turns = Turns[str]()
    >>> for survey, time_ms in (("slow", 0), ("late", 9), ("soon", 5)):
    ...     turns.put(survey, time_ms)
    >>> turns.first()
    ('slow', 0)
    >>> turns.put("slow", 10)  # its turn took 10 ms, and its next step is due, too
    >>> turns.first()
    ('soon', 5)
    """

    def __init__(self) -> None:
        self._at_ms: dict[Key, int] = {}

    def put(self, survey: Key, at_ms: int) -> None:
        """Sets the time of the survey's next turn. If two times are equal, the survey that was set first goes first."""
        self.remove(survey)
        self._at_ms[survey] = at_ms

    def remove(self, survey: Key) -> None:
        self._at_ms.pop(survey, None)

    def first(self) -> tuple[Key, int] | None:
        """Returns the survey with the earliest turn, and the time of this turn; None without surveys."""
        return min(self._at_ms.items(), key=lambda item: item[1], default=None)
