"""Connections to Redis: the same client and the same errors for a single server, for Sentinels and for a Cluster."""

import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

from ldpstream.engines.count_store import StoreRefused, StoreUnavailable
from ldpstream.runtime.settings import Settings

Client: TypeAlias = redis.Redis | RedisCluster
Command: TypeAlias = tuple[str | int, ...]

TIMEOUT_S = 3.0
ERRORS = (redis.RedisError, RedisClusterException, OSError)  # all errors that the library raises if Redis fails

# errors that only a change of the server or of our settings ends: a database or a command that the server does not have
_LASTING = ("DB index is out of range", "invalid DB index", "unknown command", "Unknown Redis command")

# ARGV: a command. Returns 0 if we have no right to the command, else 1. Before Redis 7 the script always returns 1.
_MAY = "return redis.acl_check_cmd and not redis.acl_check_cmd(unpack(ARGV)) and 0 or 1"


def connect(settings: Settings, timeout_s: float = TIMEOUT_S) -> Client:
    """Returns a client; with Sentinels or a Cluster, it sends commands only to masters.

    The client of a Cluster connects at once; any other client connects at its first command.

    Args:
        timeout_s: longest wait for a connection and for each piece of an answer, in seconds.

    Raises:
        StoreUnavailable: if no node of a Cluster answers.
    """
    url = settings.redis_url()
    user, password = settings.redis_credentials()
    common: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    if url.tls:
        files = {
            "ssl_ca_certs": settings.redis_ca_file,
            "ssl_certfile": settings.redis_cert_file,
            "ssl_keyfile": settings.redis_key_file,
        }
        common |= {"ssl": True, "ssl_check_hostname": True}
        common |= {option: str(file) for option, file in files.items() if file is not None}
    ours = common | {"username": user, "password": password}
    at_once = Retry(NoBackoff(), 0)
    if url.kind == "cluster":
        node: Any = ClusterNode  # redis-py has no type for it
        nodes = [node(host, port) for host, port in url.addresses]
        with store_errors(settings):  # one retry: if a node has failed, another node names the new master
            return RedisCluster(startup_nodes=nodes, retry=Retry(NoBackoff(), 1), **ours)
    if url.kind == "sentinel":
        secret = settings.redis_sentinel_password
        theirs: dict[str, Any] = {"username": settings.redis_sentinel_user, "retry": at_once}
        theirs["password"] = None if secret is None else secret.get_secret_value()
        untyped: Any = Sentinel  # redis-py has no type for it
        sentinel = untyped(url.addresses, sentinel_kwargs=common | theirs, **ours)
        client: redis.Redis = sentinel.master_for(url.service, redis_class=_SentinelClient, db=url.db, retry=at_once)
        return client
    if url.socket is not None:
        return redis.Redis(unix_socket_path=url.socket, db=url.db, retry=at_once, **ours)
    host, port = url.addresses[0]
    return redis.Redis(host, port, db=url.db, retry=at_once, **ours)


class SharedClient:
    """A client of Redis for several count stores and threads. The client connects at the first call of `get`."""

    def __init__(self, settings: Settings, timeout_s: float = TIMEOUT_S) -> None:
        self._settings, self._timeout_s = settings, timeout_s
        self._client: Client | None = None
        self._connecting = threading.Lock()

    def get(self) -> Client:
        """Raises StoreUnavailable if no node of a Cluster answers."""
        with self._connecting:
            if self._client is None:
                self._client = connect(self._settings, self._timeout_s)
            return self._client

    def close(self) -> None:
        with self._connecting:
            if self._client is not None:
                self._client.close()


class _SentinelClient(redis.Redis):
    def close(self) -> None:
        super().close()
        for sentinel in self.sentinels:
            sentinel.close()

    @property
    def sentinels(self) -> list[redis.Redis]:
        found: list[redis.Redis] = cast(SentinelConnectionPool, self.connection_pool).sentinel_manager.sentinels
        return found


@contextmanager
def store_errors(settings: Settings) -> Iterator[None]:
    """Turns errors of the library into StoreUnavailable or StoreRefused, with a message of one line."""
    try:
        yield
    except ERRORS as error:
        found = store_error(error, f"Redis at {settings.redis_url()}")
        if isinstance(error, MasterNotFoundError):
            said = f"no Sentinel that answers knows a master {settings.redis_url().service}"
            raise StoreUnavailable(f"Redis at {settings.redis_url()}: {said}") from None
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
        lasting = isinstance(error, redis.ResponseError) and str(error).startswith(_LASTING)
        if lasting or isinstance(error, reasons):
            return True
        error = error.__cause__ or error.__context__
    return False


def check_rights(client: Client, settings: Settings, commands: Iterable[Command]) -> None:
    """Checks our login and, from Redis 7 on, our rights to commands, without running the commands.

    Args:
        commands: commands with typical arguments.

    Raises:
        StoreRefused: if a command is not allowed, or Redis refuses our login or certificate.
        StoreUnavailable: if Redis does not answer.
    """
    with store_errors(settings):
        if isinstance(client, _SentinelClient):
            _ask_sentinels(client)
        may = client.register_script(_MAY)
        refused = [command for command in commands if not may(args=command)]
    if refused:
        listed = ", ".join(" ".join(map(str, command)) for command in refused)
        raise StoreRefused(f"Redis at {settings.redis_url()}: the user may not {listed}")


def _ask_sentinels(client: _SentinelClient) -> None:
    raised: redis.RedisError | None = None
    for sentinel in client.sentinels:
        try:
            sentinel.ping()
        except redis.RedisError as error:
            raised = error
        else:
            return
    if raised is not None:
        raise raised
