"""The command with Ctrl-C just before it imports a module, as a program:

    python -P tests/ldpstream/interrupted_start.py MODULE default|ignored ARGUMENT …

The program sets the handler of Ctrl-C, because Ctrl-C is ignored if tests run in the background.
"""

import os
import signal
import sys
from typing import Any


class Finder:
    """Sends Ctrl-C when a module is looked for."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, *_arguments: Any) -> None:
        if name == self.module:
            os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    _, module, handler, *arguments = sys.argv
    signal.signal(signal.SIGINT, signal.SIG_IGN if handler == "ignored" else signal.default_int_handler)
    sys.meta_path.insert(0, Finder(module))
    from ldpstream.__main__ import main

    sys.argv = ["ldpstream", *arguments]
    main()
