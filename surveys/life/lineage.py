"""The life of a survey: the end of its reports, the surveys that it replaces, and how their histories join.

A survey with ``replaces = "fingerprint"`` continues the history of the survey with that fingerprint. The two surveys need
different names.
"""

from typing import NamedTuple

from ldpstream.mechanisms.wording import plural
from ldpstream.surveys.questions import Attribute
from ldpstream.surveys.survey import Survey

MOST_NAMED = 5  # largest number of values that a message names


class Join(NamedTuple):
    """Says how an attribute's history continues its history in the replaced survey.

    Attributes:
        joined: true if the shares of single steps mean the same in both surveys.
        windows: true if the shares of windows also mean the same.
        reason: the reason why the shares do not mean the same, or the differences; "" if nothing differs.
        places: for each value its index in the replaced survey; None for an added value. If an attribute with `choices` has an
            added value, each number of choices has None, too. Empty if not `joined`.
    """

    joined: bool
    windows: bool
    reason: str
    places: tuple[int | None, ...]


def takes_reports(survey: Survey, now_ms: int) -> bool:
    """True from the first moment when a report of the survey may count until the close of the survey's last step."""
    if now_ms < survey.start_ms - survey.skew_ms:
        return False
    return survey.n_steps is None or now_ms < survey.closes_ms(survey.n_steps - 1)


def changes_open(old: Survey, new: Survey, now_ms: int) -> bool:
    """True if `new` in place of `old` would end a survey that still takes reports, and does not name it in `replaces`."""
    if new.fingerprint == old.fingerprint or new.replaces == old.fingerprint.hex():
        return False
    return takes_reports(old, now_ms)


def join(old: Survey, new: Survey, name: str) -> Join:
    """Returns how the history of an attribute of `new` continues the history of the attribute with this name in `old`.

    Added and renamed values (`aliases`) do not separate the histories; a removed value does.
    """
    after = new.attributes[new.index(name)]
    before = next((attribute for attribute in old.attributes if attribute.name == name), None)
    if before is None:
        return _apart(f"{old.name} has no attribute {name}")
    if old.step_seconds != new.step_seconds:
        return _apart(f"a step had {old.step_seconds} s and now has {new.step_seconds} s")
    values = _places(before, after)
    if isinstance(values, str):
        return _apart(values)
    if before.pair != after.pair:
        return _apart("the attributes of the pair differ")
    for member in after.pair or ():
        part = _places(old.attributes[old.index(member)], new.attributes[new.index(member)])
        if isinstance(part, str):
            return _apart(f"{member}: {part}")
    notes = []
    if renamed := [f"{was} is now {now}" for was, now in after.aliases.items() if was in (before.values or ())]:
        notes.append(_named(renamed))
    if added := [after.label(i) for i, place in enumerate(values) if place is None]:
        notes.append(f"added: {_named(added)}; earlier shares unknown")
    windows = old.window_steps == new.window_steps
    if not windows:
        notes.append(f"windows not joined: they had {plural(old.window_steps, 'step')} and now have {new.window_steps}")
    return Join(True, windows, "; ".join(notes), values)


def _apart(reason: str) -> Join:
    return Join(False, False, reason, ())


def _places(before: Attribute, after: Attribute) -> tuple[int | None, ...] | str:
    if before.most != after.most:
        return "people may choose another number of values"
    if before.bins is not None or after.bins is not None:
        return tuple(range(after.k)) if before.bins == after.bins else "the bins have other edges"
    if (before.values is None) != (after.values is None):
        return "one survey has `values`, the other has `size`"
    renamed, labels = [after.aliases.get(label, label) for label in before.labels], set(after.labels)
    if removed := [label for label, now in zip(before.labels, renamed, strict=True) if now not in labels]:
        return f"removed: {_named(removed)}"
    places = {label: i for i, label in enumerate(renamed)}
    if after.most is not None and before.k < after.k:  # a new value changes what "none of these" means
        places = {label: i for label, i in places.items() if i < before.k - after.most}
    if joined := [label for i, label in enumerate(renamed) if places.get(label, i) != i]:
        return f"two values became one: {_named(joined)}"
    return tuple(places.get(label) for label in after.labels)


def _named(names: list[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
