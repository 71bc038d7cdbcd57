"""The states of a survey's filters: the present states in memory, and each state saved at every eighth step."""

from collections.abc import Callable

from ldpstream.mechanisms import Mechanism
from ldpstream.publishing.estimates.filtering import can_replay, next_step, replay
from ldpstream.publishing.estimates.publication import Publication, publication_key, spans
from ldpstream.publishing.progress import Filters, Progress, Results
from ldpstream.surveys import Attribute, Survey

SAVED_EVERY = 8  # steps between two saves of a filter's state


class FilterStates:
    """The states of the filters after the last final step, for the leading estimator.

    A state takes far more bytes than a step's publications. So each step saves only a part of the states, and a new estimator
    calculates the present states from the saved states and the publications of the later steps. It calculates a lost state from
    all publications that are kept.

    Some states are saved more often. A step saves all states if `retention_steps` is small, or if many steps are incomplete:
    the store will soon delete publications that a new estimator would need. A state that cannot be calculated from publications
    (`filtering.can_replay`) is saved with every step.

    Args:
        leads: renews the lease.
    """

    def __init__(self, survey: Survey, results: Results, leads: Callable[[], bool]) -> None:
        self._survey, self._results, self._leads = survey, results, leads
        self._always = {attribute.name for attribute, mechanisms in self._filtered() if not can_replay(mechanisms)}
        self._known: tuple[Progress | None, Filters] = (None, {})

    def at(self, saved: Progress | None) -> Filters:
        """Returns the states, by attribute, at the stored progress."""
        if saved != self._known[0]:
            self._known = saved, {} if saved is None else self._restored(saved)
        return self._known[1]

    def after(self, publications: list[Publication], saved: Progress | None) -> Filters:
        """Returns the states after the publications of the next final step."""
        states, found = self.at(saved), {p.key: p for p in publications}
        return {
            attribute.name: replay(
                mechanisms, found[publication_key(attribute.name, "step", publications[0].step)], states.get(attribute.name)
            )
            for attribute, mechanisms in self._filtered()
        }

    def due(self, after: Progress, states: Filters | None) -> Filters:
        """Returns the states to save with a new progress.

        Args:
            states: the states that belong to `after`; None if they are the same as before.
        """
        end = after.first_open
        if self._oldest(after) > end - SAVED_EVERY + 1:
            return self._known[1] if states is None else states
        numbered = enumerate({} if states is None else states.items())
        return {name: state for i, (name, state) in numbered if (end - 1 + i) % SAVED_EVERY == 0 or name in self._always}

    def note(self, progress: Progress, states: Filters | None) -> None:
        """Keeps the states that belong to a new stored progress; None if they are the same as before."""
        self._known = progress, self._known[1] if states is None else states

    def forget(self) -> None:
        """Frees the memory of an estimator that does not lead."""
        self._known = None, {}

    def _filtered(self) -> list[tuple[Attribute, tuple[Mechanism, ...]]]:
        both = zip(self._survey.attributes, self._survey.mechanisms, strict=True)
        return [(attribute, mechanisms) for attribute, mechanisms in both if "filtered" in spans(attribute)]

    def _restored(self, saved: Progress) -> Filters:
        end = saved.first_open
        # If `retention_steps` was lowered, the store has the earlier publications at least until the next save.
        oldest = max(saved.first_step, min(self._oldest(saved), end - SAVED_EVERY))
        stored, states = self._results.filters(), dict[str, bytes]()
        for attribute, mechanisms in self._filtered():
            state = stored.get(attribute.name)
            for step in range(max(oldest, next_step(mechanisms, state, end)), end):
                self._leads()
                [found] = self._results.get([publication_key(attribute.name, "step", step)])
                state = state if found is None else replay(mechanisms, found, state)
            if state is not None:
                states[attribute.name] = state
        return states

    def _oldest(self, progress: Progress) -> int:
        """Returns the oldest step whose publications the store keeps."""
        return progress.next_step - self._survey.retention_steps
