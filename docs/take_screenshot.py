"""Takes the picture of the demo's page for the README:  python docs/take_screenshot.py

Needs the extras `dev` and `plot` of this project, and Debian's Chromium.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "pictures" / "page.png"
DEMO = [sys.executable, "-m", "ldpstream", "demo", "--page"]
WIDTH, HEIGHT = 1200, 1200


def main() -> None:
    """Serves the demo's page, and takes a picture of what a reader sees first."""
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True, env={**os.environ, "LDPSTREAM_PAGE_PORT": "0"}) as demo:
        assert demo.stdout
        try:
            address = next(found[0] for line in demo.stdout if (found := re.findall(r"http://\S+/", line)))
            next(line for line in demo.stdout if "until Ctrl-C" in line)  # all steps are estimated
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                page.goto(address)
                page.wait_for_selector("html[data-ready=yes]")
                page.screenshot(path=PICTURE)
                browser.close()
        finally:
            demo.terminate()
    Image.open(PICTURE).quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
