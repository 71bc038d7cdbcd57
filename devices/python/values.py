"""The values that an application gives to a device, as indices. No error shows a value."""

from numbers import Integral, Real
from typing import Any

from ldpstream.surveys import Attribute, Survey


def index_of(survey: Survey, attribute: str, value: Any) -> int:
    """Returns the index of a value; for an attribute with `choices`, the code of a set.

    Raises:
        ValueError: if there is no such attribute, or a device refuses the value.
    """
    members = survey.members(a := survey.index(attribute))
    if members is None:
        asked = survey.attributes[a]
        return value_index(asked, value) if asked.most is None else _set_code(asked, value)
    first, second = (survey.attributes[member] for member in members)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{attribute} is a pair: its value must be a list with the values of {first.name} and {second.name}")
    return value_index(first, value[0]) * second.k + value_index(second, value[1])


def _set_code(attribute: Attribute, given: Any) -> int:
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise ValueError(f"{attribute.name} has several answers: its value must be a list of values")
    return attribute.set_code([_find(attribute, value) for value in given])


def value_index(attribute: Attribute, value: Any) -> int:
    """Returns the index of a value of an attribute that is no pair and has no `choices`."""
    return _find(attribute, value)[0]


def _find(attribute: Attribute, value: Any) -> tuple[int, bool]:
    try:
        if isinstance(value, str):
            return attribute.find(value)
        if isinstance(value, Real) and not isinstance(value, bool):
            number = int(value) if isinstance(value, Integral) else float(value)
            if attribute.values is None:
                found = attribute.of_number(number)
            else:
                found = (int(number), True) if number % 1 == 0 and 0 <= number < len(attribute.values) else None
            if found is not None:
                return int(found[0]), found[1]
    except (ValueError, OverflowError):
        pass  # the error's text or a chained exception could show the value
    raise ValueError(f"not a value of the attribute {attribute.name} ({attribute.domain})")
