"""What the manifests are once rendered, and what their schemas say of them."""

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
GROUPS = {"keda.sh": "keda", "monitoring.coreos.com": "prometheus-operator", "kafka.strimzi.io": "strimzi-kafka-operator"}
STRICT = (
    "--noEmit",
    "--strict",
    "--module",
    "nodenext",
    "--moduleResolution",
    "nodenext",
    "--skipLibCheck",
    "--pretty",
    "false",
)

Resource = dict[str, Any]


@functools.cache
def rendered(folder: str) -> str:
    """A kustomization as YAML.

    Raises:
        ToolError: if there is no kubectl.
    """
    if shutil.which("kubectl") is None:
        raise ToolError("no kubectl on PATH")
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def resources(folder: str) -> list[Resource]:
    """A kustomization's resources, not to be changed."""
    return list(yaml.safe_load_all(rendered(folder)))


def is_custom(resource: Resource) -> bool:
    """Whether the resource's kind is one that an operator brings."""
    return resource["apiVersion"].partition("/")[0] in GROUPS


def refused(resource: Resource) -> str | None:
    """Why Kubernetes' own schemas, which know no other keys than theirs, refuse the resource; None if they do not."""
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return str(getattr(error, "message", error))
    return None


def refused_customs(custom: Sequence[Resource]) -> list[list[str]]:
    """What is wrong with each resource of an operator's kind, as `tools.models` judge it."""
    folder = models()
    wrong: list[list[str]] = [[] for _ in custom]
    with tempfile.TemporaryDirectory(prefix=".check-", dir=folder) as scratch:  # inside, so that imports are found
        typed, run = Path(scratch) / "typed.mts", Path(scratch) / "run.mjs"
        declared, judged = [], []
        for i, resource in enumerate(custom):
            group, _, version = resource["apiVersion"].partition("/")
            kind, text = resource["kind"], json.dumps(resource)
            module = f"@kubernetes-models/{GROUPS[group]}/{group}/{version}/{kind}"
            declared.append(f'export const r{i}: import("{module}").I{kind} = {text};\n')  # a line each, which tells it
            judged.append(f'import {{ {kind} as C{i} }} from "{module}";\ntry {{ new C{i}({text}).validate(); }}')
            judged.append(f"catch (e) {{ console.log(JSON.stringify([{i}, e.message])); }}")
        typed.write_text("".join(declared))
        run.write_text("\n".join(judged))
        compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
        for line in _node(compiler, *STRICT, typed, allowed=(0, 2)).splitlines():
            if not line.startswith(" "):  # else it goes on about the one before
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
