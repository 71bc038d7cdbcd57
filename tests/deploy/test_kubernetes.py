"""Tests of the rendered manifests: schemas, surveys and settings, rights, and network policies."""

import copy
import functools
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
import yaml

from ldpstream.engines.kafka.topics import RIGHTS, Role
from ldpstream.gateway.credentials import read_tokens
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings, load_settings
from ldpstream.surveys import Survey, parse_survey
from tests.deploy.conftest import wanted
from tests.deploy.manifests import KUBERNETES, Resource, is_custom, refused, refused_customs, rendered, resources
from tests.deploy.verify.engine import run

OVERLAYS = ["overlays/dev", "overlays/production"]
FOLDERS = [*OVERLAYS, "strimzi"]
PRODUCTION = KUBERNETES / "overlays" / "production"
CUSTOM_KINDS = {
    "Kafka", "KafkaNodePool", "KafkaTopic", "KafkaUser", "PodMonitor", "PrometheusRule", "ScaledObject",
    "TriggerAuthentication",
}  # fmt: skip
OURS = {"agent", "estimator", "gateway"}
AS_FILE = {f"{name}_file" for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)}


def found(folder: str, *kinds: str) -> list[Resource]:
    """Returns the resources of these kinds; all resources if no kind is given."""
    made = wanted(functools.partial(resources, folder))
    return [resource for resource in made if not kinds or resource["kind"] in kinds]


def pods(folder: str) -> Iterator[tuple[str, Resource]]:
    """Yields the name and the pod template of every workload."""
    for resource in found(folder, "Deployment", "Job"):
        yield resource["metadata"]["name"], resource["spec"]["template"]


def surveys(folder: str) -> list[Survey]:
    [config] = [r for r in found(folder, "ConfigMap") if r["metadata"]["name"] == "ldpstream-surveys"]
    assert all(name.endswith(".toml") for name in config["data"])
    return [parse_survey(tomllib.loads(text)) for text in config["data"].values()]


def spoilt(resource: Resource) -> Resource:
    """Returns a copy of the resource with an unknown key, in its specification if it has one."""
    changed = copy.deepcopy(resource)
    changed.get("spec", changed)["replicaz"] = 3
    return changed


# ---- schemas


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_schemas_of_kubernetes_accept_the_manifests(folder: str) -> None:
    core = [r for r in found(folder) if not is_custom(r)]
    assert not {f"{r['kind']} {r['metadata']['name']}": reason for r in core if (reason := refused(r)) is not None}
    assert all(refused(spoilt(r)) is not None for r in core)


def test_the_operators_schemas_accept_only_the_manifests() -> None:
    custom = [r for folder in FOLDERS for r in found(folder) if is_custom(r)] + [http_route()]
    assert {r["kind"] for r in custom} == CUSTOM_KINDS | {"HTTPRoute"}
    mistyped = [r | {"metadata": r["metadata"] | {"name": 7}} for r in custom]
    answers = wanted(lambda: refused_customs([*custom, *map(spoilt, custom), *mistyped]))
    names = [f"{r['kind']} {r['metadata']['name']}" for r in custom]
    n = len(custom)
    assert not {name: wrong for name, wrong in zip(names, answers[:n]) if wrong}
    assert all("replicaz" in " ".join(wrong) for wrong in answers[n : 2 * n])
    assert all(len(wrong) == 2 for wrong in answers[2 * n :]), "the compiler and the validator each notice a wrong type"


# ---- surveys, settings, secrets


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_scaler_watches_all_topics_of_the_agents_group(folder: str) -> None:
    [scaled] = found(folder, "ScaledObject")
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["metadata"]["consumerGroup"] == Settings().group
    assert "LDPSTREAM_GROUP" not in settings_of(folder, "agent")
    assert "topic" not in trigger["metadata"]
    assert scaled["spec"]["minReplicaCount"] <= scaled["spec"]["maxReplicaCount"] <= partitions(folder)


def partitions(folder: str) -> int:
    """Returns the number of partitions of each reports topic."""
    if folder == "overlays/dev":
        return int(settings_of(folder, "agent")["LDPSTREAM_PARTITIONS"])
    topics = {topic["metadata"]["name"]: topic["spec"]["partitions"] for topic in found("strimzi", "KafkaTopic")}
    [number] = {int(topics[survey.reports_topic]) for survey in surveys(folder)}
    return number


@pytest.mark.parametrize("folder", OVERLAYS)
def test_a_survey_is_added_without_a_restart(folder: str) -> None:
    """Every pod mounts the folder as a whole, and a change of the surveys changes no pod."""
    assert surveys(folder)
    for name, template in pods(folder):
        if not name.startswith("ldpstream-"):
            continue
        [volume] = [v for v in template["spec"]["volumes"] if v["name"] == "surveys"]
        assert volume["configMap"] == {"name": "ldpstream-surveys"}  # no hash, no list of files
        [container] = template["spec"]["containers"]
        [mount] = [m for m in container["volumeMounts"] if m["name"] == "surveys"]
        assert (mount["mountPath"], mount.get("subPath"), mount["readOnly"]) == ("/surveys", None, True)
        assert container["args"][1] == ("/surveys/demo.toml" if name == "ldpstream-producer" else "/surveys")


@pytest.mark.parametrize("folder", OVERLAYS)
def test_every_survey_file_of_an_overlay_is_in_its_folder(folder: str) -> None:
    [config] = [r for r in found(folder, "ConfigMap") if r["metadata"]["name"] == "ldpstream-surveys"]
    assert config["data"].keys() == {file.name for file in (KUBERNETES / folder / "surveys").iterdir()}
    names = [survey.name for survey in surveys(folder)]
    assert len(set(names)) == len(names)


def settings_of(folder: str, component: str) -> dict[str, str]:
    """Returns the environment of a process."""
    [template] = [t for name, t in pods(folder) if name == f"ldpstream-{component}"]
    [container] = template["spec"]["containers"]
    configs = {r["metadata"]["name"]: r["data"] for r in found(folder, "ConfigMap")}
    made: dict[str, str] = {}
    for source in container["envFrom"]:
        made |= configs[source["configMapRef"]["name"]]
    return made | {each["name"]: each["value"] for each in container.get("env", [])}


@pytest.mark.parametrize("folder", OVERLAYS)
@pytest.mark.parametrize("component", sorted(OURS))
def test_every_setting_exists_and_every_secret_is_a_file(folder: str, component: str) -> None:
    given = settings_of(folder, component)
    for name in given:
        field = name.removeprefix("LDPSTREAM_")
        assert field.lower() in Settings.model_fields.keys() | AS_FILE, name
        assert "PASSWORD" not in name or name.endswith("_FILE")
    assert ("LDPSTREAM_REDIS" in given) == (component != "gateway")
    [template] = [t for name, t in pods(folder) if name == f"ldpstream-{component}"]
    mounts = {mount["mountPath"] for mount in template["spec"]["containers"][0]["volumeMounts"]}
    for value in given.values():
        assert not value.startswith("/") or str(Path(value).parent) in mounts, value


@pytest.mark.parametrize("folder", OVERLAYS)
@pytest.mark.parametrize("component", sorted(OURS))
def test_the_settings_fit_together(folder: str, component: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the secrets are mounted as files, every process has valid settings."""
    given = settings_of(folder, component)
    for value in given.values():
        if value.startswith("/run/secrets/"):
            file = tmp_path / value[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("a-secret-of-a-test-only\n")
            if file.suffix == ".crt":
                trustme.CA().cert_pem.write_to_path(file)
    for name, value in given.items():
        monkeypatch.setenv(name, f"{tmp_path}{value}" if value.startswith("/run/secrets/") else value)
    loaded = load_settings()
    assert loaded.kafka_security_protocol == ("SASL_SSL" if folder == "overlays/production" else "PLAINTEXT")
    assert loaded.kafka_options()
    expected = ["a-secret-of-a-test-only"] if (folder, component) == (OVERLAYS[1], "gateway") else []
    assert read_tokens(loaded) == (expected, [])


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_secret_is_written_down(folder: str) -> None:
    assert not found(folder, "Secret")
    assert not re.search(
        r"(?i)(password|token)s?['\"]?: ?['\"]?[a-z0-9+/]{6}(?<!kafka-)(?<!passwo)", wanted(lambda: rendered(folder))
    )


def test_users_have_rights_to_the_surveys_topics_only() -> None:
    asked = surveys("overlays/production")
    topics = {topic for one in asked for topic in (one.reports_topic, one.survey_topic, one.estimates_topic)}
    assert {t["metadata"]["name"] for t in found("strimzi", "KafkaTopic")} == topics
    rights: dict[str, set[tuple[str, str, str]]] = {}
    for user in found("strimzi", "KafkaUser"):
        for acl in user["spec"]["authorization"]["acls"]:
            kind = acl["resource"]["type"]
            assert acl["resource"]["patternType"] == ("prefix" if kind == "transactionalId" else "literal")
            rights.setdefault(user["metadata"]["name"], set()).update(
                (kind, acl["resource"]["name"], spelt(right)) for right in acl["operations"]
            )
    others = {
        "agent": {("group", Settings().group, "READ")},
        "estimator": {("transactionalId", f"ldpstream-{one.name}-", "WRITE") for one in asked},
    }
    roles: tuple[Role, ...] = ("agent", "estimator", "gateway")
    assert rights.keys() == {f"ldpstream-{role}" for role in roles}
    for role in roles:
        needed = {
            ("topic", getattr(one, f"{topic}_topic"), right)
            for one in asked for topic, allowed in RIGHTS[role].items() for right in allowed
        }  # fmt: skip
        assert rights[f"ldpstream-{role}"] == needed | others.get(role, set())
    assert all(settings_of("overlays/production", c)["LDPSTREAM_KAFKA_USER"] == f"ldpstream-{c}" for c in OURS)


def spelt(right: str) -> str:
    """Returns an operation's name in Kafka's protocol: DescribeConfigs -> DESCRIBE_CONFIGS."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", right).upper()


# ---- pods


@pytest.mark.parametrize("folder", OVERLAYS)
def test_pods_are_restricted(folder: str) -> None:
    [namespace] = found(folder, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    [account] = found(folder, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    for name, template in pods(folder):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert all("hostPath" not in volume for volume in spec["volumes"])
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context.get("readOnlyRootFilesystem", False) is (name != "kafka"), name
            assert {"cpu", "memory", "ephemeral-storage"} == container["resources"]["requests"].keys()
            assert {"cpu", "memory", "ephemeral-storage"} == container["resources"]["limits"].keys()


@pytest.mark.parametrize("folder", OVERLAYS)
def test_probes_use_health_and_ready(folder: str) -> None:
    for component in OURS:
        [template] = [t for name, t in pods(folder) if name == f"ldpstream-{component}"]
        [container] = template["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == 9100
        for probe, path in (("livenessProbe", "/health"), ("startupProbe", "/health"), ("readinessProbe", "/ready")):
            assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}
        given = settings_of(folder, component)
        for kind in ("PAGE", "GATEWAY"):
            if port := given.get(f"LDPSTREAM_{kind}_PORT"):
                assert int(port) in ports.values()
                assert given[f"LDPSTREAM_{kind}_HOST"] == "0.0.0.0"


@pytest.mark.parametrize("folder", OVERLAYS)
def test_selectors_match_the_right_pods(folder: str) -> None:
    labels = {name: template["metadata"]["labels"] for name, template in pods(folder)}

    def selected(selector: dict[str, str]) -> set[str]:
        return {name for name, has in labels.items() if selector.items() <= has.items()}

    for deployment in found(folder, "Deployment"):
        name = deployment["metadata"]["name"]
        assert selected(deployment["spec"]["selector"]["matchLabels"]) == {name}
        spread = deployment["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
        assert all(selected(each["labelSelector"]["matchLabels"]) == {name} for each in spread)
        assert len(spread) == 2 or name in {"kafka", "redis"}
    assert {b["metadata"]["name"] for b in found(folder, "PodDisruptionBudget")} == {f"ldpstream-{c}" for c in OURS}
    for budget in found(folder, "PodDisruptionBudget"):
        assert selected(budget["spec"]["selector"]["matchLabels"]) == {budget["metadata"]["name"]}
    ports = {n: {p["name"] for c in t["spec"]["containers"] for p in c.get("ports", [])} for n, t in pods(folder)}
    for service in found(folder, "Service"):
        [target] = selected(service["spec"]["selector"])
        assert all(port["targetPort"] in ports[target] for port in service["spec"]["ports"])
    [monitor] = found(folder, "PodMonitor")
    assert {f"ldpstream-{c}" for c in OURS} <= selected(monitor["spec"]["selector"]["matchLabels"])
    assert [e["port"] for e in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]


def test_images_of_production_are_pinned_by_digest() -> None:
    images = {c["image"] for _, template in pods("overlays/production") for c in template["spec"]["containers"]}
    assert all(re.fullmatch(r"[^:@]+@sha256:[0-9a-f]{64}", image) for image in images), images


# ---- how many, and how much memory


@pytest.mark.parametrize("folder", OVERLAYS)
def test_only_the_scaler_sets_the_number_of_agents(folder: str) -> None:
    """If a manifest set the number, every `kubectl apply` would reset it."""
    scaled = {s["spec"]["scaleTargetRef"]["name"] for s in found(folder, "ScaledObject", "HorizontalPodAutoscaler")}
    assert scaled == {"ldpstream-agent"}
    fixed = {d["metadata"]["name"] for d in found(folder, "Deployment") if "replicas" in d["spec"]}
    assert fixed == {name for name, _ in pods(folder)} - scaled - {"ldpstream-producer"}


def test_stores_leave_room_below_their_memory_limit() -> None:
    """Threads, buffers and the copy of Redis during a file rewrite need memory too."""
    asked = {}
    for name, template in pods("overlays/dev"):
        [container] = template["spec"]["containers"]
        text = " ".join([*container.get("args", []), *(e.get("value", "") for e in container.get("env", []))])
        if sizes := re.findall(r"(?:-Xmx|--maxmemory )(\d+)m", text):
            limit = container["resources"]["limits"]["memory"]
            limit_mb = int(limit[:-2]) * {"Mi": 1, "Gi": 1024}[limit[-2:]]
            asked[name] = max(map(int, sizes)) / limit_mb
    assert asked.keys() == {"kafka", "redis"}
    assert max(asked.values()) <= 0.75


# ---- several gateways


@pytest.mark.parametrize("folder", OVERLAYS)
def test_several_gateways_are_behind_an_ingress_with_tls(folder: str) -> None:
    [gateway] = [d for d in found(folder, "Deployment") if d["metadata"]["name"] == "ldpstream-gateway"]
    fronts = found(folder, "Ingress")
    if gateway["spec"]["replicas"] == 1:
        assert not fronts
        return
    services = {s["metadata"]["name"]: {port["name"] for port in s["spec"]["ports"]} for s in found(folder, "Service")}
    for front in fronts:
        hosts = {rule["host"] for rule in front["spec"]["rules"]}
        assert {host for tls in front["spec"]["tls"] for host in tls["hosts"]} == hosts, "a token must not travel in clear"
        for path in (path for rule in front["spec"]["rules"] for path in rule["http"]["paths"]):
            to = path["backend"]["service"]
            assert to["name"] == "ldpstream-gateway"
            assert to["port"]["name"] in services[to["name"]]


def http_route() -> Resource:
    """Returns the HTTPRoute that production may have in place of the Ingress."""
    return cast(Resource, yaml.safe_load((PRODUCTION / "http_route.yaml").read_text()))


# ---- one place for what an installation changes


def changed(tmp_path: Path, changes: dict[str, str]) -> list[Resource]:
    """Renders production with changes of its file kustomization.yaml alone."""
    copied = shutil.copytree(KUBERNETES, tmp_path / "kubernetes") / "overlays" / "production"
    text = (copied / "kustomization.yaml").read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (copied / "kustomization.yaml").write_text(text)
    wanted(lambda: rendered("overlays/production"))  # skips the test, or fails in CI, if kubectl is missing
    return list(yaml.safe_load_all(run(["kubectl", "kustomize", copied])))


def test_an_installation_changes_one_file(tmp_path: Path) -> None:
    made = changed(tmp_path, {
        "host=reports.example": "host=a.example", "ingress_class=nginx": "ingress_class=other", "10.0.0.0/8": "::1",
        "least_agents=2": "least_agents=3", "most_agents=12": "most_agents=7", "ldpstream-kafka-bootstrap.ldpstream": "kafka.a",
        "newName: registry.example/ldpstream\n": "newName: b.example/c\n",
        "ldpstream-estimator, count: 2": "ldpstream-estimator, count: 4",
    })  # fmt: skip
    by = {(r["kind"], r["metadata"]["name"]): r for r in made}
    assert not any(name.startswith("ldpstream-values") for _, name in by)  # not applied
    front = by["Ingress", "ldpstream-gateway"]["spec"]
    assert (front["rules"][0]["host"], front["tls"][0]["hosts"], front["ingressClassName"]) == (
        "a.example",
        ["a.example"],
        "other",
    )
    scaled = by["ScaledObject", "ldpstream-agent"]["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (3, 7)
    assert scaled["triggers"][0]["metadata"]["bootstrapServers"] == "kafka.a:9093"
    [gateway] = by["Deployment", "ldpstream-gateway"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "LDPSTREAM_GATEWAY_PROXIES", "value": "::1"} in gateway["env"]
    estimator = by["Deployment", "ldpstream-estimator"]["spec"]
    assert estimator["replicas"] == 4
    assert estimator["template"]["spec"]["containers"][0]["image"].startswith("b.example/c@")
    assert "set-by-the-overlay" not in yaml.safe_dump_all(made)


def test_an_http_route_replaces_the_ingress(tmp_path: Path) -> None:
    made = changed(tmp_path, {"- ingress.yaml": "- http_route.yaml", "host=reports.example": "host=a.example"})
    by = {(r["kind"], r["metadata"]["name"]): r for r in made}
    assert not any(kind == "Ingress" for kind, _ in by)
    route = by["HTTPRoute", "ldpstream-gateway"]["spec"]
    assert route["hostnames"] == ["a.example"]
    [to] = route["rules"][0]["backendRefs"]
    assert to["port"] in {port["port"] for port in by["Service", to["name"]]["spec"]["ports"]}


def test_the_script_of_dev_writes_a_survey_that_starts_now(tmp_path: Path) -> None:
    copied = shutil.copytree(KUBERNETES, tmp_path / "deploy" / "kubernetes") / "overlays" / "dev"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    survey = KUBERNETES.parents[1] / "surveys" / "samples" / "demo.toml"
    run(["bash", copied / "prepare.sh", survey], os.environ | {"PATH": path})
    started = parse_survey(tomllib.loads((copied / "surveys" / "demo.toml").read_text()))
    assert abs(started.start_ms - now_ms()) < 86_400_000
    assert started.step_ms == 60_000


# ---- who may reach whom

POLICIES = {"dev": "ldpstream-dev", "production": "ldpstream"}
KAFKA = {"strimzi.io/cluster": "ldpstream", "strimzi.io/kind": "Kafka"}
REDIS = {"app.kubernetes.io/name": "redis"}


def matches(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """True if a label selector selects these labels; None selects nothing."""
    if selector is None:
        return False
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "In"
        if labels.get(each["key"]) not in each["values"]:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def peer_matches(peer: Resource, own: str, namespace: str, labels: dict[str, str]) -> bool:
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}):
            return False
    elif namespace != own:
        return False
    return matches(peer.get("podSelector", {}), labels)


def may(folder: str, direction: str, pod: dict[str, str], namespace: str, other: dict[str, str], port: int) -> bool:
    """True if the policies let our pod connect to the other pod (``egress``), or accept that pod's connection (``ingress``)."""
    [ours] = found(folder, "Namespace")
    own = ours["metadata"]["name"]
    bound = False
    for policy in found(folder, "NetworkPolicy"):
        spec = policy["spec"]
        if not matches(spec["podSelector"], pod) or direction.title() not in spec["policyTypes"]:
            continue
        bound = True
        for rule in spec.get(direction, []):
            peers = rule.get("to" if direction == "egress" else "from")
            if any(p["port"] == port for p in rule["ports"]) and any(peer_matches(p, own, namespace, other) for p in peers):
                return True
    return not bound


@pytest.mark.parametrize(("folder", "kafka", "kafka_port"), [
    ("overlays/dev", {"app.kubernetes.io/name": "kafka"}, 9092), ("overlays/production", KAFKA, 9093),
])  # fmt: skip
def test_policies_allow_only_the_needed_connections(folder: str, kafka: dict[str, str], kafka_port: int) -> None:
    own = POLICIES[Path(folder).name]
    labels = {name: template["metadata"]["labels"] for name, template in pods(folder)}
    dns, stranger = {"k8s-app": "kube-dns"}, {"app.kubernetes.io/name": "stranger"}
    for name, pod in labels.items():
        ours = name.startswith("ldpstream-")
        assert may(folder, "egress", pod, own, kafka, kafka_port) is (ours or name == "kafka")  # for transactions
        assert may(folder, "egress", pod, own, REDIS, 6379) is (name in {"ldpstream-agent", "ldpstream-estimator"})
        assert may(folder, "egress", pod, "kube-system", dns, 53) is (ours or name == "kafka")
        assert not may(folder, "egress", pod, "elsewhere", stranger, 443)
        assert not may(folder, "egress", pod, own, kafka, 22)
        assert may(folder, "ingress", pod, "monitoring", stranger, 9100) is ours
        assert not may(folder, "ingress", pod, own, stranger, 9100)
        for port, front in ((8080, "ldpstream-estimator"), (8081, "ldpstream-gateway")):
            assert may(folder, "ingress", pod, "ingress-nginx", stranger, port) or name != front
            assert not may(folder, "ingress", pod, "elsewhere", stranger, port)
    for name, pod in labels.items():
        assert may(folder, "ingress", REDIS, own, pod, 6379) is (name in {"ldpstream-agent", "ldpstream-estimator"})
    assert not may(folder, "ingress", REDIS, "elsewhere", stranger, 6379)
    if folder == "overlays/dev":
        assert all(may(folder, "ingress", kafka, own, labels[f"ldpstream-{c}"], 9092) for c in (*OURS, "producer"))
        assert may(folder, "ingress", kafka, own, kafka, 9092)
        assert may(folder, "ingress", kafka, "keda", stranger, 9092)
    assert not may(folder, "egress", stranger, own, kafka, kafka_port), "the default is to deny"
