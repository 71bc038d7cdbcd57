"""Versions of other packages: a range is not widened without a look."""

import ast
import json
from pathlib import Path

from tests.ldpstream.rooms import INSTALLED, sources
from tests.runtime.private_names import MODULES, RECORD, ROOT, record


def test_a_range_grows_only_after_a_look() -> None:
    assert record() == json.loads(RECORD.read_text()), "read the module's header: tests/runtime/private_names.py"


def test_private_names_are_imported_only_from_recorded_packages() -> None:
    """The record would miss an import of `_name` from another package, or of a module named `_name`."""
    recorded = {name for names in MODULES.values() for name in names}
    found = set()
    for room in INSTALLED:
        for path in sources(room):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("ldpstream"):
                    private = [alias.name for alias in node.names if alias.name.startswith("_")]
                    if private or any(part.startswith("_") and part != "__future__" for part in node.module.split(".")):
                        found.add((str(Path(path).relative_to(ROOT)), node.module))
    assert {module for _, module in found} <= recorded, found
    assert ("gateway/http/protocol.py", "uvicorn.middleware.proxy_headers") in found  # control: the search finds one
