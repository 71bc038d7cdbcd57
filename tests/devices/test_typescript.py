"""The TypeScript device: its own tests, which `npm test` runs too."""

import re
from pathlib import Path

from tests.deploy.tools import TYPESCRIPT
from tests.devices.conftest import npm


def test_the_tests_of_the_typescript_device_pass(typescript: Path) -> None:
    output = npm(typescript, "verify")
    passed, failed, skipped = (int(re.findall(rf"^# {word} (\d+)$", output, re.M)[0]) for word in ("pass", "fail", "skipped"))
    assert (failed, skipped) == (0, 0)
    assert passed >= 100


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (TYPESCRIPT / "package-lock.json").read_text()
