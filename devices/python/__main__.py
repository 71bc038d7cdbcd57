"""`python -m ldpstream.device journal FILE`: shows what left a device."""

import sys
from pathlib import Path

from ldpstream.device.consent.journal import read_journal
from ldpstream.device.errors import DeviceError


def main(arguments: list[str]) -> int:
    """Writes the journal of a device's or wallet's file to standard output. Returns the exit status."""
    if len(arguments) != 2 or arguments[0] != "journal":
        sys.stderr.write("usage: python -m ldpstream.device journal FILE\n")
        return 2
    try:
        rows = [str(left) for left in read_journal(Path(arguments[1]))]
    except DeviceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("\n".join(rows or ["Nothing has left this device."]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
