"""Formats of stored objects. Every stored object states the number of its format, and every reader checks it.

A format that this version cannot read is refused, never skipped and never overwritten. `tests/upgrade` reads objects of earlier
versions, and fails if an object changes without its number.
"""

from ldpstream.stores.count_store import StoreDamaged


class OtherFormat(StoreDamaged):
    """A stored object has a format that this version cannot read."""


def check_format(what: str, found: int, wanted: int, remedy: str) -> None:
    """Checks the format of a stored object.

    Args:
        what: names the object.
        found: the object's format.
        wanted: the format of this version.
        remedy: what to do about an object of an earlier version.

    Raises:
        OtherFormat: if the formats differ.
    """
    if found > wanted:
        remedy = "a newer version wrote it; run that version"
    if found != wanted:
        raise OtherFormat(f"{what} has format {found}, this version needs format {wanted}; {remedy}")
