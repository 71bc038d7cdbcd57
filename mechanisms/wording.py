"""Words of messages: a number with its noun, an upper bound, and the suggestion for a misspelt name."""

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context


def plural(number: int | str, one: str, many: str | None = None) -> str:
    """Returns a number with its noun in the singular or the plural.

    >>> plural(1, "step"), plural("0.5", "nat"), plural(1000, "person answers", "people answer")
    ('1 step', '0.5 nats', '1,000 people answer')
    """
    text = number if isinstance(number, str) else f"{number:,}"
    return f"{text} {one if text == '1' else many or f'{one}s'}"


def up(bound: float | None, digits: int = 4) -> str:
    """Formats an upper bound with this number of significant digits, rounded up; infinity, and None, as ∞.

    An excess below 10⁻¹² of the bound is an error of the calculation, and ignored.

    >>> up(0.12341), up(1 + 2e-16), up(15.154, 3), up(math.inf)
    ('0.1235', '1', '15.2', '∞')
    """
    if bound is None or math.isinf(bound):
        return "∞"
    found = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Context(prec=13).create_decimal(repr(bound)))
    return f"{float(found):.{digits}g}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of a message that suggests the most similar known name; "" if no name is similar.

    >>> did_you_mean("colection", ["name", "collection"])
    '; did you mean collection?'
    >>> did_you_mean("zone", ["name", "collection"])
    ''
    """
    from difflib import get_close_matches  # slow to load, and only for errors

    close = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""
