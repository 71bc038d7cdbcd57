"""The states of a survey's filters: all of them in memory, and each of them saved after every eighth step."""

from collections.abc import Callable

from ldpstream.mechanisms import Mechanism
from ldpstream.publishing.filtering import next_step, replay
from ldpstream.publishing.progress import Filters, Progress, Results
from ldpstream.publishing.publication import Publication, publication_key, spans
from ldpstream.surveys import Attribute, Survey

SAVED_EVERY = 8  # steps between two saves of a filter's state


class FilterStates:
    """The states of the filters after the last final step, for the leading estimator.

    A state takes far more bytes than a step's publications, so only a part of the states is saved with each step. A lost state,
    and one that is some steps old, is calculated again from the publications of the later steps.

    Args:
        leads: renews the lease.
    """

    def __init__(self, survey: Survey, results: Results, leads: Callable[[], bool]) -> None:
        self._survey, self._results, self._leads = survey, results, leads
        self._every = min(SAVED_EVERY, survey.retention_steps)
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

    def due(self, step: int, states: Filters) -> Filters:
        """Returns the states to save with a step."""
        return {name: state for i, (name, state) in enumerate(states.items()) if (step + i) % self._every == 0}

    def note(self, progress: Progress, states: Filters | None) -> None:
        """Keeps the states that belong to a new stored progress; None if they are the same as before."""
        self._known = progress, self._known[1] if states is None else states

    def _filtered(self) -> list[tuple[Attribute, tuple[Mechanism, ...]]]:
        both = zip(self._survey.attributes, self._survey.mechanisms, strict=True)
        return [(attribute, mechanisms) for attribute, mechanisms in both if "filtered" in spans(attribute)]

    def _restored(self, saved: Progress) -> Filters:
        end = min((saved.next_step, *saved.incomplete))
        oldest = max(saved.first_step, saved.next_step - self._survey.retention_steps)
        stored, states = self._results.filters(), dict[str, bytes]()
        for attribute, mechanisms in self._filtered():
            self._leads()
            state = stored.get(attribute.name)
            for step in range(max(oldest, next_step(mechanisms, state, end)), end):
                [found] = self._results.get([publication_key(attribute.name, "step", step)])
                state = state if found is None else replay(mechanisms, found, state)
            if state is not None:
                states[attribute.name] = state
        return states
