"""The command: `ldpstream …` and `python -m ldpstream …`."""

import os
import signal
import sys
from io import TextIOWrapper
from types import FrameType


def main() -> None:
    """Run the command line; exit status 2 and one line if it cannot even start, 130 at Ctrl-C.

    SIGTERM ends every command, whatever it computes. The system's own reaction would not: it spares process 1 of a container.
    """
    _open_streams()
    signal.signal(signal.SIGTERM, _end)
    with_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if with_ctrl_c:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # an exception might be caught by whoever is being imported
    from ldpstream.shadow import shadowed

    if (problem := shadowed()) is not None:
        sys.stderr.write(f"ldpstream: {problem}\n")
        sys.exit(2)
    from ldpstream.cli import run  # only now: it imports every package

    if with_ctrl_c:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _open_streams() -> None:
    """Give a place to what is written to a closed stream, and write `?` for what the output's encoding lacks."""
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:  # else the next file or socket that is opened would be, say, number 1
        pass
    os.close(spare)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open to the end)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _end(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


if __name__ == "__main__":
    main()
