"""The command: `ldpstream …` and `python -m ldpstream …`."""

import os
import signal
import sys
from collections.abc import Callable
from io import FileIO, TextIOWrapper
from types import FrameType

STOP_S = 10.0  # longest time from the signal to the end of a command that does not handle it


def main() -> None:
    """Runs the command line.

    Ctrl-C and SIGTERM end a command with exit status 130 or 143, unless the command handles the signal
    (`ldpstream.services.signals`). Only the first signal counts. A command that does not end within 10 s is ended.
    """
    _replace_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding may lack letters
    if not os.environ.get("OMP_NUM_THREADS"):  # OpenBLAS reads both variables when it loads, OPENBLAS_NUM_THREADS first
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # idle threads would spin and slow other processes
    from ldpstream.runtime.process import noting_status, shutdown_starter

    told: list[int] = []
    start_shutdown = shutdown_starter(STOP_S, late_status=lambda signum: 128 + signum, exit_hooks=True)

    def end(signum: int, frame: FrameType | None) -> None:
        start_shutdown(signum)
        if told:  # a second exception would interrupt what the first one cleans up
            return
        told.append(signum)
        if signum == signal.SIGINT:
            raise KeyboardInterrupt  # commands may catch it
        sys.exit(128 + signum)

    signal.signal(signal.SIGTERM, end)
    with noting_status():
        try:
            _run(end)
        except BaseException as error:
            # a library may have replaced the handler's exception; a command that caught Ctrl-C chooses its own status
            if told and (told[0] != signal.SIGINT or not isinstance(error, SystemExit)):
                sys.exit(128 + told[0])
            raise


def _run(end: Callable[[int, FrameType | None], None]) -> None:
    with_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if with_ctrl_c:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # an imported module could catch an exception
    try:
        from ldpstream.commands.cli import run

        if with_ctrl_c:
            signal.signal(signal.SIGINT, end)
        run()
    except ModuleNotFoundError as error:  # the device's packages are installed, but not the service's
        if (error.name or "").partition(".")[0] in ("", "ldpstream"):
            raise
        command = " ".join(["ldpstream", *[word for word in sys.argv[1:2] if word.isalpha()]])
        sys.stderr.write(f"{command} needs {error.name}, which is not installed: in your checkout, pip install '.[service]'\n")
        sys.exit(2)


def _replace_closed_streams() -> None:
    """Opens the null device as each closed standard stream. Otherwise the next open file or socket would get its number."""
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(spare)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, TextIOWrapper(FileIO(number, "w"), encoding="utf-8"))


if __name__ == "__main__":
    main()
