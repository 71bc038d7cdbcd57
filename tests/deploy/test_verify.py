"""Tests of what the targets `verify-…` of the Makefile assume, without an engine."""

import re

from tests.deploy.manifests import ROOT
from tests.deploy.verify import image
from tests.deploy.verify.engine import DOCKERFILE


def test_the_images_are_targets_of_the_dockerfile() -> None:
    stages = set(re.findall(r"(?m)^FROM \S+ AS (\S+)$", DOCKERFILE.read_text()))
    assert {target for target in image.IMAGES.values() if target is not None} <= stages
    assert len(re.findall(r"(?m)^FROM \S+@sha256:", DOCKERFILE.read_text())) == 1  # the base that an engine replaces


def test_every_target_of_the_makefile_is_a_module() -> None:
    [names] = re.findall(r"(?m)^(verify-.*): \$\(VENV\)", (ROOT / "Makefile").read_text())
    for name in names.split():
        assert (ROOT / "tests" / "deploy" / "verify" / f"{name.removeprefix('verify-')}.py").exists()
