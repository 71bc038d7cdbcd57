"""Kafka and Redis on this machine, and the trial of a survey."""

import json
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Never

from ldpstream.local import kafka_jars
from ldpstream.local.commands import CommandNode, get
from ldpstream.local.nodes import Node, NodeError
from ldpstream.local.ports import LOOPBACK, free_ports, port_or_free
from ldpstream.local.relay import RelayNode
from ldpstream.local.servers import KafkaNode, RedisNode, missing
from ldpstream.mechanisms.wording import plural
from ldpstream.producers.relay.relay_keys import rotate
from ldpstream.rehearse import rehearse
from ldpstream.runtime.settings import PREFIX, Settings

KAFKA_PORT, CONTROLLER_PORT, REDIS_PORT = 9092, 9093, 6379
PAGE_PORT: int = Settings.model_fields["page_port"].default
GATEWAY_PORT: int = Settings.model_fields["gateway_port"].default
THIS_MACHINE = (LOOPBACK, "localhost", "::1", "[::1]")
LOOK_S = 0.5  # time between two looks at the processes

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Services:
    kafka: KafkaNode
    redis: RedisNode

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a process that uses these services, without the prefix ``LDPSTREAM_``."""
        return {"KAFKA": self.kafka.bootstrap, "REDIS": self.redis.url}


@dataclass(frozen=True)
class Ports:
    kafka: int = KAFKA_PORT
    redis: int = REDIS_PORT
    page: int = PAGE_PORT
    gateway: int = GATEWAY_PORT

    @classmethod
    def of(cls, settings: Settings) -> "Ports":
        kafka = [(host, int(port)) for host, _, port in (a.strip().rpartition(":") for a in settings.kafka.split(","))]
        return cls(
            _port_here(kafka, KAFKA_PORT),
            _port_here(settings.redis_url().addresses, REDIS_PORT),
            settings.page_port or PAGE_PORT,
            settings.gateway_port or GATEWAY_PORT,
        )


def _port_here(addresses: Sequence[tuple[str, int]], default: int) -> int:
    return next((port for host, port in addresses if host in THIS_MACHINE and port), default)


@contextmanager
def services(folder: Path, wanted: Ports, tell: Tell) -> Iterator[Services]:
    """Runs Kafka and Redis on loopback until the context ends. If a wanted port is taken, uses another port and calls `tell`.

    Raises:
        NodeError: if a program is missing, the jars of Kafka cannot be fetched, or a server does not start.
    """
    if (lacking := missing()) is not None:
        raise NodeError(lacking)
    if not kafka_jars.cached():
        tell(f"Maven fetches Apache Kafka {kafka_jars.KAFKA_VERSION}, once (43 MB) …")
    ports = [chosen_port("Kafka", wanted.kafka, tell), port_or_free(CONTROLLER_PORT)]
    try:
        kafka = KafkaNode(ports, folder / "kafka")
    except kafka_jars.JarsError as error:
        raise NodeError(str(error)) from None
    redis = RedisNode([chosen_port("Redis", wanted.redis, tell)], folder / "redis")
    tell("Kafka and Redis start …")
    with kafka, redis:
        tell(f"Kafka listens on {kafka.bootstrap}, Redis on {redis.url}.")
        yield Services(kafka, redis)


def chosen_port(server: str, port: int, tell: Tell) -> int:
    if (chosen := port_or_free(port)) != port:
        tell(f"Port {port} is taken: {server} uses port {chosen}.")
    return chosen


def tokens_file(folder: Path) -> str:
    """Writes a fresh token of a collector: simulated devices send their reports together."""
    path = folder / "tokens"
    path.touch(mode=0o600)
    path.write_text(f"collector {secrets.token_urlsafe(16)}\n")
    return str(path)


def what_to_type(running: Services, wanted: Ports, survey_file: Path, folder: Path) -> list[str]:
    """Returns the lines to type: the settings for every terminal, and then the commands.

    Args:
        wanted: the ports of page and gateway; a taken port is replaced by a free one.
        folder: folder for the tokens file.
    """
    page, gateway = port_or_free(wanted.page), port_or_free(wanted.gateway)
    settings = running.settings | {"PAGE_PORT": str(page), "GATEWAY_PORT": str(gateway)}
    settings["GATEWAY_TOKENS_FILE"] = tokens_file(folder)
    exports = [f"{PREFIX}{name}={shlex.quote(value)}" for name, value in settings.items()]
    commands = [
        f"ldpstream rehearse {shlex.quote(str(survey_file))} now.toml",
        "ldpstream agent now.toml",
        f"ldpstream estimate now.toml          # the page: http://{LOOPBACK}:{page}/",
        "ldpstream gateway now.toml",
        f"ldpstream produce now.toml --steps 100 --gateway http://{LOOPBACK}:{gateway}",
    ]
    return [f"export {' '.join(exports)}          # first, in every terminal", *commands]


def watch(nodes: Sequence[Node]) -> Never:
    """Raises `NodeError` as soon as a node ends."""
    while True:
        for node in nodes:
            node.check()
        time.sleep(LOOK_S)


class Trial:
    """The pipeline of `ldpstream try`: simulated devices, and either `ldpstream serve` or the services with Kafka and Redis.

    Args:
        survey_file: the survey; the trial runs a rehearsal of it.
        on_kafka: True to run Kafka, Redis, agent, estimator and gateway instead of `ldpstream serve`.
    """

    def __init__(
        self, survey_file: Path, step_seconds: int, devices: Sequence[str], folder: Path, wanted: Ports, tell: Tell,
        on_kafka: bool = False, relay: bool = False,
    ) -> None:  # fmt: skip
        self._source, self._step_seconds, self._devices = survey_file, step_seconds, list(devices)
        self._folder, self._wanted, self._tell, self._on_kafka = folder, wanted, tell, on_kafka
        self._relay = relay

    def run(self) -> Never:
        """Runs the pipeline until an exception, such as KeyboardInterrupt; then ends every process.

        Raises:
            NodeError: if a process does not start, or ends early.
        """
        with ExitStack() as stack:
            running = stack.enter_context(services(self._folder, self._wanted, self._tell)) if self._on_kafka else None
            page = chosen_port("the page", self._wanted.page, self._tell)
            gateway = chosen_port("the gateway", self._wanted.gateway, self._tell)
            now = self._folder / "now.toml"
            rehearse(self._source, now, self._step_seconds, time.time(), self._relay)
            settings = {"PAGE_PORT": str(page), "GATEWAY_PORT": str(gateway), "GATEWAY_TOKENS_FILE": tokens_file(self._folder)}
            settings |= {} if running is None else running.settings
            if self._relay:
                rotate(keys := self._folder / "relay-keys.json", datetime.now(UTC))
                settings |= {"GATEWAY_RELAY_KEYS_FILE": str(keys), "GATEWAY_RELAYS": LOOPBACK}

            def command(*arguments: str, port: int | None = None) -> CommandNode:
                node: CommandNode = stack.enter_context(CommandNode(arguments, settings, self._folder, port))
                return node

            nodes: list[Node] = []
            if running is None:
                self._tell("The service starts …")
                commands = [command("serve", str(now), "--data", str(self._folder / "data"), port=page)]
            else:
                self._tell("An agent, the estimator and the gateway start …")
                nodes += [running.kafka, running.redis]
                commands = [command("agent", str(now)), command("estimate", str(now), port=page)]
                commands.append(command("gateway", str(now), port=gateway))
            stack.callback(_tell_to_end, commands)  # the commands then end at the same time
            for node in commands:
                node.wait_until_ready()
            way = ["--gateway", f"http://{LOOPBACK}:{gateway}"]
            if self._relay:
                (port,) = free_ports(1)
                nodes.append(relay := stack.enter_context(RelayNode(port, gateway, self._folder)))
                way += ["--relay", relay.url]
                self._tell(
                    f"A relay for trials listens on {relay.url} and hides nothing: docs/relay.md names relays for people."
                )
            devices = command("produce", str(now), *self._devices, *way)
            self._tell(f"The live page: http://{LOOPBACK}:{page}/")
            self._tell(f"Simulated devices report every {self._step_seconds} s. Ctrl-C ends everything.")
            self._watch(page, [*nodes, *commands], devices)

    def _watch(self, page: int, nodes: Sequence[Node], devices: CommandNode) -> Never:
        told, heard, reporting = -1, 0, True
        while True:
            for node in nodes:
                node.check()
            ended = devices.finished()
            for line in devices.said()[heard:]:
                heard += 1
                self._tell(f"The devices say: {line}")
            if reporting and ended:
                reporting = False
                self._tell("The devices have sent all their steps. The page stays until Ctrl-C.")
            status = json.loads(get(page, "/api/v1/status?span=step") or b'{"attributes": [], "latest_step": null}')
            step, reports = status["latest_step"], sum(one["reports"] for one in status["attributes"])
            if step is not None and step > told and reports:
                told = step
                self._tell(f"Step {step}: {plural(reports, 'report')} counted and published.")
            time.sleep(LOOK_S)


def _tell_to_end(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.tell_to_end()
