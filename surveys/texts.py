"""The plain form of texts, and texts that nobody can tell apart."""

import re
import unicodedata
from collections.abc import Sequence

_BLANK = r"\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # spaces of all kinds, and characters without a width
_ENDS = re.compile(f"^[{_BLANK}]+|[{_BLANK}]+$")
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff]"
)
_TWINS = str.maketrans(  # Cyrillic and Greek letters that look like Latin letters, hyphens, and the micro sign
    "АВЕЅІЈКМНОРСТУХаеѕіјорсухΑΒΕΖΗΙΚΜΝΟΡΤΥΧοµ\u2010\u2011\u2212", "ABESIJKMHOPCTYXaesijopcyxABEZHIKMNOPTYXoμ---"
)


def plain(text: str) -> str:
    r"""Returns a text in Unicode's normal form NFC, without blanks and characters of no width at its ends.

    >>> plain("\u00a0Zu\u0308rich\u200b ") == "Zürich"
    True
    """
    if text.isascii():
        return text.strip()
    return _ENDS.sub("", unicodedata.normalize("NFC", text))


def look(text: str) -> str:
    r"""Returns a key that is equal for texts that look alike.

    Such texts differ in their normal form, in the kind or number of blanks, in characters of no width, or in letters of another
    alphabet that look the same.

    >>> look("New\u00a0 York\u200b") == look("New York "), look("\u0410") == look("A"), look("a") == look("A")
    (True, True, False)
    """
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFC", text)).translate(_TWINS)
    return " ".join(text.split())


def require_apart(what: str, texts: Sequence[str]) -> None:
    """Raises ValueError if two texts are equal or look alike. The message shows them in ASCII."""
    seen: dict[str, str] = {}
    for text in texts:
        if (key := look(text)) in seen:
            raise ValueError(f"{what} must be texts that people can tell apart, got {seen[key]!a} and {text!a}")
        seen[key] = text
