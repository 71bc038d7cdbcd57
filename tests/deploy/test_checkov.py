"""Checks the manifests and the Dockerfile with checkov."""

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.deploy.conftest import wanted
from tests.deploy.manifests import ROOT, rendered
from tests.deploy.tools import checkov

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
SKIPPED = {
    "production": set[str](),
    "strimzi": set[str](),
    "Dockerfile": set[str](),
    "dev": {
        "CKV_K8S_15",  # policy "always pull": the local image has a tag but no registry
        "CKV_K8S_43",  # the local image has no digest
        "CKV_K8S_22",  # the scripts of Kafka's image write to the folder that contains them
        "CKV_K8S_40",  # the images of Kafka and Redis define their users
    },
    "worse": {"CKV_K8S_22"},
    "Worse.Dockerfile": {"CKV_DOCKER_2"},
}


@functools.cache
def failed() -> dict[str, set[str]]:
    """Returns the failed checks by file. Files with "worse" in their names are deliberately broken and must fail."""
    production, dockerfile = rendered("overlays/production"), DOCKERFILE.read_text()
    files = {
        "production.yaml": production,
        "dev.yaml": rendered("overlays/dev"),
        "strimzi.yaml": rendered("strimzi"),
        "worse.yaml": production.replace("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
        "Dockerfile": dockerfile,
        "Worse.Dockerfile": dockerfile.replace("HEALTHCHECK ", "#"),
    }
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in files.items():
            (Path(scratch) / name).write_text(text)
        command = [*checkov(), "--framework", "kubernetes", "dockerfile", "--skip-download", "--compact", "--output", "json"]
        quiet = {**os.environ, "LOG_LEVEL": "ERROR"}
        done = subprocess.run([*command, "-d", scratch], capture_output=True, text=True, env=quiet, check=False)
    made: dict[str, set[str]] = {Path(name).stem if name.endswith("yaml") else name: set() for name in files}
    for report in json.loads(done.stdout):
        assert report["summary"]["parsing_errors"] == 0
        assert report["summary"]["passed"] > 50
        for each in report["results"]["failed_checks"]:
            name = Path(each["file_path"]).name
            made[Path(name).stem if name.endswith("yaml") else name].add(each["check_id"])
    return made


@pytest.mark.parametrize("name", SKIPPED)
def test_checkov_reports_only_the_listed_checks(name: str) -> None:
    assert wanted(failed)[name] == SKIPPED[name]
