"""Where the broker and the count store are, and what may be tuned: one typed object per process, from the environment.

Every field is an environment variable with the prefix ``LDPSTREAM_``, e.g. ``LDPSTREAM_KAFKA=broker:9092``.
"""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

Port = Annotated[int, Field(ge=0, le=65535)]


_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


def _addresses(value: str) -> str:
    for address in value.split(","):
        host, _, port = address.rpartition(":")
        if not re.fullmatch(rf"{_HOST}(?:\.{_HOST})*", host) or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
            raise ValueError("must be host:port[,host:port…]")
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    try:
        url = urlsplit(value.get_secret_value())
        sound = url.scheme in ("redis", "rediss", "unix") and (url.port is None or url.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("must read redis://[user:password@]host:port/db")
    return value


class SettingsError(ValueError):
    """A setting that cannot be used: one line that names the variable, what was given and what is allowed."""


class Settings(BaseSettings):
    """Settings of every service.

    Attributes:
        kafka: bootstrap servers, ``host:port[,host:port…]``.
        redis: URL of the count store, ``redis://[user:password@]host:port/db``; shown without its password.
        survey: path of the survey file, for ``faust -A agents.app worker``; the commands take it as an argument.
        partitions: partitions of the reports topic when the service creates it.
        replication: replication factor of the topics when the service creates them.
        commit_interval_ms: how often an agent writes its count tables to the store.
        post: post-processing of the matrix inversion that is published, a method of `estimators.post_processing`.
        margin_ms: how long after a step's close the estimator takes the log for complete: longer than brokers' clocks differ,
            and with replicas longer than they lag.
        metrics_port: port of ``/metrics`` on `metrics_host`; 0 for none.
        metrics_host: address that ``/metrics`` listens on.
        page_port: port of the estimator's live page and API on `page_host`; 0 for none (in the demo: a free one).
        page_host: address that they listen on.
        gateway_port: port of the gateway on `gateway_host`.
        gateway_host: address that it listens on.
        gateway_tokens_file: file of the bearer tokens that the gateway asks for, at least 16 characters each, a line each;
            without it anybody may report.
        gateway_rate: requests a second that one client of the gateway may make.
        gateway_tls_cert, gateway_tls_key: PEM files, if the gateway is to speak TLS itself.
        gateway_proxies: addresses or networks of proxies, with commas, whose X-Forwarded-For names the gateway's client.
        log_level: of the structured log.
    """

    model_config = SettingsConfigDict(env_prefix="LDPSTREAM_", extra="ignore", frozen=True)

    kafka: Annotated[str, AfterValidator(_addresses)] = "127.0.0.1:9092"
    redis: Annotated[SecretStr, AfterValidator(_redis_url)] = SecretStr("redis://127.0.0.1:6379/0")
    survey: str | None = None
    partitions: Annotated[int, Field(ge=1, le=1024)] = 4
    replication: Annotated[int, Field(ge=1, le=7)] = 1
    commit_interval_ms: Annotated[int, Field(ge=10, le=60_000)] = 500
    post: Literal["none", "base-pos", "norm", "norm-sub", "norm-mul", "norm-cut", "power", "power-ns"] = "none"
    margin_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 500
    metrics_port: Port = 0
    metrics_host: str = "127.0.0.1"
    page_port: Port = 8080
    page_host: str = "127.0.0.1"
    gateway_port: Port = 8081
    gateway_host: str = "127.0.0.1"
    gateway_tokens_file: Path | None = None
    gateway_rate: Annotated[float, Field(gt=0, le=1e9)] = 50.0
    gateway_tls_cert: Path | None = None
    gateway_tls_key: Path | None = None
    gateway_proxies: str = ""
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"


def load_settings() -> Settings:
    """The settings of this process.

    Raises:
        SettingsError: if a variable's value is not allowed.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = "LDPSTREAM_" + str(first["loc"][0]).upper()
        given = "" if name == "LDPSTREAM_REDIS" else f", got {first['input']!r}"  # it may hold a password
        raise SettingsError(f"{name}: {first['msg'].removeprefix('Value error, ')}{given}") from None
