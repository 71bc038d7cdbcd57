"""Order of the turns of an estimator's surveys."""


class Turns:
    """The time of the next turn of each survey, by fingerprint.

    >>> turns = Turns()
    >>> for survey, time_ms in ((b"slow", 0), (b"late", 9), (b"soon", 5)):
    ...     turns.put(survey, time_ms)
    >>> turns.first()
    (b'slow', 0)
    >>> turns.put(b"slow", 10)  # its turn took 10 ms, and its next step is due, too
    >>> turns.first()
    (b'soon', 5)
    """

    def __init__(self) -> None:
        self._at_ms: dict[bytes, int] = {}

    def put(self, survey: bytes, at_ms: int) -> None:
        """Sets the time of the survey's next turn. If two times are equal, the survey that was set first goes first."""
        self.remove(survey)
        self._at_ms[survey] = at_ms

    def remove(self, survey: bytes) -> None:
        self._at_ms.pop(survey, None)

    def first(self) -> tuple[bytes, int] | None:
        """Returns the survey with the earliest turn, and the time of this turn; None without surveys."""
        return min(self._at_ms.items(), key=lambda item: item[1], default=None)
