"""The packages whose private names the services use: their tested range, and hashes of the modules that define these names.

`python -m tests.runtime.private_names` writes `private_names.json`. `test_versions.py` fails if a range in `pyproject.toml` or
one of these modules changes. Before you write the file again, read what changed in these modules, and run `make test` with the
oldest and the newest version of the range. `agents/app.py`, `agents/consumer/` and `gateway/` use the private names.
"""

import hashlib
import json
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("private_names.json")
MODULES = {
    "aiokafka": (
        "aiokafka.client", "aiokafka.conn", "aiokafka.consumer.consumer", "aiokafka.consumer.fetcher",
        "aiokafka.consumer.group_coordinator", "aiokafka.consumer.subscription_state", "aiokafka.producer.message_accumulator",
        "aiokafka.producer.producer", "aiokafka.producer.sender", "aiokafka.record.default_records",
        "aiokafka.record.memory_records",
    ),
    "faust-streaming": (
        "faust.app.base", "faust.transport.conductor", "faust.transport.consumer", "faust.transport.drivers.aiokafka",
        "faust.worker",
    ),
    "mode-streaming": ("mode.worker",),
    "uvicorn": ("uvicorn.middleware.proxy_headers", "uvicorn.protocols.http.httptools_impl", "uvicorn.server"),
    "httptools": (),  # compiled: its text differs between machines
}  # fmt: skip


def record() -> dict[str, Any]:
    """For each package the range in `pyproject.toml`, and the SHA-256 of each module whose private names we use."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    ranges = {package.name: str(package.specifier) for package in map(Requirement, extras["gateway"] + extras["service"])}
    return {
        package: {"range": ranges[package], "modules": {name: _sha256(name) for name in modules}}
        for package, modules in MODULES.items()
    }


def _sha256(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=2) + "\n")
