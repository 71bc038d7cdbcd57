"""A Kafka and a Redis with access control: TLS, passwords, client certificates, and rights for each user."""

import contextlib
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import redis
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ldpstream.engines.kafka.topics import TopicError, check_broker
from ldpstream.runtime.settings import Settings

from .certificates import Authority
from .rig import LOOPBACK, KafkaNode, RedisNode, wait_until

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecureKafkaNode(KafkaNode):
    """A Kafka with two listeners: one requires TLS and a password (SASL_SSL), the other a client certificate (SSL).

    At first only the super user `admin` has rights; `admin_options` logs in as `admin`. The name of a user who logs in by
    certificate is the whole subject of the certificate, ``CN=…,O=…``.

    Args:
        authority: the authority that signs the broker's certificate. The broker accepts client certificates from this
            authority.
    """

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self._password = secrets.token_hex(16)
        super().__init__(n_ports=3)

    @property
    def mutual(self) -> str:
        """`host:port` of the listener that requires a client certificate instead of user and password."""
        return f"{LOOPBACK}:{self._ports[2]}"

    @property
    def admin_options(self) -> dict[str, Any]:
        return self.settings("admin", self._password).kafka_options()

    def settings(self, user: str, password: str, **more: Any) -> Settings:
        """The settings of a process that logs in as this user."""
        secure = {"kafka_security_protocol": "SASL_SSL", "kafka_user": user, "kafka_password": password}
        given: dict[str, Any] = {"kafka": self.bootstrap, "kafka_ca_file": self.authority.file} | secure | more
        return Settings(**given)

    def add_user(self, user: str, password: str, mechanism: str = "SCRAM_SHA_512") -> None:
        """Creates a user, or changes the user's password. Returns when the broker accepts the password."""
        set_password(self.admin_options, self.settings(user, password, kafka_sasl_mechanism=mechanism.replace("_", "-")))

    def grant(self, principal: str, rights: Iterable[tuple[str, str, str]]) -> None:
        """Grants rights, as the function `grant` does."""
        grant(self.admin_options, principal, rights)

    def _properties(self) -> dict[str, str | int | Path]:
        server = self.authority.issue(LOOPBACK, common_name="broker")
        scram = f'{SCRAM} required username="admin" password="{self._password}";'
        listeners = f"SASL_SSL://{self.bootstrap},SSL://{self.mutual}"
        return super()._properties() | {
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{self._ports[1]}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} required user_plain="plain-password";',
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": server.both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.file,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:admin;User:ANONYMOUS",  # the broker is anonymous to its own controller
        }

    def _format(self, *more: str) -> None:
        scram = f"SCRAM-SHA-512=[name=admin,password={self._password}]"
        super()._format(*more, "--add-scram", scram)


def set_password(admin_options: Mapping[str, Any], login: Settings) -> None:
    """Creates a user of Kafka, or changes the user's password. Returns when the broker accepts the password.

    The controller answers earlier.

    Args:
        admin_options: options of a client that has all rights.
        login: the settings with which the user logs in.
    """
    assert login.kafka_user is not None
    assert login.kafka_password is not None
    mechanism = ScramMechanism[login.kafka_sasl_mechanism.replace("-", "_")]
    with KafkaAdminClient(**admin_options) as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(login.kafka_user, mechanism, login.kafka_password.get_secret_value())]
        )

    def let_in() -> bool:
        with contextlib.suppress(TopicError):
            check_broker(login)
            return True
        return False

    wait_until(let_in, lambda: f"the broker accepts the password of {login.kafka_user}")


def grant(admin_options: Mapping[str, Any], principal: str, rights: Iterable[tuple[str, str, str]]) -> None:
    """Grants rights in Kafka, and returns when the broker applies them. The controller answers earlier.

    Args:
        admin_options: options of a client that has all rights.
        principal: ``User:name``.
        rights: (resource type, resource name, operation), as in ("topic", "t", "write"); a name ``x*`` is a prefix.
    """
    acls = []
    for kind, name, operation in rights:
        pattern = ACLResourcePatternType.PREFIXED if name.endswith("*") else ACLResourcePatternType.LITERAL
        resource = ResourcePattern(ResourceType[kind.upper()], name.removesuffix("*"), pattern)
        acls.append(ACL(principal, "*", ACLOperation[operation.upper()], ACLPermissionType.ALLOW, resource))
    with KafkaAdminClient(**admin_options) as admin:
        failed = admin.create_acls(acls)["failed"]
        assert not failed, failed
        anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        of_user = ACLFilter(principal, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
        wait_until(
            lambda: {*acls} <= {*admin.describe_acls(of_user)[0]}, lambda: f"the broker applies the rights of {principal}"
        )


class SecureRedisNode(RedisNode):
    """A Redis that accepts TLS only, with users and their rights. A client without a password has no rights.

    Args:
        authority: the authority that signs the server's certificate. The server accepts client certificates from this
            authority.
        users: password and rights of each user, in Redis's syntax: ``("secret", "~key* +get")``.
        client_certificates: True if a client must present a certificate.
        options, n_ports: as in `RedisNode`.
    """

    def __init__(
        self,
        authority: Authority,
        users: Mapping[str, tuple[str, str]],
        client_certificates: bool = False,
        options: Iterable[str] = (),
        n_ports: int = 1,
    ) -> None:
        super().__init__(n_ports=n_ports)
        self.authority = authority
        self._admin, self._password = authority.issue(LOOPBACK, common_name="redis-admin"), secrets.token_hex(16)
        server = authority.issue(LOOPBACK, common_name=f"redis-{self._ports[0]}")
        lines = ["user default off", f"user admin on >{self._password} ~* &* +@all"]
        lines += [f"user {name} on >{password} resetchannels -@all {rights}" for name, (password, rights) in users.items()]
        (self.folder / "users.acl").write_text("\n".join(lines) + "\n")
        self._options = [
            "--port", "0", "--tls-port", str(self._ports[0]), "--tls-ca-cert-file", str(authority.file),
            "--tls-cert-file", str(server.cert), "--tls-key-file", str(server.key),
            "--tls-auth-clients", "yes" if client_certificates else "no", "--tls-cluster", "yes",
            "--aclfile", str(self.folder / "users.acl"),
            *options,
        ]  # fmt: skip

    @property
    def url(self) -> str:
        """URL of logical database 0, without user and password."""
        return f"rediss://{LOOPBACK}:{self._ports[0]}/0"

    @property
    def admin_credentials(self) -> tuple[str, str]:
        """User and password of the administrator."""
        return "admin", self._password

    def set_user(self, name: str, password: str, rights: str) -> None:
        """Creates or replaces a user with exactly these rights."""
        with self.client() as client:
            client.execute_command("ACL SETUSER", name, "reset", "on", f">{password}", *words(rights))

    def client(self) -> redis.Redis:
        user, password = self.admin_credentials
        return redis.Redis.from_url(
            self.url, username=user, password=password, ssl_ca_certs=str(self.authority.file),
            ssl_certfile=str(self._admin.cert), ssl_keyfile=str(self._admin.key), socket_timeout=30,
        )  # fmt: skip


def words(rights: str) -> list[str]:
    """Splits an ACL line into its rules; a group in parentheses is one rule."""
    return re.findall(r"\([^)]*\)|\S+", rights)
