"""Kubernetes' programs and a network plugin, built once from their Go modules into the cache, and the operators' definitions.

The builds take about 30 minutes on two busy cores; Go's own cache grows by some gigabytes.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.tools import fetched
from tests.deploy.verify.engine import VerifyError, run

KUBERNETES = "1.34.4"  # the newest minor version whose kubelet runs with cgroup version 1 by default
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
PLUGIN = ("github.com/cloudnativelabs/kube-router/v2", "v2.1.0")  # it needs only iptables and ipset of the kernel
CRDS = {
    "github.com/kedacore/keda/v2@v2.17.2": "config/crd/bases/keda.sh_*.yaml",
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": "example/prometheus-operator-crd/*.yaml",
    "sigs.k8s.io/gateway-api@v1.4.1": "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
}


def kubernetes() -> Path:
    """Returns the folder of Kubernetes' programs.

    Raises:
        VerifyError: if they cannot be built.
    """
    return _built(f"kubernetes-v{KUBERNETES}", (), [f"k8s.io/kubernetes/cmd/{program}" for program in PROGRAMS])


def plugin() -> Path:
    """Returns the folder of the network plugin that enforces NetworkPolicies.

    Raises:
        VerifyError: if it cannot be built.
    """
    return _built(f"kube-router-{PLUGIN[1]}", [PLUGIN], [f"{PLUGIN[0]}/cmd/kube-router"])


def _built(name: str, modules: Sequence[tuple[str, str]], targets: Sequence[str]) -> Path:
    """Returns the folder of programs that use Kubernetes' libraries in the version of our cluster."""

    def build(folder: Path) -> None:
        go, module, staged = _go(), f"k8s.io/kubernetes@v{KUBERNETES}", f"v0{KUBERNETES[1:]}"
        names = re.findall(r"(?m)^\s*(k8s\.io/\S+) => \./staging", Path(_module(module)["GoMod"]).read_text())
        replaced = "".join(f"replace {name} => {name} {staged}\n" for name in names)
        required = "".join(
            f"require {name} {version}\n" for name, version in [("k8s.io/kubernetes", f"v{KUBERNETES}"), *modules]
        )
        imports = "".join(f'import _ "{target}"\n' for target in targets)
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "go.mod").write_text(f"module verify\n\ngo 1.24.0\n\n{required}\n{replaced}")
            (Path(scratch) / "tools.go").write_text(f"//go:build tools\n\npackage verify\n\n{imports}")
            run([go, "-C", scratch, "mod", "tidy", "-e"])
            version = f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
            folder.mkdir()
            command = ["env", "CGO_ENABLED=0", go, "-C", scratch, "build", "-trimpath", f"-ldflags=-s -w {version}"]
            run([*command, "-o", f"{folder}/", *targets], limit_s=3 * 3600)

    return fetched(name, build)


def definitions() -> list[Path]:
    """Returns the files that define the resources of KEDA, the Prometheus operator and the Gateway API.

    Raises:
        VerifyError: if they cannot be fetched.
    """
    return [file for module, files in CRDS.items() for file in sorted(Path(_module(module)["Dir"]).glob(files))]


def _go() -> str:
    if (go := shutil.which("go")) is None:
        raise VerifyError("no go on PATH, which fetches and builds Kubernetes")
    return go


def _module(module: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(run([_go(), "mod", "download", "-json", module]))
    return found
