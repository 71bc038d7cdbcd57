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


class Client(redis.Redis):
    """A client of Redis. Its commands raise StoreUnavailable or StoreRefused, with a message of one line.

    The commands of a pipeline raise the library's errors, except within `errors`.
    """

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(**options)
        self._settings = settings

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        """See `redis.Redis`."""
        with self.errors():
            return super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]  # the library has no types here

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except redis.exceptions.NoScriptError:  # the library then loads the script
            raise
        except (redis.RedisError, OSError) as error:
            said = str(error).partition("\n")[0].partition(", with args beginning")[0] or type(error).__name__
            if said.startswith("HELLO must"):  # the error's other lines are about the protocol
                said = "the server requires a password"
            for secret in self._settings.secrets():
                said = said.replace(secret, "***")
            kind = StoreRefused if _refused(error) else StoreUnavailable
            raise kind(f"Redis at {self._settings.redis_url()}: {said}") from None


def connect(settings: Settings, timeout_s: float = TIMEOUT_S) -> Client:
    """Returns a client that connects at its first command.

    Several threads and stores may share a client.

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
    options |= {"host": url.host, "port": url.port, "db": url.db, "username": url.user, "password": password}
    return Client(settings, retry=at_once, **options)


def _refused(error: BaseException | None) -> bool:
    reasons = (redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError, ssl.SSLError)
    while error is not None:
        if isinstance(error, reasons):
            return True
        error = error.__cause__ or error.__context__
    return False
