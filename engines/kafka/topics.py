"""Creates a survey's missing topics, and checks the survey's topics.

- reports: the envelopes; agents need certain settings of this topic (`_COUNTABLE`), above all LogAppendTime
- estimates: the publications; compaction keeps the last record of every key
- survey: the last accepted survey of this name (`engines.kafka.topic_keeper`)
"""

import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import structlog
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    AuthorizationError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from ldpstream.engines.kafka.clients import Heard, hearing
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.envelope import MAX_ENVELOPE_BYTES
from ldpstream.surveys.errors import Unreachable, UserError

log = structlog.get_logger("ldpstream.topics")

ANSWER_MS = 5_000
MAX_SURVEY_BYTES = 16 * 2**20  # upper bound for the record of a kept survey
OVERHEAD_BYTES = 4096  # upper bound for the headers of a record batch

Role = Literal["producer", "gateway", "agent", "estimator"]
RIGHTS: dict[Role, dict[str, set[str]]] = {  # the rights that each role needs to the topics; READ or WRITE implies DESCRIBE
    "producer": {"reports": {"WRITE"}},
    "gateway": {"reports": {"WRITE"}, "survey": {"READ"}},
    "agent": {"reports": {"READ", "DESCRIBE_CONFIGS"}, "survey": {"READ", "WRITE"}},
    "estimator": {"reports": {"WRITE"}, "estimates": {"READ", "WRITE"}, "survey": {"READ"}},  # an estimator writes markers
}
_UNSEEN = (UnknownTopicOrPartitionError.errno, TopicAuthorizationFailedError.errno)


class TopicError(UserError):
    """The broker is unreachable or a topic cannot be used."""


class BrokerUnreachable(TopicError, Unreachable):
    """No broker is reachable, or none answers."""


def group_id(survey: Survey) -> str:
    return f"ldpstream-{survey.name}-{survey.fingerprint.hex()}"


def check_broker(settings: Settings) -> None:
    """Raises TopicError if the broker does not answer."""
    with _admin(settings) as admin:
        admin.describe_cluster()


def ensure_topics(settings: Settings, survey: Survey, role: Role | None = None, group: str | None = None) -> None:
    """Creates the survey's missing topics, and checks that the topics are usable.

    Args:
        role: handles only this role's topics, and checks the role's rights to them; None for all topics, without rights.
        group: the consumer group of an agent; by default the survey's own group.

    Raises:
        TopicError: if the broker is unreachable or refuses a request, or if a topic cannot be used.
    """
    specs = _specs(settings, survey)
    rights = RIGHTS[role] if role else {kind: set[str]() for kind in specs}
    names = {kind: str(getattr(survey, f"{kind}_topic")) for kind in rights}
    with _admin(settings) as admin:
        seen = _describe(admin, names.values())
        missing = [kind for kind, name in names.items() if name not in seen]
        for kind in missing:
            _create(admin, settings, names[kind], *specs[kind])
        if missing:
            seen = _describe(admin, names.values())
        for kind, name in names.items():
            _check_rights(settings, f"topic {name}", rights[kind], seen.get(name))
        if role == "agent":
            _check_group(admin, settings, group or group_id(survey))
        if role == "estimator" and (n := len(seen[names["estimates"]]["partitions"])) != 1:
            raise TopicError(f"topic {names['estimates']} must have 1 partition, got {n}: publications need one order")
        _check_reports(survey.reports_topic, _configs(admin, survey.reports_topic))


def _specs(settings: Settings, survey: Survey) -> dict[str, tuple[int, dict[str, str]]]:
    majority = str(settings.replication // 2 + 1)  # see docs/explained/counting.md
    reports = {
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MAX_ENVELOPE_BYTES + OVERHEAD_BYTES),
        "retention.ms": str(survey.kept_ms),
        "min.insync.replicas": majority,
    }
    compacted = {
        "cleanup.policy": "compact",
        "min.insync.replicas": majority,
        "compression.type": "producer",  # the client that reads these topics lacks most codecs that a broker could use
    }
    return {
        "reports": (settings.partitions, reports),
        "survey": (1, compacted | {"max.message.bytes": str(MAX_SURVEY_BYTES), "message.timestamp.type": "LogAppendTime"}),
        "estimates": (1, compacted | {"max.message.bytes": str(16 * 2**20)}),
    }


def _check_reports(topic: str, configs: dict[str, str]) -> None:
    for setting, wanted, usable, why in _COUNTABLE:
        found = configs.get(setting)
        if found is not None and not usable(found):
            raise TopicError(f"topic {topic} must have {setting}={wanted}, got {found}: {why}")


_COUNTABLE: tuple[tuple[str, str, Callable[[str], bool], str], ...] = (
    ("message.timestamp.type", "LogAppendTime", "LogAppendTime".__eq__, "agents judge lateness by the log's append time"),
    ("cleanup.policy", "delete", lambda found: "compact" not in found, "compaction removes reports before they are counted"),
)  # fmt: skip


def _describe(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[str, Any]:
    return {about["name"]: about for about in admin.describe_topics(list(topics)) if about["error_code"] not in _UNSEEN}


def _create(admin: KafkaAdminClient, settings: Settings, name: str, partitions: int, configs: dict[str, str]) -> None:
    wanted = {name: {"num_partitions": partitions, "replication_factor": settings.replication, "configs": configs}}
    try:
        with suppress(TopicAlreadyExistsError):  # another process has just created the topic
            admin.create_topics(wanted, timeout_ms=ANSWER_MS, wait_for_metadata=True)
    except AuthorizationError:
        hidden = f"topic {name} does not exist or is hidden from {_who(settings)} (no right to DESCRIBE it)"
        raise TopicError(f"Kafka at {settings.kafka}: {hidden}, who may not CREATE it either") from None


def _check_rights(settings: Settings, what: str, needed: set[str], about: Any) -> None:
    allowed = about and about.get("authorized_operations")  # an old broker returns None
    lacking = needed - set(allowed) if allowed is not None else set()
    if lacking:
        raise TopicError(f"Kafka at {settings.kafka}: {_who(settings)} may not {', '.join(sorted(lacking))} {what}")


def _check_group(admin: KafkaAdminClient, settings: Settings, group: str) -> None:
    try:
        about = admin.describe_groups([group])[group]
    except GroupAuthorizationFailedError:
        about = {"authorized_operations": []}
    _check_rights(settings, f"group {group}", {"READ"}, about)


def _who(settings: Settings) -> str:
    return f"user {settings.kafka_user}" if settings.kafka_user else "this client"


def _configs(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return {key: str(config["value"]) for key, config in answer["topic"][topic].items()}


@contextmanager
def _admin(settings: Settings) -> Iterator[KafkaAdminClient]:
    with broker_errors(settings) as heard:
        _knock(settings)
        limits = {"bootstrap_timeout_ms": ANSWER_MS, "request_timeout_ms": ANSWER_MS}
        with KafkaAdminClient(**settings.kafka_options(), **limits) as admin:
            heard.let_in()
            yield admin


@contextmanager
def broker_errors(settings: Settings, what: str = "") -> Iterator[Heard]:
    """Turns errors of the library into TopicError or BrokerUnreachable, with the reason in one line."""
    with hearing(settings) as heard:
        try:
            yield heard
        except KafkaError as error:
            kind = BrokerUnreachable if error.retriable and not heard.turned_away else TopicError
            raise kind(f"Kafka at {settings.kafka}: {what}{heard.why(error)}") from None


def _knock(settings: Settings) -> None:
    """Raises BrokerUnreachable unless a listener accepts a connection and, with TLS, answers."""
    addresses = settings.kafka.split(",")
    timeout_s = ANSWER_MS / 1000 / len(addresses)
    reasons = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
                if settings.kafka_security_protocol.endswith("SSL"):
                    with suppress(ssl.SSLError, ConnectionError, ValueError):  # the listener answers; the library tells why
                        settings.tls("kafka").wrap_socket(connection, server_hostname=host).close()
            return
        except OSError as error:
            reasons.append(error.strerror or str(error))
    raise BrokerUnreachable(f"Kafka at {settings.kafka} cannot be reached: {', '.join(sorted(set(reasons)))}")
