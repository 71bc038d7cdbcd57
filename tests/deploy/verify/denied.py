"""Tries what no user of `production` may do in Kafka and Redis; every attempt must be denied."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import redis
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from ldpstream.engines.kafka.redis_connection import connect
from ldpstream.engines.kafka.topics import RIGHTS, TopicError, check_broker
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from tests.deploy.verify.engine import VerifyError
from tests.deploy.verify.secure_stores import GROUP, NAMESPACE, REDIS, ROLES, SecureStores
from tests.services.rig import PATIENCE_S

POLL_MS = 60_000


def check_denied(stores: SecureStores, survey: Survey) -> int:
    """Tries what no user may do, and returns the number of denied operations.

    Raises:
        VerifyError: if an operation is not denied.
    """
    attempts = [*_in_kafka(stores, survey), *_in_redis(stores, survey), *_strangers(stores)]
    for what, errors, attempt in attempts:
        try:
            attempt()
        except errors:
            continue
        raise VerifyError(f"{what}: not denied")
    return len(attempts)


Attempt = tuple[str, type[Exception] | tuple[type[Exception], ...], Callable[[], object]]


def _in_kafka(stores: SecureStores, survey: Survey) -> list[Attempt]:
    """Every process reads and writes every topic to which it has no right."""
    attempts: list[Attempt] = []
    for role in ROLES:
        options = stores.settings(role).kafka_options()
        for kind in ("reports", "rejected", "survey", "estimates"):
            topic, granted = getattr(survey, f"{kind}_topic"), RIGHTS[role].get(kind, set())
            for right, attempt in {"WRITE": _write, "READ": _read}.items():
                if right not in granted:
                    tried = partial(attempt, options, topic)
                    attempts.append((f"{role}: {right} {topic}", TopicAuthorizationFailedError, tried))
        if role != "agent":
            joins = partial(_join, options, survey.reports_topic)
            attempts.append((f"{role}: joins the agents", GroupAuthorizationFailedError, joins))
    return attempts


def _in_redis(stores: SecureStores, survey: Survey) -> list[Attempt]:
    """Agents change publications, estimators change counts and read report keys, and both delete everything."""
    tag = f"{survey.name}:{survey.fingerprint.hex()}"
    commands: dict[str, list[tuple[str, ...]]] = {
        "agent": [("HSET", f"ldpstream:{{{tag}}}:estimates", "f", "1"), ("FLUSHALL",)],
        "estimator": [
            ("HSET", f"ldpstream:{{{tag}:0}}:counts", "next_offset", "1"),
            ("GET", f"ldpstream:{{{tag}:0}}:keys:4"),
            ("FLUSHALL",),
        ],
    }
    return [
        (f"{role}: {' '.join(command[:2])}", NoPermissionError, partial(_command, stores.settings(role), command))
        for role, listed in commands.items()
        for command in listed
    ]


def _strangers(stores: SecureStores) -> list[Attempt]:
    """Clients with a wrong password, without a password, without TLS, or without our authority."""
    agent, tls = stores.settings("agent"), {"ssl": True, "ssl_ca_certs": str(stores.authority.file)}
    plain = Settings(kafka=agent.kafka)
    wrong = agent.model_copy(update={"kafka_user": "ldpstream-gateway"})
    unknown = agent.model_copy(update={"kafka_ca_file": None})
    return [
        ("Kafka: a wrong password", TopicError, partial(check_broker, wrong)),
        ("Kafka: no TLS", TopicError, partial(check_broker, plain)),
        ("Kafka: an unknown authority", TopicError, partial(check_broker, unknown)),
        ("Redis: no password", (AuthenticationError, ResponseError), partial(_get, tls)),
        ("Redis: no TLS", redis.ConnectionError, partial(_get, {})),
        ("Redis: an unknown authority", redis.ConnectionError, partial(_get, {"ssl": True})),
    ]


def _write(options: Mapping[str, Any], topic: str) -> None:
    with closing(KafkaProducer(**options, acks="all", max_block_ms=POLL_MS)) as producer:
        producer.send(topic, b"x", b"key").get(timeout=PATIENCE_S)


def _read(options: Mapping[str, Any], topic: str) -> None:
    with KafkaAdminClient(**options) as admin:
        [about] = admin.describe_topics([topic])
    if about["error_code"] == TopicAuthorizationFailedError.errno:  # a consumer would wait for the hidden topic
        raise TopicAuthorizationFailedError
    with closing(KafkaConsumer(**options, group_id=None)) as consumer:
        consumer.assign([where := TopicPartition(topic, 0)])
        consumer.seek(where, 0)
        consumer.poll(timeout_ms=POLL_MS)


def _join(options: Mapping[str, Any], topic: str) -> None:
    with closing(KafkaConsumer(topic, **options, group_id=GROUP)) as consumer:
        consumer.poll(timeout_ms=POLL_MS)


def _command(settings: Settings, command: tuple[str, ...]) -> None:
    with closing(connect(settings)) as client:
        give: Any = client.execute_command
        give(*command)


def _get(options: Mapping[str, Any]) -> None:
    with closing(redis.Redis(host=f"{REDIS}.{NAMESPACE}", port=6379, socket_timeout=60, **options)) as client:
        client.get("x")
