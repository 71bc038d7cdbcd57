"""The command: `ldpstream …` and `python -m ldpstream …`."""

import sys

from ldpstream.shadow import shadowed


def main() -> None:
    """Run the command line; exit status 2 and one line if it cannot even start."""
    if (problem := shadowed()) is not None:
        sys.stderr.write(f"ldpstream: {problem}\n")
        sys.exit(2)
    from ldpstream.cli import run  # only now: it imports every package

    run()


if __name__ == "__main__":
    main()
