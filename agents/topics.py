"""The survey's topics: made if they are missing, and checked if they are there.

- reports: the envelopes; it must have LogAppendTime, the time at which the log took a record, by which lateness is judged
- rejected: the dead letters
- estimates: the publications, compacted, so that the last one of every key is kept
"""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)

from surveys import Survey
from surveys.envelope import MAX_ENVELOPE_BYTES
from surveys.settings import Settings

ANSWER_MS = 5_000
WEEK_MS = 7 * 86_400_000  # the least retention of reports: from the log a lost count store is folded again
OVERHEAD_BYTES = 4096  # of a record batch and of a dead letter's headers


class TopicError(Exception):
    """The broker cannot be reached, or a topic cannot be used: one line for the person who runs the command."""


def check_broker(settings: Settings) -> None:
    """Raise TopicError within a few seconds, naming the address, unless the broker answers."""
    with _admin(settings) as admin:
        admin.describe_cluster()


def check_session(settings: Settings, session_s: float) -> None:
    """Check that the broker lets the members of a group have that session timeout: a member that it refuses would never count.

    A broker that keeps its settings to itself is not asked; then the watchdog ends an agent that is refused.

    Raises:
        TopicError: if the broker cannot be reached, or refuses the timeout.
    """
    wanted_ms = round(session_s * 1000)
    with _admin(settings) as admin:
        broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
        try:
            answer = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, broker)], config_filter="all")
        except (ClusterAuthorizationFailedError, TopicAuthorizationFailedError):
            return
        told = {key: config["value"] for key, config in answer["broker"][broker].items()}
        least, most = (int(told.get(f"group.{end}.session.timeout.ms") or wanted_ms) for end in ("min", "max"))
        if not least <= wanted_ms <= most:
            raise TopicError(
                f"Kafka at {settings.kafka}: group.min.session.timeout.ms and group.max.session.timeout.ms must allow "
                f"{wanted_ms} ms, in which an agent that was killed is noticed; they allow {least} to {most} ms"
            )


def ensure_topics(settings: Settings, survey: Survey) -> None:
    """Make the survey's topics unless they exist, and check that the reports topic can be used.

    Raises:
        TopicError: if the broker cannot be reached or refuses, or if the reports topic does not have LogAppendTime.
    """
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        survey.reports_topic: (
            settings.partitions,
            {
                "message.timestamp.type": "LogAppendTime",
                "max.message.bytes": str(MAX_ENVELOPE_BYTES + OVERHEAD_BYTES),
                "retention.ms": str(max(WEEK_MS, (survey.window_steps + survey.lateness_steps + 2) * survey.step_ms)),
            },
        ),
        survey.rejected_topic: (1, {"max.message.bytes": str(2 * MAX_ENVELOPE_BYTES + OVERHEAD_BYTES)}),
        survey.estimates_topic: (1, {"cleanup.policy": "compact", "max.message.bytes": str(16 * 2**20)}),
    }
    with _admin(settings) as admin:
        existing = set(admin.list_topics())
        for name, (partitions, configs) in wanted.items():
            if name not in existing:
                _create(admin, name, partitions, settings.replication, configs)
        found = _configs(admin, survey.reports_topic).get("message.timestamp.type")
        if found != "LogAppendTime":
            raise TopicError(
                f"topic {survey.reports_topic} must have message.timestamp.type=LogAppendTime, got {found}: "
                "lateness is judged by the log's own time"
            )


def _create(admin: KafkaAdminClient, name: str, partitions: int, replication: int, configs: dict[str, str]) -> None:
    wanted = {name: {"num_partitions": partitions, "replication_factor": replication, "configs": configs}}
    with suppress(TopicAlreadyExistsError):  # another process was faster
        admin.create_topics(wanted, timeout_ms=ANSWER_MS, wait_for_metadata=True)


def _configs(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return {key: str(config["value"]) for key, config in answer["topic"][topic].items()}


@contextmanager
def _admin(settings: Settings) -> Iterator[KafkaAdminClient]:
    """An administrator's client that fails with one TopicError, within a few seconds and without lines in the log."""
    library = logging.getLogger("kafka")
    level = library.level
    library.setLevel(logging.CRITICAL)
    try:
        _knock(settings.kafka)
        with KafkaAdminClient(
            bootstrap_servers=settings.kafka, bootstrap_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS
        ) as admin:
            yield admin
    except KafkaError as error:
        raise TopicError(f"Kafka at {settings.kafka}: {error}") from None
    finally:
        library.setLevel(level)


def _knock(addresses: str) -> None:
    """Raise TopicError unless one of the addresses takes a connection; the library would try for long, and noisily."""
    reasons = []
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=ANSWER_MS / 1000).close()
        except OSError as error:
            reasons.append(error.strerror or str(error))
        else:
            return
    raise TopicError(f"Kafka at {addresses} cannot be reached: {', '.join(sorted(set(reasons)))}")
