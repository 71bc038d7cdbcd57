"""A worker that does not end by itself, as a program:  python -P tests/agents/busy_worker.py NAME

The worker installs its signal handlers, prints "busy", and then hangs in the place that NAME gives:

    event-loop  a callback of the event loop
    lock        a call that holds the interpreter's lock
    teardown    a destructor, which Python calls as it exits
"""

import asyncio
import ctypes
import signal
import sys
import time
from collections.abc import Callable

import ldpstream.agents.app as app
from ldpstream.runtime import process

ENDLESS_S = 600  # longer than the test waits


class Endless:
    """Its destructor does not end."""

    def __del__(self) -> None:
        time.sleep(ENDLESS_S)


def event_loop() -> None:
    time.sleep(ENDLESS_S)


def lock() -> None:
    library = ctypes.PyDLL(None)  # its calls keep the interpreter's lock
    sys.setswitchinterval(100)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(0)  # the handler runs here
    while True:  # the test's signal ends a call, if it arrives during the call
        library.sleep(ENDLESS_S)


def teardown() -> None:
    signal.raise_signal(signal.SIGTERM)
    vars(asyncio)["endless"] = Endless()
    asyncio.get_running_loop().stop()


BUSY: dict[str, Callable[[], None]] = {"event-loop": event_loop, "lock": lock, "teardown": teardown}


def main(name: str) -> None:
    app.STOP_S = {"event-loop": 0.5, "lock": 2, "teardown": ENDLESS_S}[name]
    if name == "event-loop":
        process.ALARM_AFTER_S = ENDLESS_S  # the deadline's thread must end the process
    loop = asyncio.new_event_loop()
    worker = app._from_environment().Worker(loop=loop)
    worker._install_signal_handlers_unix()

    def busy() -> None:
        print("busy", flush=True)
        BUSY[name]()

    loop.call_soon(busy)
    loop.run_forever()


if __name__ == "__main__":
    main(sys.argv[1])
