"""Chromium on a profile of its own, which tests may kill, and a server of the pages of the browser tests."""

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Error, Page, Playwright

from tests.publishing.page.conftest import CHROMIUM, QUIET
from tests.publishing.page.page_rig import PATIENCE_MS
from tests.services.rig import wait_until

PAGES = Path(__file__).parent / "pages"
EMPTY = b'<!doctype html><link rel="icon" href="data:,"><script type="module" src="/pages/device.js"></script>'
GATEWAY = re.compile(rb'(?<=name="ldpstream-gateway" content=")[^"]*')


class PageServer:
    """Serves the folder of the TypeScript device, the pages of the tests, and an empty page that loads `pages/device.js`.

    Attributes:
        url: address, without a slash at the end.
        gateway: the gateway's address for the example page.
        survey: the device survey for the example page, as JSON.
    """

    def __init__(self, folder: Path) -> None:
        self._left: dict[int, list[Any]] = {}
        self._lock = threading.Lock()
        self.gateway, self.survey = "", b""
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Logs nothing."""

            def do_GET(self) -> None:
                if self.path == "/empty":
                    self._answer(EMPTY, "text/html")
                elif self.path.startswith("/pages/"):
                    self._answer((PAGES / Path(self.path).name).read_bytes(), "text/javascript")
                elif self.path == "/example/survey.json":
                    self._answer(server.survey, "application/json")
                elif self.path.partition("?")[0] == "/example/":
                    page = (folder / "example" / "index.html").read_bytes()
                    self._answer(GATEWAY.sub(server.gateway.encode(), page), "text/html")
                else:
                    super().do_GET()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.keep(int(self.path.removeprefix("/left/")), json.loads(body))
                self._answer(b"", "text/plain")

            def _answer(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the page was killed
                    self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def keep(self, step: int, report: Any) -> None:
        """Stores a report that a device has sent for a step."""
        with self._lock:
            self._left.setdefault(step, []).append(report)

    def left(self) -> dict[int, list[Any]]:
        """Returns, for each step, the reports that devices have sent with `report_on` since `clear`."""
        with self._lock:
            return {step: list(reports) for step, reports in self._left.items()}

    def clear(self) -> None:
        with self._lock:
            self._left.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Chromium:
    """A Chromium process on a folder, which keeps the folder's stores if the process is killed.

    Attributes:
        context: the browser's tabs.
    """

    context: BrowserContext

    def __init__(self, playwright: Playwright, folder: Path) -> None:
        self._playwright, self._folder = playwright, folder
        self.start()

    def start(self) -> None:
        for lock in self._folder.glob("Singleton*"):  # a killed process leaves its lock
            lock.unlink()
        launch = self._playwright.chromium.launch_persistent_context
        self.context = launch(str(self._folder), executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)

    def kill(self) -> None:
        """Kills the browser's process at once."""
        pid = self._pid()
        assert pid, "Chromium has ended by itself"  # 0 would kill our own process group
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self._pid() == 0, lambda: "the end of Chromium")
        with contextlib.suppress(Error):
            self.context.close()

    def _pid(self) -> int:
        """The process that runs on our folder and is not a helper process; 0 if there is none."""
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = file.read_bytes().split(b"\0")
                if f"--user-data-dir={self._folder}".encode() in words and not any(w.startswith(b"--type=") for w in words):
                    return int(file.parent.name)
        return 0


def tab(context: BrowserContext, server: PageServer) -> Page:
    """Opens a tab with the empty page."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{server.url}/empty")
    page.wait_for_function("window.ready")
    return page


@contextmanager
def page_server(folder: Path) -> Iterator[PageServer]:
    server = PageServer(folder)
    try:
        yield server
    finally:
        server.close()
