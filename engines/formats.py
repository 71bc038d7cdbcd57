"""Formats of stored objects. An object states the number of its format, or has format 1.

A format that this version cannot read is refused.
"""

from ldpstream.engines.count_store import StoreDamaged


class OtherFormat(StoreDamaged):
    """A stored object has a format that this version cannot read."""


def check_format(what: str, found: int, wanted: int, remedy: str) -> None:
    """Checks the format of a stored object.

    Args:
        remedy: advice for an object of an earlier version, for the message.

    Raises:
        OtherFormat: if the formats differ.
    """
    if found > wanted:
        remedy = "a newer version wrote it; run that version"
    if found != wanted:
        raise OtherFormat(f"{what} has format {found}, this version needs format {wanted}; {remedy}")
