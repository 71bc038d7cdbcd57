"""Connections to Redis: the same client and the same errors for a single server and for Sentinels."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from ldpstream.engines.count_store import StoreRefused, StoreUnavailable
from ldpstream.runtime.settings import Settings

TIMEOUT_S = 3.0
ERRORS = (redis.RedisError, OSError)  # all errors that the library raises if Redis fails


def connect(settings: Settings, timeout_s: float = TIMEOUT_S) -> redis.Redis:
    """Returns a client that connects at its first command; with Sentinels, it sends commands only to the master.

    Several threads and count stores may share a client.

    Args:
        timeout_s: longest wait for a connection and for each piece of an answer, in seconds.
    """
    url = settings.redis_url()
    common: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    if url.tls:
        files = {
            "ssl_ca_certs": settings.redis_ca_file,
            "ssl_certfile": settings.redis_cert_file,
            "ssl_keyfile": settings.redis_key_file,
        }
        common |= {"ssl": True, "ssl_check_hostname": True}
        common |= {option: str(file) for option, file in files.items() if file is not None}
    ours = common | {"username": url.user, "password": url.password and url.password.get_secret_value()}
    at_once = Retry(NoBackoff(), 0)
    if url.service:
        secret = settings.redis_sentinel_password
        theirs: dict[str, Any] = {"username": settings.redis_sentinel_user, "retry": at_once}
        theirs["password"] = None if secret is None else secret.get_secret_value()
        untyped: Any = Sentinel  # redis-py has no type for it
        sentinel = untyped(url.addresses, sentinel_kwargs=common | theirs, **ours)
        client: redis.Redis = sentinel.master_for(url.service, db=url.db, retry=at_once)
        return client
    where = {"unix_socket_path": url.socket} if url.socket else dict(zip(("host", "port"), url.addresses[0]))
    return redis.Redis(**where, db=url.db, retry=at_once, **ours)


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
