"""Connections to Redis, and its errors in one line."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ldpstream.engines.count_store import StoreRefused, StoreUnavailable
from ldpstream.runtime.settings import Settings

TIMEOUT_S = 3.0
ERRORS = (redis.RedisError, OSError)  # all errors that the library raises if Redis fails


def connect(settings: Settings, timeout_s: float = TIMEOUT_S) -> redis.Redis:
    """Returns a client that connects at its first command.

    Several threads and count stores may share a client.

    Args:
        timeout_s: longest wait for a connection and for each piece of an answer, in seconds.
    """
    url = settings.redis_url()
    options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    if url.tls:
        files = {
            "ssl_ca_certs": settings.redis_ca_file,
            "ssl_certfile": settings.redis_cert_file,
            "ssl_keyfile": settings.redis_key_file,
        }
        options |= {"ssl": True, "ssl_check_hostname": True}
        options |= {option: str(file) for option, file in files.items() if file is not None}
    password = None if url.password is None else url.password.get_secret_value()
    at_once = Retry(NoBackoff(), 0)
    return redis.Redis(url.host, url.port, url.db, retry=at_once, username=url.user, password=password, **options)


@contextmanager
def store_errors(settings: Settings) -> Iterator[None]:
    """Turns errors of the library into StoreUnavailable or StoreRefused, with a message of one line."""
    try:
        yield
    except ERRORS as error:
        found = store_error(error, f"Redis at {settings.redis_url()}")
        said = str(found)
        for secret in settings.secrets():
            said = said.replace(secret, "***")
        raise type(found)(said) from None


def store_error(error: Exception, where: str) -> StoreUnavailable:
    """Returns StoreRefused or StoreUnavailable for an error of the library (`ERRORS`), with Redis's reason in one line."""
    said = str(error).partition("\n")[0].partition(", with args beginning")[0] or type(error).__name__  # args may be secret
    if said.startswith("HELLO must"):  # the error's other lines are about the protocol
        said = "the server requires a password"
    return (StoreRefused if _refused(error) else StoreUnavailable)(f"{where}: {said}")


def _refused(error: BaseException | None) -> bool:
    reasons = (redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError, ssl.SSLError)
    while error is not None:
        if isinstance(error, reasons):
            return True
        error = error.__cause__ or error.__context__
    return False
