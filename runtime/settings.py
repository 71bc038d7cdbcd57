"""Settings of a process: addresses of the broker and the count store, credentials, and tuning.

Every field is an environment variable with the prefix ``LDPSTREAM_``, such as ``LDPSTREAM_KAFKA=broker:9092``. A file may hold
a secret instead, as Kubernetes mounts it: ``LDPSTREAM_KAFKA_PASSWORD_FILE=/run/secrets/kafka/password`` in place of
``LDPSTREAM_KAFKA_PASSWORD``. A line end at the end of the file is ignored.
"""

import os
import re
import socket
import ssl
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from ldpstream.runtime.redis_url import RedisUrl, parse_redis_url
from ldpstream.surveys.errors import UserError, did_you_mean
from ldpstream.surveys.survey import KEPT_MS

PREFIX = "LDPSTREAM_"

Port = Annotated[int, Field(ge=0, le=65535)]


_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


def _addresses(value: str) -> str:
    for address in value.split(","):
        host, _, port = address.rpartition(":")
        if not re.fullmatch(rf"{_HOST}(?:\.{_HOST})*", host) or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
            raise ValueError("must be host:port[,host:port…]")
    return value


def _host_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:%_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*", value):
        raise ValueError("must be an address or a host's name")
    return value


def _text(value: SecretStr) -> SecretStr:
    if any("\ud800" <= letter <= "\udfff" for letter in value.get_secret_value()):  # bytes of `os.environ` that are not UTF-8
        raise ValueError("is not text in UTF-8")
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    parse_redis_url(_text(value).get_secret_value())
    return value


def _networks(value: str) -> str:
    for network in value.split(",") if value else ():
        try:
            ip_network(network.strip())
        except ValueError:
            raise ValueError("must be addresses or networks separated by commas, as in 10.0.0.0/8,192.0.2.1") from None
    return value


def _origins(value: str) -> str:
    for origin in value.split(",") if value else ():
        if not re.fullmatch(r"https?://[a-z0-9.-]+(:[0-9]+)?", origin):
            raise ValueError("must be web origins separated by commas, as in https://app.example,http://localhost:8000")
    return value


def _readable(value: Path) -> Path:
    try:
        with value.open("rb"):
            return value
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None


File = Annotated[Path, AfterValidator(_readable)]
Name = Annotated[str, Field(min_length=1)]
Secret = Annotated[SecretStr, Field(min_length=1), AfterValidator(_text)]
Host = Annotated[str, AfterValidator(_host_name)]


class SettingsError(UserError, ValueError):
    """Raised for an invalid setting."""


class Settings(BaseSettings):
    """Settings of every service."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    kafka: Annotated[str, AfterValidator(_addresses)] = "127.0.0.1:9092"
    """bootstrap servers, `host:port[,host:port…]`"""
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`: with TLS (SSL), with a password (SASL), both or neither"""
    kafka_sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    """`SCRAM-SHA-512`, `SCRAM-SHA-256` or `PLAIN`, which sends the password itself"""
    kafka_user: Name | None = None
    """the client's user name, with SASL"""
    kafka_password: Secret | None = None
    """the user's password, with SASL"""
    kafka_ca_file: File | None = None
    """PEM file of the brokers' certificate authorities; default: the system's authorities"""
    kafka_cert_file: File | None = None
    """PEM file of the client's certificate, if brokers require one"""
    kafka_key_file: File | None = None
    """PEM file of the client certificate's key, not encrypted"""
    redis: Annotated[SecretStr, AfterValidator(_redis_url)] = SecretStr("redis://127.0.0.1:6379/0")
    """URL of the count store, `redis://[user:password@]host[:port][/db]`, or `rediss://` with TLS; agents and estimators"""
    redis_user: Name | None = None
    """user of Redis, in place of the user in the URL"""
    redis_password: Secret | None = None
    """password of Redis, in place of the password in the URL"""
    redis_ca_file: File | None = None
    """as `LDPSTREAM_KAFKA_CA_FILE`, for a URL that begins with `rediss`"""
    redis_cert_file: File | None = None
    """as `LDPSTREAM_KAFKA_CERT_FILE`"""
    redis_key_file: File | None = None
    """as `LDPSTREAM_KAFKA_KEY_FILE`"""
    survey: str | None = None
    """survey file or folder of survey files, for `faust -A ldpstream.agents.app worker`; the commands take it as an argument"""
    group: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "ldpstream-agents"
    """consumer group of agents that count a folder or several survey files; agents of one survey file use the survey's own"""
    partitions: Annotated[int, Field(ge=1, le=1024)] = 4
    """partitions of the reports topic when a process makes it"""
    records_retention_ms: Annotated[int, Field(ge=0, le=10**13)] = KEPT_MS
    """time for which `serve` keeps the records that it has counted or rejected, in ms (the default is a week); in Kafka, the
    topic's `retention.ms` decides"""
    replication: Annotated[int, Field(ge=1, le=7)] = 1
    """replication factor of the topics when a process makes them"""
    metrics_port: Port = 0
    """port of `/metrics`, `/health` and `/ready`; 0 for none (in the image 9100)"""
    metrics_host: Host = "127.0.0.1"
    """address that the metrics port listens on (in the image 0.0.0.0)"""
    page_port: Port = 8080
    """port of the estimator's page and API; 0 for none (in the demo: a free one)"""
    page_host: Host = "127.0.0.1"
    """address that the page and the API listen on; anybody who reaches the address may read"""
    gateway_port: Port = 8081
    """port of the gateway"""
    gateway_host: Host = "127.0.0.1"
    """address that the gateway listens on"""
    gateway_tokens_file: Path | None = None
    """file of accepted bearer tokens, a different one a line, at least 16 characters; a line `collector TOKEN` has the token of
    a collector, which may send many reports together and has no budget; without a token of devices anybody may report"""
    gateway_relay_keys_file: Path | None = None
    """file of the keys for reports through a relay, made by `ldpstream relay-key`; without this file the gateway takes none"""
    gateway_relays: Annotated[str, AfterValidator(_networks)] = ""
    """relays, as addresses or networks separated by commas; requests through them have no limits of a client"""
    gateway_rate: Annotated[float, Field(gt=0, le=1e9)] = 50.0
    """limit of requests a second for one client (one token at one address, or in one IPv6 /48); 100 kB of bodies count as one
    request more"""
    gateway_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """limit of simultaneous connections from one address or IPv6 /48; behind proxies, the proxies must limit the connections"""
    gateway_tls_cert: Path | None = None
    """PEM file of the certificate, if the gateway itself uses TLS"""
    gateway_tls_key: Path | None = None
    """PEM file of the gateway certificate's key"""
    gateway_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """trusted proxies, as addresses or networks separated by commas; their X-Forwarded-For names the client"""
    gateway_origins: Annotated[str, AfterValidator(_origins)] = ""
    """web origins whose pages may report, such as `https://app.example`, separated by commas"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`"""
    signing_passphrase: Secret | None = None
    """passphrase of the key of `ldpstream sign`; default: the command asks at the terminal"""

    # ---- options for clients

    def kafka_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "bootstrap_servers": self.kafka.split(","),
            "security_protocol": self.kafka_security_protocol,
        }
        if self.kafka_security_protocol in ("SSL", "SASL_SSL"):
            options["ssl_context"] = self.tls("kafka")
        if self.kafka_password is not None:
            options["sasl_mechanism"] = self.kafka_sasl_mechanism
            options["sasl_plain_username"] = self.kafka_user
            options["sasl_plain_password"] = self.kafka_password.get_secret_value()
        return options

    def redis_url(self) -> RedisUrl:
        url = parse_redis_url(self.redis.get_secret_value())
        return replace(url, user=self.redis_user or url.user, password=self.redis_password or url.password)

    def tls(self, store: Literal["kafka", "redis"]) -> ssl.SSLContext:
        """Returns a new context for TLS connections, which always checks the server's certificate and name.

        Raises:
            ValueError: if a file does not hold the certificate or key that its setting needs.
        """
        authorities, cert, key = (getattr(self, f"{store}_{what}_file") for what in ("ca", "cert", "key"))
        name = f"{PREFIX}{store.upper()}"
        try:
            context = ssl.create_default_context(cafile=authorities)
            if cert is not None:
                context.load_cert_chain(cert, key, password="")  # without a password, OpenSSL would ask for one at the terminal
        except (ssl.SSLError, OSError):
            files = ", ".join(str(file) for file in (authorities, cert, key) if file is not None)
            raise ValueError(f"{name}_*_FILE: must be certificates and their key (PEM, not encrypted), got {files}") from None
        return context

    def secrets(self) -> list[str]:
        """Secrets that a library's message could contain, so that the caller can remove them."""
        given = (self.kafka_password, self.redis_url().password)
        return [secret.get_secret_value() for secret in given if secret is not None]

    # ---- checks across fields

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        protocol = f"{PREFIX}KAFKA_SECURITY_PROTOCOL={self.kafka_security_protocol}"
        given = self._given("kafka_user", "kafka_password")
        if self.kafka_security_protocol.startswith("SASL") and len(given) < 2:
            raise ValueError(f"{protocol} needs {PREFIX}KAFKA_USER and {PREFIX}KAFKA_PASSWORD")
        if not self.kafka_security_protocol.startswith("SASL") and given:
            raise ValueError(f"{given[0]} has no effect with {protocol}: this protocol has no SASL")
        self._check_tls("kafka", self.kafka_security_protocol.endswith("SSL"), f"with {protocol}")

        self._check_tls("redis", self.redis_url().tls, f"with a URL in {PREFIX}REDIS that does not begin with rediss")
        return self

    def _check_tls(self, store: Literal["kafka", "redis"], used: bool, why_not: str) -> None:
        given = self._given(*(f"{store}_{what}_file" for what in ("ca", "cert", "key")))
        if given and not used:
            raise ValueError(f"{given[0]} has no effect {why_not}: the connection has no TLS")
        if used:
            self.tls(store)

    def _given(self, *names: str) -> list[str]:
        return [PREFIX + name.upper() for name in names if getattr(self, name) is not None]


def _secrets_in_files() -> dict[str, Any]:
    """Returns the secrets whose variable with the ending ``_FILE`` names a file."""
    found = {}
    for field, about in Settings.model_fields.items():
        variable = PREFIX + field.upper()
        path = os.environ.get(f"{variable}_FILE")
        if path is None or not _is_secret(about):
            continue
        if variable in os.environ:
            raise SettingsError(f"{variable} and {variable}_FILE are both set")
        found[field] = _read_secret(f"{variable}_FILE", path)
    return found


def _is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)  # the type may also be inside `Annotated`, or be combined with None


def _read_secret(variable: str, path: str) -> str:
    try:
        secret = Path(path).read_text(encoding="utf-8-sig").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise SettingsError(f"{variable}: the file cannot be read: {error.strerror}, got {path!r}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{variable}: the file is not text in UTF-8 (it may be UTF-16), got {path!r}") from None
    if not secret or "\n" in secret:
        raise SettingsError(f"{variable}: the file must hold the secret in one line, got {path!r}")
    return secret


def cannot_listen(server: str, host: str, port: int, error: OSError) -> SettingsError:
    if isinstance(error, socket.gaierror):
        return SettingsError(f"{PREFIX}{server}_HOST: {host}: {error.strerror}")
    return SettingsError(f"{PREFIX}{server}_PORT: {host}:{port}: {error.strerror or error}; choose a free port")


def _check_names() -> None:
    known = [field.upper() for field in Settings.model_fields]
    known += [f"{field.upper()}_FILE" for field, about in Settings.model_fields.items() if _is_secret(about)]
    for given in sorted(os.environ):
        name = given.upper().removeprefix(PREFIX)
        if not given.upper().startswith(PREFIX) or name in known or re.search(r"_SERVICE_|_PORT_\d", name):
            continue
        if similar := did_you_mean(name, known):
            raise SettingsError(f"{given}: unknown setting{similar.replace('mean ', f'mean {PREFIX}')}")


def load_settings() -> Settings:
    """The settings of this process.

    Raises:
        SettingsError: if a setting is invalid, misspelt or contradicts another, or a file other than the gateway's is unusable.
    """
    _check_names()
    try:
        return Settings(**_secrets_in_files())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # an error about several fields
            raise SettingsError(said) from None
        field = str(first["loc"][0])
        given = "" if _is_secret(Settings.model_fields[field]) else f", got {first['input']!r}"
        raise SettingsError(f"{PREFIX}{field.upper()}: {said}{given}") from None
