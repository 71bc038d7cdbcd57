"""A Kafka of three brokers and a Redis for the overlay `production`, with TLS, passwords and rights.

They take the place of Strimzi's cluster and of the Redis that docs/howto/kubernetes.md asks for: the names, labels, ports and
secrets are the same. The topics, rights and network policies of Kafka are those of `deploy/kubernetes/strimzi`, the rights in
Redis those of docs/howto/security.md. Each broker and Redis have their data in a folder of this machine, which both nodes can
mount, like a network disk.
"""

import contextlib
import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import redis
import yaml
from kafka import KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError

from ldpstream.engines.kafka.topics import Role, TopicError, check_broker, ensure_topics
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from tests.deploy.manifests import ROOT
from tests.deploy.verify import stores
from tests.deploy.verify.engine import WITHIN, wait_for
from tests.deploy.verify.node import Cluster
from tests.services.certificates import Authority
from tests.services.rig import patiently
from tests.services.rig_secure import AUTHORIZER, SCRAM, grant, set_password, words
from tests.services.secure_site import REDIS_RULES, operation

NAMESPACE = "ldpstream"
STRIMZI = ROOT / "deploy" / "kubernetes" / "strimzi"
BROKERS, KAFKA, REDIS = 3, "ldpstream-nodes", "ldpstream-redis"  # the names of the pods begin with them
BOOTSTRAP = "ldpstream-kafka-bootstrap"
GROUP = "ldpstream-agents"
CALLS = 10
ROLES: tuple[Role, ...] = ("agent", "estimator", "gateway")
LABELS = {
    KAFKA: {"strimzi.io/cluster": "ldpstream", "strimzi.io/kind": "Kafka"},
    REDIS: {"app.kubernetes.io/name": "redis"},
}
START_KAFKA = """\
set -e
settings=/config/server-${HOSTNAME##*-}.properties
java -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format --ignore-formatted --cluster-id 5L6g3nShT-eMCtK--X86sw \\
  --config "$settings" --add-scram "SCRAM-SHA-512=[name=admin,password=$(cat /config/password)]"
exec java -Xms384m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.level=WARN -Dlog4j2.disable.jmx=true \\
  -cp '/opt/kafka/libs/*' kafka.Kafka "$settings"
"""
START_REDIS = """\
exec redis-server --port 0 --tls-port 6379 --tls-cert-file /config/cert --tls-key-file /config/key \\
  --tls-ca-cert-file /config/ca --tls-auth-clients no --aclfile /config/users \\
  --dir /data --appendonly yes --save '' --maxmemory-policy noeviction
"""

Object = dict[str, Any]


class SecureStores:
    """Kafka and Redis in the namespace of `production`.

    Args:
        cluster: the cluster. The namespace exists already.
        work: folder for certificates and data.
        strimzi: a copy of `deploy/kubernetes/strimzi` of the version that is upgraded. Its topics and rights stay.
    """

    def __init__(self, cluster: Cluster, work: Path, strimzi: Path) -> None:
        self._cluster, self._work, self._folders = cluster, work, (strimzi, STRIMZI)
        self.authority = Authority(work)
        self._redis_server = self.authority.issue(REDIS, f"{REDIS}.{NAMESPACE}", common_name="redis")
        names = ("admin", *ROLES, "redis-admin", *(f"redis-{role}" for role in REDIS_RULES))
        self._passwords = {name: secrets.token_hex(16) for name in names}
        self.token = secrets.token_urlsafe(24)  # of the gateways
        self.surveys: list[str] = []  # names with rights in Redis

    # ---- logging in

    def settings(self, role: str) -> Settings:
        """The settings of a process of this role; `admin` has all rights in Kafka. Gateways do not use Redis."""
        user = role if role == "admin" else f"ldpstream-{role}"
        known: dict[str, Any] = {"kafka": f"{BOOTSTRAP}.{NAMESPACE}:9093", "kafka_security_protocol": "SASL_SSL"}
        known |= {"kafka_user": user, "kafka_password": self._passwords[role], "kafka_ca_file": self.authority.file}
        if role in REDIS_RULES:
            known |= {"redis": f"rediss://{REDIS}.{NAMESPACE}:6379/0", "redis_ca_file": self.authority.file}
            known |= {"redis_user": role, "redis_password": self._passwords[f"redis-{role}"]}
        return Settings(**known)

    # ---- starting

    def start(self, first: Survey) -> None:
        """Starts Kafka and Redis, makes the users, and the topics and rights of the first survey.

        Raises:
            VerifyError: if a server does not start in time.
        """
        self.surveys.append(first.name)
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": self.objects()})
        strict = ("apply", "--server-side", "--validate=strict", "--filename=-")
        self._cluster.kubectl("--namespace", NAMESPACE, *strict, given=given)
        self._cluster.start_names(NAMESPACE)
        for name in (KAFKA, REDIS):
            self._cluster.kubectl("--namespace", NAMESPACE, "rollout", "status", f"statefulset/{name}", WITHIN)
        patiently(lambda: check_broker(self.settings("admin")))
        for role in ROLES:
            set_password(self.settings("admin").kafka_options(), self.settings(role))
        self._add_to_kafka(first)

    def add(self, survey: Survey) -> None:
        """Makes the topics and the rights of a further survey, before the survey is added."""
        self.surveys.append(survey.name)
        self._add_to_kafka(survey)
        given = json.dumps(self._redis_secret())
        self._cluster.kubectl("--namespace", NAMESPACE, "apply", "--server-side", "--filename=-", given=given)
        with closing(self.redis_admin()) as client:
            give: Any = client.execute_command
            for role, rules in self._rules().items():
                password = self._passwords[f"redis-{role}"]
                give("ACL SETUSER", role, "reset", "on", f">{password}", *words(rules))

    def redis_admin(self) -> redis.Redis:
        """A client of Redis that has all rights."""
        return redis.Redis(
            host=f"{REDIS}.{NAMESPACE}", port=6379, username="admin", password=self._passwords["redis-admin"], ssl=True,
            ssl_ca_certs=str(self.authority.file), socket_timeout=60,
        )  # fmt: skip

    def replicated(self) -> bool:
        """True if every partition of every topic has all its replicas in sync."""
        with KafkaAdminClient(**self.settings("admin").kafka_options()) as admin:
            topics = admin.describe_topics()
        partitions = [partition for topic in topics for partition in topic["partitions"]]
        return bool(partitions) and all(len(partition["isr_nodes"]) == BROKERS for partition in partitions)

    def _add_to_kafka(self, survey: Survey) -> None:
        admin_options = self.settings("admin").kafka_options()
        wanted = {
            topic["metadata"]["name"]: {
                "num_partitions": topic["spec"]["partitions"],
                "replication_factor": topic["spec"]["replicas"],
                "configs": topic["spec"]["config"],
            }
            for folder in self._folders
            for topic in _manifests("topics.yaml", survey.name, folder)
        }
        with KafkaAdminClient(**admin_options) as admin, contextlib.suppress(TopicAlreadyExistsError):
            patiently(lambda: admin.create_topics(wanted))
        for folder in self._folders:
            for name, rights in kafka_rights(survey.name, folder).items():
                grant(admin_options, f"User:{name}", rights)
        for role in ROLES:
            self._await_rights(role, survey)

    def _await_rights(self, role: Role, survey: Survey) -> None:
        """Waits until all brokers know the topics and the rights of a role. A process that asks an earlier broker exits.

        Each call asks some broker, so many calls in a row must succeed.

        Raises:
            VerifyError: if a topic or right is missing after a long time.
        """
        said = ""

        def known() -> bool:
            nonlocal said
            try:
                for _ in range(CALLS):
                    patiently(partial(ensure_topics, self.settings(role), survey, role, GROUP))
            except TopicError as error:
                said = str(error)
                return False
            return True

        wait_for(known, lambda: f"all brokers know the rights of {role}: {said}")

    # ---- manifests

    def objects(self) -> list[Object]:
        """All objects of Kafka and Redis, and the secrets of `production`."""
        return [*self._kafka(), *_policies(), *self._redis(), *self._secrets()]

    def _kafka(self) -> Iterator[Object]:
        names = [f"{KAFKA}-{number}" for number in range(BROKERS)]
        config = {"password": self._passwords["admin"], "ca.pem": self.authority.file.read_text()}
        for number, name in enumerate(names):
            hosts = [f"{name}.{NAMESPACE}", f"{BOOTSTRAP}.{NAMESPACE}"]
            config[f"server-{number}.pem"] = self.authority.issue(*hosts, common_name=f"broker-{number}").both.read_text()
            config[f"server-{number}.properties"] = self._properties(number)
            ports = {"tls": 9093, "control": 9094}
            yield _service(name, {"statefulset.kubernetes.io/pod-name": name}, ports)
        yield _service(BOOTSTRAP, LABELS[KAFKA], {"tls": 9093})
        yield _secret(f"{KAFKA}-config", config)
        yield {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "ldpstream-kafka"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS[KAFKA]}},
        }  # fmt: skip
        yield from self._stateful(KAFKA, BROKERS, START_KAFKA, 9093, "768Mi")

    def _properties(self, number: int) -> str:
        voters = ",".join(f"{other}@{KAFKA}-{other}.{NAMESPACE}:9094" for other in range(BROKERS))
        scram = f'{SCRAM} required username="admin" password="{self._passwords["admin"]}";'
        properties = {
            "process.roles": "broker,controller", "node.id": number, "controller.quorum.voters": voters,
            "listeners": "SASL_SSL://:9093,CONTROLLER://:9094", "controller.listener.names": "CONTROLLER",
            "advertised.listeners": f"SASL_SSL://{KAFKA}-{number}.{NAMESPACE}:9093",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SASL_SSL", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512", "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.controller.ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/",
            "super.users": ";".join(["User:admin", *(f"User:broker-{other}" for other in range(BROKERS))]),
            "ssl.keystore.type": "PEM", "ssl.keystore.location": f"/config/server-{number}.pem",
            "ssl.truststore.type": "PEM", "ssl.truststore.location": "/config/ca.pem",
            "authorizer.class.name": AUTHORIZER, "log.dirs": "/data/log", "auto.create.topics.enable": "false",
            "default.replication.factor": BROKERS, "min.insync.replicas": 2,
            "offsets.topic.replication.factor": BROKERS, "offsets.topic.num.partitions": 6,
            "transaction.state.log.replication.factor": BROKERS, "transaction.state.log.min.isr": 2,
            "transaction.state.log.num.partitions": 6, "log.cleaner.dedupe.buffer.size": 4 << 20,
        }  # fmt: skip
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _redis(self) -> Iterator[Object]:
        yield _service(REDIS, LABELS[REDIS], {"redis": 6379})
        yield self._redis_secret()
        yield from self._stateful(REDIS, 1, START_REDIS, 6379, "256Mi")

    def _redis_secret(self) -> Object:
        lines = ["user default off", f"user admin on >{self._passwords['redis-admin']} ~* &* +@all"]
        lines += [f"user {role} on >{self._passwords[f'redis-{role}']} {rules}" for role, rules in self._rules().items()]
        files = {"ca": self.authority.file, "cert": self._redis_server.cert, "key": self._redis_server.key}
        return _secret(
            f"{REDIS}-config", {name: file.read_text() for name, file in files.items()} | {"users": "\n".join(lines) + "\n"}
        )

    def _rules(self) -> dict[str, str]:
        """The documented rights in Redis of each role, for all surveys."""
        return {
            role: "resetchannels -@all " + " ".join(rules.replace("NAME", name) for name in self.surveys)
            for role, rules in REDIS_RULES.items()
        }

    def _secrets(self) -> Iterator[Object]:
        """The secrets of `production`, as Strimzi and the operator of the service make them."""
        authority = self.authority.file.read_text()
        for role in ROLES:
            yield _secret(f"ldpstream-{role}", {"password": self._passwords[role]})
        yield _secret("ldpstream-cluster-ca-cert", {"ca.crt": authority})
        passwords = {role: self._passwords[f"redis-{role}"] for role in REDIS_RULES}
        yield _secret("ldpstream-redis", passwords | {"ca.crt": authority})
        yield _secret("ldpstream-gateway-tokens", {"tokens": f"another-{self.token}\ncollector {self.token}\n"})

    def _stateful(self, name: str, count: int, command: str, port: int, memory: str) -> Iterator[Object]:
        labels, volume = LABELS[name], {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        container = {
            "name": "server", "image": f"docker.io/library/{stores.IMAGE}:latest", "imagePullPolicy": "Never",
            "command": ["sh", "-c", command], "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 2},
            "resources": {"requests": {"cpu": "50m", "memory": memory}, "limits": {"memory": memory}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/config"}],
        }  # fmt: skip
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        pod = {
            "automountServiceAccountToken": False, "enableServiceLinks": False, "containers": [container],
            "securityContext": {
                "runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": labels}}],
            "volumes": [{"name": "config", "secret": {"secretName": f"{name}-config", "defaultMode": 0o440}}],
        }  # fmt: skip
        for number in range(count):
            (folder := self._work / "volumes" / f"{name}-{number}").mkdir(parents=True)
            folder.chmod(0o777)
            claim = {"namespace": NAMESPACE, "name": f"data-{name}-{number}"}
            yield {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{name}-{number}"},
                "spec": volume | {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}, "claimRef": claim},
            }  # fmt: skip
        template = {"metadata": {"name": "data"}, "spec": volume | {"resources": {"requests": {"storage": "1Gi"}}}}
        yield {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
            "spec": {
                "serviceName": name, "replicas": count, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod}, "volumeClaimTemplates": [template],
            },
        }  # fmt: skip


def kafka_rights(survey: str, folder: Path = STRIMZI) -> dict[str, list[tuple[str, str, str]]]:
    """The rights of each Kafka user in `users.yaml` of the folder: resource type, name and operation."""
    rights: dict[str, list[tuple[str, str, str]]] = {}
    for user in _manifests("users.yaml", survey, folder):
        rights[user["metadata"]["name"]] = [
            (
                acl["resource"]["type"].replace("transactionalId", "transactional_id"),
                acl["resource"]["name"] + ("*" if acl["resource"]["patternType"] == "prefix" else ""),
                operation(name),
            )
            for acl in user["spec"]["authorization"]["acls"]
            for name in acl["operations"]
        ]
    return rights


def _policies() -> Iterator[Object]:
    """The policy of our manifests for Kafka, and the one that Strimzi makes of its listener; 9094 is between brokers."""
    yield from _manifests("network_policies.yaml", "demo")
    [kafka] = [one for one in _manifests("kafka.yaml", "demo") if one["kind"] == "Kafka"]
    [listener] = kafka["spec"]["kafka"]["listeners"]
    brokers = [{"podSelector": {"matchLabels": LABELS[KAFKA]}}]
    rules = ((listener["networkPolicyPeers"], (listener["port"],)), (brokers, (9093, 9094)))
    ingress = [{"from": peers, "ports": [{"port": port, "protocol": "TCP"} for port in ports]} for peers, ports in rules]
    yield {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "ldpstream-network-policy-kafka"},
        "spec": {"podSelector": {"matchLabels": LABELS[KAFKA]}, "policyTypes": ["Ingress"], "ingress": ingress},
    }  # fmt: skip


def _manifests(file: str, survey: str, folder: Path = STRIMZI) -> list[Object]:
    """The objects of a file for Strimzi, for a survey of this name."""
    return list(yaml.safe_load_all((folder / file).read_text().replace("demo", survey)))


def _service(name: str, selector: dict[str, str], ports: dict[str, int]) -> Object:
    listed = [{"name": port, "port": number} for port, number in ports.items()]
    # the brokers find each other before they are ready
    spec = {"selector": selector, "ports": listed, "publishNotReadyAddresses": len(ports) > 1}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _secret(name: str, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
