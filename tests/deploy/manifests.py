"""Renders the manifests and checks them against the schemas of Kubernetes and of the operators."""

import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.deploy.tools import ToolError, models

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
GROUPS = {
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
    "kafka.strimzi.io": "strimzi-kafka-operator",
    "gateway.networking.k8s.io": "gateway-api",
}
STRICT = [
    "--noEmit",
    "--strict",
    "--module",
    "nodenext",
    "--moduleResolution",
    "nodenext",
    "--skipLibCheck",
    "--pretty",
    "false",
]

Resource = dict[str, Any]


@functools.cache
def rendered(folder: str) -> str:
    """Returns a rendered kustomization as YAML.

    Raises:
        ToolError: if kubectl is missing.
    """
    if shutil.which("kubectl") is None:
        raise ToolError("no kubectl on PATH")
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def resources(folder: str) -> list[Resource]:
    """Returns a kustomization's resources. Callers must not change the resources."""
    return list(yaml.safe_load_all(rendered(folder)))


def is_custom(resource: Resource) -> bool:
    """True if an operator defines the resource's kind."""
    return resource["apiVersion"].partition("/")[0] in GROUPS


def refused(resource: Resource) -> str | None:
    """Returns why Kubernetes' schemas refuse the resource (for example, an unknown key); None if they accept it."""
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return str(getattr(error, "message", error))
    return None


def refused_customs(custom: Sequence[Resource]) -> list[list[str]]:
    """Returns the errors in each custom resource, found with `tools.models`."""
    folder = models()
    wrong: list[list[str]] = [[] for _ in custom]
    with tempfile.TemporaryDirectory(prefix=".check-", dir=folder) as scratch:  # in this folder, so that imports resolve
        typed, run = Path(scratch) / "typed.mts", Path(scratch) / "run.mjs"
        declared, judged = [], []
        for i, resource in enumerate(custom):
            group, _, version = resource["apiVersion"].partition("/")
            kind, text = resource["kind"], json.dumps(resource)
            module = f"@kubernetes-models/{GROUPS[group]}/{group}/{version}/{kind}"
            declared.append(f'export const r{i}: import("{module}").I{kind} = {text};\n')  # one line per resource
            judged.append(f'import {{ {kind} as C{i} }} from "{module}";\ntry {{ new C{i}({text}).validate(); }}')
            judged.append(f"catch (e) {{ console.log(JSON.stringify([{i}, e.message])); }}")
        typed.write_text("".join(declared))
        run.write_text("\n".join(judged))
        compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
        for line in _node(compiler, *STRICT, typed, allowed=(0, 2)).splitlines():
            if not line.startswith(" "):  # an indented line continues the previous error
                where, _, what = line.partition("): ")
                wrong[int(where.rpartition("(")[2].partition(",")[0]) - 1].append(what)
        for line in _node(run).splitlines():
            i, what = json.loads(line)
            wrong[i].append(what)
    return wrong


def _node(*arguments: str | Path, allowed: Sequence[int] = (0,)) -> str:
    done = subprocess.run(["node", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in allowed, done.stdout + done.stderr
    return done.stdout
