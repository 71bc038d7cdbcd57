"""Numbers in messages."""


def plural(number: int | str, one: str, many: str | None = None) -> str:
    """Returns a number with its noun in the singular or the plural.

    >>> plural(1, "step"), plural("0.5", "nat"), plural(1000, "person answers", "people answer")
    ('1 step', '0.5 nats', '1,000 people answer')
    """
    text = number if isinstance(number, str) else f"{number:,}"
    return f"{text} {one if text == '1' else many or f'{one}s'}"
