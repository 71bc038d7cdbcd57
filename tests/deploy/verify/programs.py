"""Kubernetes' programs, built once from their Go modules into the cache, and the operators' definitions of resources.

One build makes all programs, in about 30 minutes on two busy cores; Go's own cache grows by some gigabytes.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path

from tests.deploy.tools import fetched
from tests.deploy.verify.engine import VerifyError, run

KUBERNETES = "1.34.4"  # the newest minor version whose kubelet runs with cgroup version 1 and Debian's containerd
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
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

    def build(folder: Path) -> None:
        go, module, staged = _go(), f"k8s.io/kubernetes@v{KUBERNETES}", f"v0{KUBERNETES[1:]}"
        names = re.findall(r"(?m)^\s*(k8s\.io/\S+) => \./staging", Path(_module(module)["GoMod"]).read_text())
        replaced = "".join(f"replace {name} => {name} {staged}\n" for name in names)
        imports = "".join(f'import _ "k8s.io/kubernetes/cmd/{program}"\n' for program in PROGRAMS)
        with tempfile.TemporaryDirectory() as scratch:
            head = f"module verify\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v{KUBERNETES}\n\n"
            (Path(scratch) / "go.mod").write_text(head + replaced)
            (Path(scratch) / "tools.go").write_text(f"//go:build tools\n\npackage verify\n\n{imports}")
            run([go, "-C", scratch, "mod", "tidy", "-e"])
            version = f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
            targets = [f"k8s.io/kubernetes/cmd/{program}" for program in PROGRAMS]
            folder.mkdir()
            command = ["env", "CGO_ENABLED=0", go, "-C", scratch, "build", "-trimpath", f"-ldflags=-s -w {version}"]
            run([*command, "-o", f"{folder}/", *targets], limit_s=3 * 3600)

    return fetched(f"kubernetes-v{KUBERNETES}", build)


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
